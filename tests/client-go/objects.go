package main

import (
	"context"
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	virtv1 "kubevirt.io/api/core/v1"
	"kubevirt.io/client-go/kubecli"
)

func (p *player) patient() (context.Context, context.CancelFunc) {
	return context.WithTimeout(p.context, p.patience)
}

func (p *player) machines() kubecli.VirtualMachineInterface {
	return p.client.VirtualMachine(p.namespace)
}

// refusal is an error unless err is one of the kind that is says, with the text.
func refusal(err error, is func(error) bool, text string) error {
	if err == nil {
		return fmt.Errorf("it was not refused")
	}
	if !is(err) || !strings.Contains(err.Error(), text) {
		return fmt.Errorf("another refusal was expected, with %q: %w (%s)", text, err, errors.ReasonForError(err))
	}
	return nil
}

func serverVersion(p *player) error {
	version, err := p.client.ServerVersion().Get()
	if err != nil {
		return err
	}
	if !strings.HasPrefix(version.GitVersion, "v1.7.") || version.Platform == "" {
		return fmt.Errorf("%#v", *version)
	}
	return nil
}

func listKubeVirts(p *player) error {
	found, err := p.client.KubeVirt(metav1.NamespaceAll).List(p.context, metav1.ListOptions{})
	if err != nil {
		return err
	}
	if len(found.Items) != 1 || found.Items[0].Status.Phase != virtv1.KubeVirtPhaseDeployed {
		return fmt.Errorf("there are %d, the first one is %q", len(found.Items), phases(found))
	}
	return nil
}

func phases(list *virtv1.KubeVirtList) (phases []virtv1.KubeVirtPhase) {
	for _, each := range list.Items {
		phases = append(phases, each.Status.Phase)
	}
	return phases
}

func missing(p *player) error {
	_, err := p.machines().Get(p.context, "nobody", metav1.GetOptions{})
	if err := refusal(err, errors.IsNotFound, `"nobody" not found`); err != nil {
		return err
	}
	err = p.machines().Start(p.context, "nobody", &virtv1.StartOptions{})
	if err := refusal(err, errors.IsNotFound, `virtualmachine.kubevirt.io "nobody" not found`); err != nil {
		return err
	}
	_, err = p.client.VirtualMachineInstance(p.namespace).VNC("nobody", false)
	return refusal(err, func(error) bool { return true }, "not found")
}

func create(p *player) (err error) {
	wanted := p.template.DeepCopy()
	wanted.Labels = map[string]string{"made-by": "client-go"}
	p.created, err = p.machines().Create(p.context, wanted, metav1.CreateOptions{})
	if err != nil {
		return err
	}
	if p.created.UID == "" || p.created.Kind != "VirtualMachine" {
		return fmt.Errorf("%#v", p.created.ObjectMeta)
	}
	return nil
}

func informed(p *player) error {
	return p.known.until("the machine in an informer", p.patience, func() bool {
		found := p.known.machines[p.template.Name]
		return found != nil && found.UID == p.created.UID
	})
}

func list(p *player) error {
	found, err := p.machines().List(p.context, metav1.ListOptions{LabelSelector: "made-by=client-go"})
	if err != nil {
		return err
	}
	if len(found.Items) != 1 || found.Items[0].UID != p.created.UID || found.Items[0].Kind != "VirtualMachine" {
		return fmt.Errorf("%d machines were listed", len(found.Items))
	}
	return nil
}

func patch(p *player) error {
	added := []byte(`[{"op": "add", "path": "/metadata/annotations/checked", "value": "yes"}]`)
	merged := []byte(`{"metadata": {"annotations": {"first": "yes"}}}`)
	if _, err := p.machines().Patch(p.context, p.template.Name, types.MergePatchType, merged, metav1.PatchOptions{}); err != nil {
		return err
	}
	patched, err := p.machines().Patch(p.context, p.template.Name, types.JSONPatchType, added, metav1.PatchOptions{})
	if err != nil {
		return err
	}
	if patched.Annotations["first"] != "yes" || patched.Annotations["checked"] != "yes" {
		return fmt.Errorf("%v", patched.Annotations)
	}
	return nil
}

