"""A test cluster with Garboard on it, as most tests use it: with a way into guests."""

import contextlib
import functools
import json
import os
import pathlib
import re
import signal
import socket
import time
from collections.abc import Collection

from ..outcome import Failure
from ..patience import PATIENCE
from .build import Images
from .names import INSTALLED_IN, NAMESPACE, Object
from .objects import SETTINGS
from .watched import Watched

# The prompt of the hello guest, and what it prints once it reacts to its power button.
PROMPT = ":/# "
REACTS = re.compile(rf"{PROMPT}|garboard-hello: (?!userspace)")


class Kube(Watched):
    """One cluster, Garboard's images on its nodes."""

    def __init__(self, program: pathlib.Path, name: str, images: Images) -> None:
        super().__init__(program, name)
        self.images = images

    def install(self) -> None:
        """Garboard with the settings of a new installation, and a namespace for machines; from here on everything is
        recorded."""
        self.roll_out(self.images.manifest.read_text())
        self.settle()

    def settle(self) -> None:
        """The rest, where controllers and agents have been rolled out."""
        self.apply(SETTINGS, namespace=INSTALLED_IN)
        available = ["wait", "--for=condition=Available", "kubevirt/kubevirt", f"--timeout={PATIENCE}s"]
        self.kubectl(*available, namespace=INSTALLED_IN)
        self.kubectl("create", "namespace", NAMESPACE, namespace=None)
        restricted = "pod-security.kubernetes.io/enforce=restricted"
        self.kubectl("label", "namespace", NAMESPACE, restricted, namespace=None)
        self.ask_until("nodes that take machines", self.offers_devices)
        self.recorder.start()

    # ---- the end of machines

    def machines(self) -> set[str]:
        """The names of all machines in the namespace of tests, and of instances without one."""
        with self.recorder.changed:
            items = [*self.recorder.objects["vm"].values(), *self.recorder.objects["vmi"].values()]
        return {each["metadata"]["name"] for each in items if each["metadata"]["namespace"] == NAMESPACE}

    def remove(self, *names: str) -> None:
        """Deleted, and waited for until nothing is left of them."""
        self._end(names, "vm")

    def keep_only(self, names: set[str]) -> None:
        """Removes all others, and waits until nothing is left of them."""
        if others := sorted(self.machines() - names):
            self._end(others, "vm", "vmi")

    def _end(self, names: Collection[str], *kinds: str) -> None:
        """A QEMU whose guest would ignore its power button is killed: what is tested is over."""
        deaf = [name for name in names if not REACTS.search(self.serial(name))]
        self.will_go(*names)
        for kind in kinds:
            self.kubectl("delete", kind, *names, "--ignore-not-found", "--wait=false")
        have_ended = functools.partial(self._have_ended, names, deaf)
        self.wait(f"the end of {', '.join(names)}", have_ended, seconds=PATIENCE * len(names))
        for name in names:
            self.is_removed(name)

    def _have_ended(self, names: Collection[str], killed: Collection[str]) -> bool:
        """Whether nothing runs of any; the QEMUs of some are killed."""
        for process in [each for name in killed for each in self.qemus(name)]:
            with contextlib.suppress(ProcessLookupError):
                os.kill(process["pid"], signal.SIGKILL)
        return not any(self.qemus(name) or self.pods(name) for name in names)

    # ---- the guest

    def supervisor(self, name: str) -> pathlib.Path:
        """The directory of the machine's supervisor."""
        pod = self.pod(name)
        pods, uid = self.root(pod["spec"]["nodeName"]) / "var/lib/kubelet/pods", str(pod["metadata"]["uid"])
        return next((pods / uid / "volumes/kubernetes.io~empty-dir/garboard-run").rglob("serial0.log")).parent

    def serial(self, name: str) -> str:
        """What the guest has printed; nothing as long as there is no such file."""
        with contextlib.suppress(OSError, StopIteration, Failure, KeyError):
            return (self.supervisor(name) / "serial0.log").read_text(errors="replace")
        return ""

    def prints(self, name: str, pattern: str, times: int = 1, seconds: float = PATIENCE) -> None:
        """Waits until the guest has printed this."""
        self.ask_until(
            f"{pattern!r} on the console of {name}",
            lambda: len(re.findall(pattern, self.serial(name))) >= times,
            seconds,
        )

    def has_shell(self, name: str) -> None:
        """Waits for the prompt of the hello guest. One that has not come so far ignores its power button, which is
        pressed again only ten seconds later (ASK_AGAIN_MS, launcher/src/vm/step/mod.rs)."""
        self.prints(name, PROMPT)

    def ask(self, name: str, request: Object) -> tuple[socket.socket, Object]:
        """A connection to the machine's supervisor, after its answer to a request (protocol/src/control/mod.rs)."""
        connection = socket.socket(socket.AF_UNIX)
        connection.settimeout(PATIENCE)
        own = os.open(self.supervisor(name), os.O_PATH)
        try:
            # Through the descriptor: the path itself is longer than a socket's may be.
            connection.connect(f"/proc/self/fd/{own}/control.sock")
        except OSError:
            connection.close()
            raise
        finally:
            os.close(own)
        connection.sendall(json.dumps(request).encode() + b"\n")
        answer = b""
        while not answer.endswith(b"\n") and (byte := connection.recv(1)):
            answer += byte
        found: Object = json.loads(answer)
        return connection, found

    def answer(self, name: str, request: str) -> Object:
        """The supervisor's answer to a request that needs no connection afterwards; empty where nothing answers."""
        try:
            connection, answer = self.ask(name, {"ask": request})
        except (OSError, StopIteration, ValueError, Failure):
            return {}
        connection.close()
        return answer

    def is_answered(self, name: str) -> bool:
        """Whether the machine's supervisor answers that its guest runs."""
        return self.answer(name, "status").get("phase") == "Running"

    def type(self, name: str, command: str) -> None:
        """Types a command in the guest's shell, whose end is not awaited: only that it is echoed. Whether anything came
        of it has to be seen elsewhere."""
        self._shell(name, command, "ended''", PATIENCE)

    def power_off(self, name: str) -> None:
        """Has the hello guest power itself down, by a command in its shell, and waits until it says that it does: what
        is typed is echoed whether anything comes of it or not."""
        self._shell(name, "poweroff", "garboard-hello: powering off", PATIENCE)

    def shell(self, name: str, command: str, seconds: float = PATIENCE, code: int = 0) -> str:
        """What a command prints in the guest's shell, on the console."""
        # In two pieces, so that what is typed is not taken for what is printed.
        mark = os.urandom(4).hex()
        # The guest's echo of what was typed comes first, on as many lines as it needs. Before it may stand what the
        # console showed last.
        pattern = rf"(?s).*\$\s*\?\r?\n(.*?)ended {mark} (\d+)"
        found = self._shell(name, command, pattern, seconds, mark)
        if found[2] != str(code):
            raise Failure(f"`{command}` ended with {found[2]} in {name}: {found[1]}")
        return found[1].replace("\r", "")

    def _shell(self, name: str, command: str, pattern: str, seconds: float, mark: str = "") -> re.Match[str]:
        connection, answer = self.ask(name, {"ask": "console", "access": "takeOver"})
        with connection:
            connection.settimeout(10)
            if answer.get("answer") != "streaming":
                raise Failure(f"the console of {name} answers {answer}")
            connection.sendall(f"{command}; echo 'ended'' {mark}' $?\n".encode())
            shown, end = "", time.monotonic() + seconds
            while not (found := re.search(pattern, shown)):
                if time.monotonic() > end:
                    screen = f"the screen: {shown[-400:]}"
                    raise Failure(f"`{command}` did not end within {seconds:.0f} s in {name}; {screen}")
                with contextlib.suppress(TimeoutError):
                    if not (more := connection.recv(4096)):
                        raise Failure(f"the console of {name} was closed; the screen: {shown[-400:]}")
                    shown += more.decode(errors="replace")
            return found
