"""One machine on this host, for the checks of its life: how it is described, and its four processes."""

import json
import os
import pathlib
import re
import signal
import subprocess
import sys

from garboard import PATIENT, Garboard
from report import Report, play, room
from terminal import Failure

IMAGE = "registry.garboard.dev/hello:1"


class Host(Garboard):
    """The command, and one machine."""

    def __init__(self, garboard, image, directory):
        # Others may run machines here at the same time.
        self.name = f"life-{os.getpid()}"
        self.id = f"default/{self.name}"
        super().__init__(garboard, directory, [self.id])
        self.image = image
        self.machine = self.home(self.id)
        # The supervisor's own files, and what it shares with PID 1.
        self.supervisor, self.init = self.machine / "supervisor", self.machine / "init"

    def manifest(self, tests="", words="", **domain):
        """The machine as a file. `tests` are behaviours of the hello guest, `words` more of its kernel's arguments,
        `domain` goes into spec.domain; without `tests` being a text it is a machine with nothing to boot."""
        devices = {"disks": [], "interfaces": [], "rng": {}, **domain.pop("devices", {})}
        # By default a vCPU asks for a tenth of a CPU, and beside compilers it gets no more than that.
        resources = {"requests": {"cpu": "2"}, **domain.pop("resources", {})}
        spec = {"domain": {"memory": {"guest": "256Mi"}, "devices": devices, "resources": resources},
                "terminationGracePeriodSeconds": 30}
        if tests is not None:
            container = {"image": IMAGE, "kernelPath": "/boot/vmlinuz", "initrdPath": "/boot/initrd"}
            arguments = f"console=ttyS0 quiet {PATIENT} garboard.test={tests} {words}"
            spec["domain"]["firmware"] = {"kernelBoot": {"kernelArgs": arguments, "container": container}}
            devices["disks"] = [{"name": "root", "disk": {"bus": "virtio"}}]
            devices["interfaces"] = [{"name": "default", "masquerade": {}}]
            spec |= {"networks": [{"name": "default", "pod": {}}],
                     "volumes": [{"name": "root", "containerDisk": {"image": IMAGE}}]}
        spec["domain"] |= domain
        path = self.directory / "vm.json"
        path.write_text(json.dumps({"apiVersion": "kubevirt.io/v1", "kind": "VirtualMachineInstance",
                                    "metadata": {"name": self.name}, "spec": spec}))
        return str(path)

    def start(self, tests="", words="", image=None, **domain):
        path = self.manifest(tests, words, **domain)
        said = self.run("run", "--detach", "--accel", "tcg", "--image", f"{IMAGE}={image or self.image}", path)
        # Whether its vCPUs run already is not known then.
        if f"{self.id} was started\n" not in said:
            raise Failure(f"`garboard run --detach` should say that the machine was started: {said}")

    def told(self):
        """The status, as soon as there is a supervisor to tell it: one that was killed has a successor a moment later."""
        return self.wait("a supervisor that answers", self.status)

    def status(self):
        machines = self.machines()
        return machines[0].get("status") if machines else None

    def circumstances(self):
        programs = ("garboard-shim", "garboard-launcher", "garboard-init", "qemu-system")
        alive = {program: [self.processor_time(each) for each in self.processes(program)] for program in programs}
        there = sorted(str(path.relative_to(self.machine)) for path in self.machine.glob("*/*"))
        return (f"the serial log ends with {self.serial()[-300:]!r}; processor seconds of its processes {alive}; "
                f"files {there}; {super().circumstances()}; {self.guest_now()}")

    def guest_now(self):
        """Of a guest that says nothing: where its vCPU is, what its devices have told it, what its host has logged."""
        try:
            lines = (self.machine / "launcher.log").read_text(errors="replace").splitlines()[-4:]
        except OSError as error:
            lines = [str(error)]
        found = []
        for command in ("info registers", "info irq", "info chardev"):
            words = ("qmp", "--allow-dangerous", self.name, "human-monitor-command", json.dumps({"command-line": command}))
            try:
                found.append(f"{command}: {self.call(*words, seconds=20).stdout[:700]!r}")
            except (Failure, subprocess.SubprocessError) as error:
                found.append(f"{command}: {error}")
        return "; ".join(found + [line[:400] for line in lines])

    @staticmethod
    def processor_time(process):
        try:
            fields = pathlib.Path(f"/proc/{process}/stat").read_text().rpartition(") ")[2].split()
        except OSError:
            return None
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def serial(self):
        return self.console(self.id)

    def wait_for(self, text):
        self.wait(f"`{text}` from the guest", lambda: text.encode() in self.serial())

    def wait_for_shell(self):
        self.wait_for("garboard-hello: address")

    def processes(self, program):
        """Those of the machine, by what they were started with."""
        found = []
        for process in pathlib.Path("/proc").glob("[0-9]*"):
            try:
                words = (process / "cmdline").read_bytes().split(b"\0")
            except OSError:
                continue
            words = [word.decode(errors="replace") for word in words]
            marks = [str(self.machine), str(self.init), f"guest=default_{self.name}"]
            name = os.path.basename(words[0])
            runs_it = name == program or program == "qemu-system" and name.startswith(program)
            if runs_it and any(word.split(",")[0] in marks for word in words):
                # Between fork and exec a child still looks like its parent.
                if program != "garboard-init" or not self.is_child_of(process, program):
                    found.append(int(process.name))
        return found

    @staticmethod
    def is_child_of(process, program):
        try:
            parent = re.search(r"^PPid:\s*(\d+)", (process / "status").read_text(), re.M).group(1)
            return program in pathlib.Path(f"/proc/{parent}/cmdline").read_text().split("\0")[0]
        except (OSError, AttributeError):
            return False

    @property
    def qemu(self):
        return self.only("qemu-system")

    def only(self, program):
        """The process ID of the one process that runs a program, once there is exactly one."""
        found = self.wait(f"one {program}", lambda: len(found := self.processes(program)) == 1 and found)
        return found[0]

    def kill(self, program, number=signal.SIGKILL):
        """Signals every process that runs a program; those that are gone meanwhile are fine."""
        for process in self.processes(program):
            try:
                os.kill(process, number)
            except ProcessLookupError:
                pass

    def records(self):
        return self.recorded_runs(self.id)

    def stop_everything(self):
        for program in ("garboard-launcher", "garboard-shim"):
            self.kill(program, signal.SIGCONT)
        super().stop_everything()


def expect_end(host, cause, word=""):
    """The machine ends with this cause, and `word` in its sentence."""
    ended = host.ended(host.id)
    if ended["cause"]["cause"] != cause or word not in ended["sentence"]:
        raise Failure(f"the run should have ended as {cause}{word and f' with {word!r}'}, not {ended}")
    return ended


def run_checks(garboard, image, checks):
    """Plays each (name, function of a Host), each with a machine of its own; those with ONLY in their names. Does not
    return."""
    report = Report()
    for name, check in checks:
        # For whoever mends one of them.
        if os.environ.get("ONLY", "") not in name:
            continue
        with room("gbl-") as directory:
            note = play(report, name, Host(garboard, image, directory), check)
            if note is not None:
                report.ok(name + (f": {note}" if note else ""))
    sys.exit(report.sums())