func staleUpdate(p *player) error {
	stale := p.created.DeepCopy()
	stale.Labels["made-by"] = "nobody"
	_, err := p.machines().Update(p.context, stale, metav1.UpdateOptions{})
	return refusal(err, errors.IsConflict, "the object has been modified")
}

func expand(p *player) error {
	expanded, err := p.machines().GetWithExpandedSpec(p.context, p.template.Name)
	if err != nil {
		return err
	}
	return isExpanded(expanded, string(p.created.UID))
}

func expandCarried(p *player) error {
	carried := p.template.DeepCopy()
	carried.Name = "carried"
	expanded, err := p.client.ExpandSpec(p.namespace).ForVirtualMachine(carried)
	if err != nil {
		return err
	}
	return isExpanded(expanded, "")
}

func isExpanded(vm *virtv1.VirtualMachine, uid string) error {
	if string(vm.UID) != uid || vm.Spec.Template == nil || vm.Spec.Template.Spec.Domain.Memory == nil {
		return fmt.Errorf("%#v", vm.ObjectMeta)
	}
	return nil
}

func dryRun(p *player) error {
	options := &virtv1.StartOptions{DryRun: []string{metav1.DryRunAll}}
	if err := p.machines().Start(p.context, p.template.Name, options); err != nil {
		return err
	}
	found, err := p.machines().Get(p.context, p.template.Name, metav1.GetOptions{})
	if err == nil && len(found.Status.StateChangeRequests) != 0 {
		return fmt.Errorf("%v", found.Status.StateChangeRequests)
	}
	return err
}

// watchedStart stops the machine, starts it again, and follows a watch until it shows a machine that is ready.
func watchedStart(p *player) error {
	if err := stop(p); err != nil {
		return err
	}
	from, err := p.machines().Get(p.context, p.template.Name, metav1.GetOptions{})
	if err != nil {
		return err
	}
	options := metav1.SingleObject(from.ObjectMeta)
	patient, cancel := p.patient()
	defer cancel()
	events, err := p.machines().Watch(patient, options)
	if err != nil {
		return err
	}
	defer events.Stop()
	if err := p.machines().Start(p.context, p.template.Name, &virtv1.StartOptions{}); err != nil {
		return err
	}
	shown := []virtv1.VirtualMachinePrintableStatus{from.Status.PrintableStatus}
	for event := range events.ResultChan() {
		machine, is := event.Object.(*virtv1.VirtualMachine)
		if !is || event.Type != watch.Modified {
			return fmt.Errorf("an event %s with %T", event.Type, event.Object)
		}
		if status := machine.Status.PrintableStatus; status != shown[len(shown)-1] {
			shown = append(shown, status)
		}
		if machine.Status.Ready && machine.Status.PrintableStatus == virtv1.VirtualMachineStatusRunning {
			return nil
		}
	}
	return fmt.Errorf("the machine was shown %v, and never ready", shown)
}

// remove makes a machine that never runs, and deletes it.
func remove(p *player) error {
	wanted := p.template.DeepCopy()
	wanted.Name += "-2"
	made, err := p.machines().Create(p.context, wanted, metav1.CreateOptions{})
	if err != nil {
		return err
	}
	patient, cancel := p.patient()
	defer cancel()
	events, err := p.machines().Watch(patient, metav1.SingleObject(made.ObjectMeta))
	if err != nil {
		return err
	}
	defer events.Stop()
	if err := p.machines().Delete(p.context, made.Name, metav1.DeleteOptions{}); err != nil {
		return err
	}
	for event := range events.ResultChan() {
		if event.Type == watch.Deleted {
			return nil
		}
	}
	return fmt.Errorf("no event of its end came within %s", p.patience)
}
