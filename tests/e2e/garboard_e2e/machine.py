"""One machine on this host, for tests of its life: how it is described, and its processes."""

import json
import os
import pathlib
import re
import signal
import subprocess
from typing import Any

from . import names, tcg
from .command import Garboard
from .guests import HELLO, PATIENT
from .outcome import Failure
from .processes import command_lines, kill


class Machine(Garboard):
    """The command, and one machine, of the hello guest's image."""

    def __init__(self, programs: pathlib.Path, image: pathlib.Path, directory: pathlib.Path) -> None:
        # Others may run machines here at the same time.
        self.name = f"life-{os.getpid()}"
        self.id = f"default/{self.name}"
        super().__init__(programs, directory, [self.id])
        self.image = image
        self.machine = self.home(self.id)
        # The supervisor's own files, and what it shares with PID 1.
        self.supervisor, self.init = self.machine / "supervisor", self.machine / "init"

    def manifest(self, tests: str | None = "", kernel_arguments: str = "", **domain: Any) -> str:
        """The machine as a file. `tests` are behaviours of the hello guest, `kernel_arguments` more for its kernel,
        `domain` goes into spec.domain; without `tests` being a text it is a machine with nothing to boot."""
        devices = {"disks": [], "interfaces": [], "rng": {}, **domain.pop("devices", {})}
        # By default a vCPU asks for a tenth of a CPU, and beside compilers it gets no more than that.
        resources = {"requests": {"cpu": "2"}, **domain.pop("resources", {})}
        spec: dict[str, Any] = {
            "domain": {"memory": {"guest": "256Mi"}, "devices": devices, "resources": resources},
            "terminationGracePeriodSeconds": 30,
        }
        if tests is not None:
            container = {"image": HELLO, "kernelPath": "/boot/vmlinuz", "initrdPath": "/boot/initrd"}
            arguments = f"console=ttyS0 quiet {PATIENT} garboard.test={tests} {kernel_arguments}"
            spec["domain"]["firmware"] = {"kernelBoot": {"kernelArgs": arguments, "container": container}}
            devices["disks"] = [{"name": "root", "disk": {"bus": "virtio"}}]
            devices["interfaces"] = [{"name": "default", "masquerade": {}}]
            spec |= {
                "networks": [{"name": "default", "pod": {}}],
                "volumes": [{"name": "root", "containerDisk": {"image": HELLO}}],
            }
        spec["domain"] |= domain
        head = {"apiVersion": "kubevirt.io/v1", "kind": "VirtualMachineInstance", "metadata": {"name": self.name}}
        path = self.directory / "vm.json"
        path.write_text(json.dumps(head | {"spec": spec}))
        return str(path)

    @property
    def image_option(self) -> str:
        return f"{HELLO}={self.image}"

    def start(
        self, tests: str | None = "", kernel_arguments: str = "", image: pathlib.Path | None = None, **domain: Any
    ) -> None:
        path = self.manifest(tests, kernel_arguments, **domain)
        output = self.run("run", "--detach", "--accel", "tcg", "--image", f"{HELLO}={image or self.image}", path)
        # Whether its vCPUs run already is not known then.
        if f"{self.id} was started\n" not in output:
            raise Failure(f"`garboard run --detach` should print that the machine was started: {output}")

    def reported_status(self) -> dict[str, Any]:
        """The status, as soon as a supervisor reports it: one that was killed has a successor a moment later."""
        return self.wait("a supervisor that answers", self.status)

    def status(self) -> dict[str, Any] | None:
        machines = self.machines()
        return machines[0].get("status") if machines else None

    def status_in(self, phase: str) -> dict[str, Any] | None:
        """The status, or None as long as it has another phase."""
        status = self.status()
        return status if status and status.get("phase") == phase else None

    def circumstances(self) -> str:
        alive = {program: [processor_time(each) for each in self.processes(program)] for program in names.PROCESSES}
        there = sorted(str(path.relative_to(self.machine)) for path in self.machine.glob("*/*"))
        return (
            f"the serial log ends with {self.serial()[-300:]!r}; processor seconds of its processes {alive}; "
            f"files {there}; {super().circumstances()}; {self.guest_now()}"
        )

    def guest_now(self) -> str:
        """Of a guest that prints nothing: where its vCPU is, what its devices have sent, what its host has logged."""
        try:
            lines = (self.machine / "launcher.log").read_text(errors="replace").splitlines()[-4:]
        except OSError as error:
            lines = [str(error)]
        found = {
            command: self.monitor(command) for command in ("info registers", "x/24gx $rsp", "info irq", "info chardev")
        }
        shown = [f"{command}: {output[:700]!r}" for command, output in found.items()]
        defect = tcg.is_stuck(self.serial(), found["info registers"], self.monitor("info registers"))
        return "; ".join(shown + [line[:400] for line in lines] + [defect])

    def monitor(self, command: str) -> str:
        """What QEMU's human monitor prints, or why it does not."""
        line = json.dumps({"command-line": command})
        try:
            return self.call("qmp", "--allow-dangerous", self.name, "human-monitor-command", line, seconds=20).stdout
        except (Failure, subprocess.SubprocessError) as error:
            return str(error)

    def serial(self) -> bytes:
        return self.console(self.id)

    def wait_for(self, text: str) -> None:
        self.wait(f"`{text}` from the guest", lambda: text.encode() in self.serial())

    def wait_for_shell(self) -> None:
        self.wait_for("garboard-hello: address")

    def processes(self, program: str) -> list[int]:
        """Those of the machine, by what they were started with."""
        marks = [
            str(self.machine),
            str(self.init),
            f"guest=default_{self.name}",
        ]
        found = []
        for process, arguments in command_lines():
            name = os.path.basename(arguments[0])
            runs_it = name == program or (program == names.QEMU and name.startswith(program))
            is_marked = runs_it and any(argument.split(",")[0] in marks for argument in arguments)
            # Between fork and exec a child still looks like its parent.
            if is_marked and not (program == names.INIT and is_child_of(process, program)):
                found.append(int(process.name))
        return found

    @property
    def qemu(self) -> int:
        return self.only(names.QEMU)

    def only(self, program: str) -> int:
        """The process ID of the one process that runs a program, once there is exactly one."""

        def alone() -> list[int] | None:
            found = self.processes(program)
            return found if len(found) == 1 else None

        return self.wait(f"one {program}", alone)[0]

    def kill(self, program: str, number: int = signal.SIGKILL) -> None:
        """Signals every process that runs a program; those that are gone meanwhile are fine."""
        kill(self.processes(program), number)

    def records(self) -> list[pathlib.Path]:
        return self.recorded_runs(self.id)

    def expect_end(self, cause: str, text: str = "") -> dict[str, Any]:
        """The machine ends with this cause, and `text` in its message."""
        ended = self.ended(self.id)
        if ended["cause"]["cause"] != cause or text not in ended["sentence"]:
            wanted = f"{cause} with {text!r}" if text else cause
            raise Failure(f"the run should have ended as {wanted}, not {ended}")
        return ended

    def stop_everything(self) -> None:
        for program in (names.SUPERVISOR, names.SHIM):
            self.kill(program, signal.SIGCONT)
        super().stop_everything()


def processor_time(process: int) -> float | None:
    try:
        fields = pathlib.Path(f"/proc/{process}/stat").read_text().rpartition(") ")[2].split()
    except OSError:
        return None
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def is_child_of(process: pathlib.Path, program: str) -> bool:
    try:
        parent = re.search(r"^PPid:\s*(\d+)", (process / "status").read_text(), re.M)
        return parent is not None and program in pathlib.Path(f"/proc/{parent[1]}/cmdline").read_text().split("\0")[0]
    except OSError:
        return False
