package main

import (
	"fmt"
	"strings"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
	virtv1 "kubevirt.io/api/core/v1"
)

// knowledge is what informers report: the newest state of each object by its name.
type knowledge struct {
	sync.Mutex
	changed   *sync.Cond
	machines  map[string]*virtv1.VirtualMachine
	instances map[string]*virtv1.VirtualMachineInstance
}

func newKnowledge() *knowledge {
	known := &knowledge{
		machines:  map[string]*virtv1.VirtualMachine{},
		instances: map[string]*virtv1.VirtualMachineInstance{},
	}
	known.changed = sync.NewCond(known)
	return known
}

// store takes in an object of an informer's event; gone means that it was deleted.
func (k *knowledge) store(object any, gone bool) {
	if unknown, is := object.(cache.DeletedFinalStateUnknown); is {
		object = unknown.Obj
	}
	k.Lock()
	defer k.Unlock()
	switch object := object.(type) {
	case *virtv1.VirtualMachine:
		k.machines[object.Name] = object
		if gone {
			delete(k.machines, object.Name)
		}
	case *virtv1.VirtualMachineInstance:
		k.instances[object.Name] = object
		if gone {
			delete(k.instances, object.Name)
		}
	}
	k.changed.Broadcast()
}

// until waits until holds answers true, which is asked whenever an informer reports something.
func (k *knowledge) until(what string, patience time.Duration, holds func() bool) error {
	end := time.Now().Add(patience)
	// Wakes the loop below when the time is over.
	timer := time.AfterFunc(patience, func() {
		k.Lock()
		defer k.Unlock()
		k.changed.Broadcast()
	})
	defer timer.Stop()
	k.Lock()
	defer k.Unlock()
	for !holds() {
		if !time.Now().Before(end) {
			return fmt.Errorf("%s: not within %s", what, patience)
		}
		k.changed.Wait()
	}
	return nil
}

// follow starts an informer of one kind and waits until it is filled.
func (p *player) follow(
	kind runtime.Object,
	list func(metav1.ListOptions) (runtime.Object, error),
	open func(metav1.ListOptions) (watch.Interface, error),
) error {
	source := &cache.ListWatch{ListFunc: list, WatchFunc: open}
	informer := cache.NewSharedIndexInformer(source, kind, 0, cache.Indexers{})
	_, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    func(object any) { p.known.store(object, false) },
		UpdateFunc: func(_, object any) { p.known.store(object, false) },
		DeleteFunc: func(object any) { p.known.store(object, true) },
	})
	if err != nil {
		return err
	}
	go informer.Run(p.context.Done())
	patient, cancel := p.patient()
	defer cancel()
	if !cache.WaitForCacheSync(patient.Done(), informer.HasSynced) {
		return fmt.Errorf("the informer of %T was not filled within %s", kind, p.patience)
	}
	return nil
}

func startInformers(p *player) error {
	machines, instances := p.client.VirtualMachine(p.namespace), p.client.VirtualMachineInstance(p.namespace)
	err := p.follow(
		&virtv1.VirtualMachine{},
		func(options metav1.ListOptions) (runtime.Object, error) { return machines.List(p.context, options) },
		func(options metav1.ListOptions) (watch.Interface, error) { return machines.Watch(p.context, options) },
	)
	if err != nil {
		return err
	}
	return p.follow(
		&virtv1.VirtualMachineInstance{},
		func(options metav1.ListOptions) (runtime.Object, error) { return instances.List(p.context, options) },
		func(options metav1.ListOptions) (watch.Interface, error) { return instances.Watch(p.context, options) },
	)
}

// instance is the newest state of the machine's instance that an informer has reported, or nil. The lock is held.
func (p *player) instance() *virtv1.VirtualMachineInstance { return p.known.instances[p.template.Name] }

// runs waits until the machine's instance runs, another one than before.
func (p *player) runs(before string) (uid string, err error) {
	err = p.known.until("a running instance", p.patience, func() bool {
		if instance := p.instance(); instance != nil && instance.Status.Phase == virtv1.Running {
			uid = string(instance.UID)
		}
		return uid != "" && uid != before
	})
	return uid, err
}

// becomes waits until a condition of the instance is there, or is not.
func (p *player) becomes(kind virtv1.VirtualMachineInstanceConditionType, wanted bool) error {
	what := fmt.Sprintf("the condition %s %t", kind, wanted)
	return p.known.until(what, p.patience, func() bool {
		instance := p.instance()
		return instance != nil && has(instance, kind) == wanted
	})
}

func has(instance *virtv1.VirtualMachineInstance, kind virtv1.VirtualMachineInstanceConditionType) bool {
	for _, condition := range instance.Status.Conditions {
		if condition.Type == kind && condition.Status == "True" {
			return true
		}
	}
	return false
}

// oneLine is a text that fits into a line of the output.
func oneLine(err error) string { return strings.Join(strings.Fields(err.Error()), " ") }
