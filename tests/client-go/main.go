// A client of KubeVirt's API that is made from kubevirt.io/client-go, unmodified: it plays one machine through lists, watches,
// informers, subresources and streams, and prints a line for each check, `ok NAME` or `failed NAME: REASON`.
//
//	client-go [--kubeconfig FILE] --namespace NAMESPACE --patience SECONDS MACHINE.json
//	client-go --list    prints the names of all checks
//
// MACHINE.json is a VirtualMachine with `runStrategy: Manual` whose guest is the hello guest with a page and an agent, and with slots
// for USB devices. It is left there, stopped; a second one, which never runs, is made from it and deleted. A check that failed does not end the program, which
// then ends with 1.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"time"

	"github.com/spf13/pflag"
	virtv1 "kubevirt.io/api/core/v1"
	"kubevirt.io/client-go/kubecli"
)

// player has what all checks use.
type player struct {
	context   context.Context
	client    kubecli.KubevirtClient
	namespace string
	patience  time.Duration
	template  virtv1.VirtualMachine
	// The machine as it was created.
	created *virtv1.VirtualMachine
	known   *knowledge
}

// check is one line of the output.
type check struct {
	name string
	run  func(*player) error
}

// checks are run in this order: each goes on from the state that those before it have left.
var checks = []check{
	{"the version of the preferred subresource API is read", serverVersion},
	{"the KubeVirt object is listed", listKubeVirts},
	{"informers are filled", startInformers},
	{"what is not there is not found", missing},
	{"a machine is created as Go's types write it", create},
	{"an informer reports it", informed},
	{"a list by label has it with its kind", list},
	{"a patch is applied", patch},
	{"an update of an old version is a conflict", staleUpdate},
	{"its specification is expanded", expand},
	{"a machine that is not there yet is expanded", expandCarried},
	{"a dry run of a start changes nothing", dryRun},
	{"a console is asked for before the guest runs, and waits", consoleOfAStart},
	{"a console that another client opens ends with EOF", consoleTakenOver},
	{"a watch shows a stop and a start", watchedStart},
	{"a second start is a conflict", secondStart},
	{"a page comes through a forwarded port of the instance", forwardInstance},
	{"a page comes through a forwarded port of the machine", forwardMachine},
	{"a port that nothing listens at is a status", closedPort},
	{"the screen speaks RFB", screen},
	{"a screen that is to be preserved is kept", preservedScreen},
	{"QEMU greets a client of USB redirection", usbRedirection},
	{"a screenshot is a picture", screenshot},
	{"a guest is paused", pause},
	{"a guest is paused once", secondPause},
	{"a guest is unpaused", unpause},
	{"the guest agent tells what it is", guestInfo},
	{"users of the guest are listed", users},
	{"file systems of the guest are listed", filesystems},
	{"file systems are frozen", freeze},
	{"file systems are thawed", unfreeze},
	{"a guest is rebooted", softReboot},
	{"a guest is reset", reset},
	{"a machine is restarted", restart},
	{"a machine is stopped", stop},
	{"a stop of what is stopped is a conflict", secondStop},
	{"a watch shows the end of a machine", remove},
}

func main() {
	patience := pflag.Float64("patience", 60, "seconds that each check waits")
	list := pflag.Bool("list", false, "print the names of all checks")
	config := kubecli.DefaultClientConfig(pflag.CommandLine)
	pflag.Parse()
	if *list {
		for _, each := range checks {
			fmt.Println(each.name)
		}
		return
	}
	client, err := kubecli.GetKubevirtClientFromClientConfig(config)
	quitOn(err)
	namespace, _, err := config.Namespace()
	quitOn(err)
	each := time.Duration(*patience * float64(time.Second))
	running := context.Background()
	player := &player{context: running, client: client, namespace: namespace, patience: each, known: newKnowledge()}
	quitOn(player.read(pflag.Arg(0)))
	if !player.play() {
		os.Exit(1)
	}
}

func quitOn(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(2)
	}
}

func (p *player) read(path string) error {
	content, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	return json.Unmarshal(content, &p.template)
}

// play runs all checks. One that hangs fails after its patience, however it was to end: what is left of it is not waited for.
func (p *player) play() bool {
	whole := true
	for _, each := range checks {
		ended := make(chan error, 1)
		go func() { ended <- each.run(p) }()
		var err error
		select {
		case err = <-ended:
		case <-time.After(2 * p.patience):
			err = fmt.Errorf("it did not end within %s", 2*p.patience)
		}
		if err != nil {
			whole = false
			fmt.Printf("failed %s: %s\n", each.name, oneLine(err))
		} else {
			fmt.Printf("ok %s\n", each.name)
		}
	}
	return whole
}
