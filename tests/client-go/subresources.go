package main

import (
	"bytes"
	"fmt"
	"image/png"
	"time"

	"k8s.io/apimachinery/pkg/api/errors"
	virtv1 "kubevirt.io/api/core/v1"
	"kubevirt.io/client-go/kubecli"
)

func (p *player) instances() kubecli.VirtualMachineInstanceInterface {
	return p.client.VirtualMachineInstance(p.namespace)
}

func secondStart(p *player) error {
	err := p.machines().Start(p.context, p.template.Name, &virtv1.StartOptions{})
	return refusal(err, errors.IsConflict, "VM is already running")
}

func screenshot(p *player) error {
	content, err := p.instances().Screenshot(p.context, p.template.Name, &virtv1.ScreenshotOptions{MoveCursor: true})
	if err != nil {
		return err
	}
	picture, err := png.Decode(bytes.NewReader(content))
	if err == nil && picture.Bounds().Empty() {
		return fmt.Errorf("it is empty: %v", picture.Bounds())
	}
	return err
}

func pause(p *player) error {
	if err := p.instances().Pause(p.context, p.template.Name, &virtv1.PauseOptions{}); err != nil {
		return err
	}
	return p.becomes(virtv1.VirtualMachineInstancePaused, true)
}

func secondPause(p *player) error {
	err := p.instances().Pause(p.context, p.template.Name, &virtv1.PauseOptions{})
	return refusal(err, errors.IsConflict, "VMI is already paused")
}

func unpause(p *player) error {
	if err := p.instances().Unpause(p.context, p.template.Name, &virtv1.UnpauseOptions{}); err != nil {
		return err
	}
	return p.becomes(virtv1.VirtualMachineInstancePaused, false)
}

func guestInfo(p *player) error {
	if err := p.becomes(virtv1.VirtualMachineInstanceAgentConnected, true); err != nil {
		return err
	}
	info, err := p.instances().GuestOsInfo(p.context, p.template.Name)
	if err == nil && (info.GAVersion != "hello" || info.FSFreezeStatus != "thawed") {
		return fmt.Errorf("%+v", info)
	}
	return err
}

func users(p *player) error {
	found, err := p.instances().UserList(p.context, p.template.Name)
	if err == nil && (len(found.Items) != 1 || found.Items[0].UserName != "root") {
		return fmt.Errorf("%+v", found)
	}
	return err
}

func filesystems(p *player) error {
	found, err := p.instances().FilesystemList(p.context, p.template.Name)
	if err == nil && (len(found.Items) != 1 || found.Items[0].FileSystemType != "ext4") {
		return fmt.Errorf("%+v", found)
	}
	return err
}

func freeze(p *player) error {
	if err := p.instances().Freeze(p.context, p.template.Name, 5*time.Minute); err != nil {
		return err
	}
	return p.isFrozen(true)
}

func unfreeze(p *player) error {
	if err := p.instances().Unfreeze(p.context, p.template.Name); err != nil {
		return err
	}
	return p.isFrozen(false)
}

func (p *player) isFrozen(wanted bool) error {
	return p.known.until(fmt.Sprintf("file systems frozen %t", wanted), p.patience, func() bool {
		instance := p.instance()
		return instance != nil && (instance.Status.FSFreezeStatus == "frozen") == wanted
	})
}

func softReboot(p *player) error { return p.boots(p.instances().SoftReboot) }

func reset(p *player) error { return p.boots(p.instances().Reset) }

func restart(p *player) error {
	before, err := p.runs("")
	if err != nil {
		return err
	}
	options := &virtv1.RestartOptions{GracePeriodSeconds: new(int64)}
	if err := p.machines().Restart(p.context, p.template.Name, options); err != nil {
		return err
	}
	if _, err = p.runs(before); err != nil {
		return err
	}
	// One that has booted powers down at once when it is stopped.
	return p.becomes(virtv1.VirtualMachineInstanceAgentConnected, true)
}

func stop(p *player) error {
	if err := p.machines().Stop(p.context, p.template.Name, &virtv1.StopOptions{}); err != nil {
		return err
	}
	return p.known.until("the machine Stopped", p.patience, func() bool {
		machine := p.known.machines[p.template.Name]
		return p.instance() == nil && machine != nil && len(machine.Status.StateChangeRequests) == 0 &&
			machine.Status.PrintableStatus == virtv1.VirtualMachineStatusStopped
	})
}

func secondStop(p *player) error {
	err := p.machines().Stop(p.context, p.template.Name, &virtv1.StopOptions{})
	return refusal(err, errors.IsConflict, "VM is not running")
}
