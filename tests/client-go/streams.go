package main

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"time"

	virtv1 "kubevirt.io/api/core/v1"
	kvcorev1 "kubevirt.io/client-go/kubevirt/typed/core/v1"
)

// The page of the hello guest, the port that it is at, and one where nothing is.
const (
	page       = "garboard-hello"
	pagePort   = 80
	closedAt   = 81
	greeting   = "garboard-hello: userspace"
	agentIsUp  = "garboard-hello: agent\r\n"
	rfbVersion = "RFB 003.008\n"
	// QEMU's hello of usbredir's protocol: a header of 12 bytes, a version of 64 that begins so, and 4 bytes of capabilities.
	usbVersion = "qemu usb-redir guest "
	usbHello   = 80
	// How long a shell may take for a line.
	typedAgain = 5 * time.Second
)

// terminal is what a stream shows, and what is typed into it.
type terminal struct {
	sync.Mutex
	shown bytes.Buffer
	keys  *io.PipeWriter
	ended chan error
}

// Write takes in what the guest prints.
func (t *terminal) Write(printed []byte) (int, error) {
	t.Lock()
	defer t.Unlock()
	return t.shown.Write(printed)
}

func (t *terminal) screen() string {
	t.Lock()
	defer t.Unlock()
	return t.shown.String()
}

func opened(stream kvcorev1.StreamInterface) *terminal {
	keyboard, keys := io.Pipe()
	made := &terminal{keys: keys, ended: make(chan error, 1)}
	go func() { made.ended <- stream.Stream(kvcorev1.StreamOptions{In: keyboard, Out: made}) }()
	return made
}

// expect waits for a text.
func (t *terminal) expect(text string, patience time.Duration) error {
	for end := time.Now().Add(patience); !strings.Contains(t.screen(), text); time.Sleep(50 * time.Millisecond) {
		select {
		case err := <-t.ended:
			return fmt.Errorf("the console ended before it showed %q: %v; %q", text, err, t.screen())
		default:
		}
		if time.Now().After(end) {
			return fmt.Errorf("the console did not show %q within %s: %q", text, patience, t.screen())
		}
	}
	return nil
}

// leave ends the session: the keyboard hangs up.
func (t *terminal) leave() error {
	if err := t.keys.Close(); err != nil {
		return err
	}
	return <-t.ended
}

func (p *player) console() (*terminal, error) {
	options := &kvcorev1.SerialConsoleOptions{ConnectionTimeout: p.patience}
	stream, err := p.instances().SerialConsole(p.template.Name, options)
	if err != nil {
		return nil, err
	}
	return opened(stream), nil
}

// calculates has the guest's shell print something that was not typed. It is typed again as long as no shell reads it.
func (t *terminal) calculates(patience time.Duration) (err error) {
	for end := time.Now().Add(patience); time.Now().Before(end); {
		if _, err = io.WriteString(t.keys, "\recho product-$((6*7))\r"); err != nil {
			return err
		}
		if err = t.expect("product-42", typedAgain); err == nil {
			return nil
		}
	}
	return err
}

// forget drops what was shown.
func (t *terminal) forget() {
	t.Lock()
	defer t.Unlock()
	t.shown.Reset()
}

// consoleOfAStart starts the machine, and asks for the console of its instance as soon as there is one: it is refused with
// 400 until the guest runs, which client-go takes for "ask again".
func consoleOfAStart(p *player) error {
	if err := p.machines().Start(p.context, p.template.Name, &virtv1.StartOptions{}); err != nil {
		return err
	}
	if err := p.known.until("an instance", p.patience, func() bool { return p.instance() != nil }); err != nil {
		return err
	}
	console, err := p.console()
	if err != nil {
		return err
	}
	if err := console.calculates(p.patience); err != nil {
		return err
	}
	return console.leave()
}

// consoleTakenOver opens a second console. The first one ends with an error that says EOF, for which KubeVirt's own tests look
// (test_id:1591), and why.
func consoleTakenOver(p *player) error {
	first, err := p.console()
	if err != nil {
		return err
	}
	second, err := p.console()
	if err != nil {
		return err
	}
	select {
	case ended := <-first.ended:
		if ended == nil || !strings.Contains(ended.Error(), "EOF") || !strings.Contains(ended.Error(), "another client") {
			return fmt.Errorf("the first console should end with EOF, and why: %v", ended)
		}
	case <-time.After(p.patience):
		return fmt.Errorf("the first console did not end within %s", p.patience)
	}
	return second.leave()
}

// boots asks for a boot of the guest, and sees it on a console that was open before.
func (p *player) boots(ask func(context.Context, string) error) error {
	console, err := p.console()
	if err != nil {
		return err
	}
	// Whatever the guest has printed before it was asked has come then.
	if err := console.calculates(p.patience); err != nil {
		return err
	}
	console.forget()
	if err := ask(p.context, p.template.Name); err != nil {
		return err
	}
	if err := console.expect(greeting, p.patience); err != nil {
		return err
	}
	if err := console.expect(agentIsUp, p.patience); err != nil {
		return err
	}
	return console.leave()
}

func forwardInstance(p *player) error { return p.fetched(p.instances().PortForward) }

func forwardMachine(p *player) error { return p.fetched(p.machines().PortForward) }

// fetched reads the guest's page through a forwarded port. The guest may not listen yet when it is called Running.
func (p *player) fetched(forward func(string, int, string) (kvcorev1.StreamInterface, error)) error {
	var err error
	for end := time.Now().Add(p.patience); time.Now().Before(end); time.Sleep(500 * time.Millisecond) {
		if err = p.fetch(forward); err == nil {
			return nil
		}
	}
	return err
}

func (p *player) fetch(forward func(string, int, string) (kvcorev1.StreamInterface, error)) error {
	stream, err := forward(p.template.Name, pagePort, "tcp")
	if err != nil {
		return err
	}
	connection := stream.AsConn()
	defer connection.Close()
	if err := connection.SetDeadline(time.Now().Add(p.patience)); err != nil {
		return err
	}
	if _, err := io.WriteString(connection, "GET / HTTP/1.0\r\n\r\n"); err != nil {
		return err
	}
	answer, err := http.ReadResponse(bufio.NewReader(connection), nil)
	if err != nil {
		return err
	}
	body, err := io.ReadAll(answer.Body)
	if err == nil && !strings.Contains(string(body), page) {
		return fmt.Errorf("the page is %q", body)
	}
	return err
}

func closedPort(p *player) error {
	_, err := p.instances().PortForward(p.template.Name, closedAt, "tcp")
	return refusal(err, func(error) bool { return true }, "refused")
}

func screen(p *player) error {
	stream, err := p.instances().VNC(p.template.Name, false)
	if err != nil {
		return err
	}
	viewer := stream.AsConn()
	defer viewer.Close()
	return speaksRfb(viewer)
}

func speaksRfb(viewer io.Reader) error {
	version := make([]byte, len(rfbVersion))
	if _, err := io.ReadFull(viewer, version); err != nil {
		return err
	}
	if string(version) != rfbVersion {
		return fmt.Errorf("%q", version)
	}
	return nil
}

// preservedScreen keeps a session from one that would preserve it, and ends it by one that would not.
func preservedScreen(p *player) error {
	first, err := p.instances().VNC(p.template.Name, false)
	if err != nil {
		return err
	}
	viewer := first.AsConn()
	defer viewer.Close()
	if err := speaksRfb(viewer); err != nil {
		return err
	}
	_, err = p.instances().VNC(p.template.Name, true)
	if err := refusal(err, isUnavailable, "Active VNC connection"); err != nil {
		return err
	}
	second, err := p.instances().VNC(p.template.Name, false)
	if err != nil {
		return err
	}
	defer second.AsConn().Close()
	if _, err := io.ReadAll(viewer); err == nil || !strings.Contains(err.Error(), "1001") {
		return fmt.Errorf("the first viewer should read why it was ended: %v", err)
	}
	return nil
}

func isUnavailable(err error) bool {
	status, is := err.(*kvcorev1.AsyncSubresourceError)
	return is && status.GetStatusCode() == http.StatusServiceUnavailable
}

// usbRedirection has a slot, which it leaves without a USB device.
func usbRedirection(p *player) error {
	stream, err := p.instances().USBRedir(p.template.Name)
	if err != nil {
		return err
	}
	slot := stream.AsConn()
	defer slot.Close()
	hello := make([]byte, usbHello)
	if _, err := io.ReadFull(slot, hello); err != nil {
		return err
	}
	if !strings.HasPrefix(string(hello[12:]), usbVersion) {
		return fmt.Errorf("%q", hello)
	}
	return nil
}
