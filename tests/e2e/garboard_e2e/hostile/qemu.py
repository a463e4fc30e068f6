#!/usr/bin/python3 -B
"""A QEMU that was taken over: before it goes on as the real one it tries what an attacker in its place would. What it
was refused it writes to standard error, which is QEMU's log. Beside it lies attack.json: where it is, and the paths.
For tests/e2e/host/life on a bare host, and for tests/e2e/cluster/hostile in a pod.

Asked what it can do, or started for anything but a machine, it is just QEMU. QEMU's own seccomp filter is not there
yet: it has more system calls than a QEMU that was taken over later."""

import ctypes
import errno
import json
import os
import pathlib
import re
import signal
import socket
import stat
import sys
import time
from collections.abc import Callable
from typing import Any

PTRACE_ATTACH, PIDFD_OPEN, PIDFD_GETFD, NEW_USER = 16, 434, 438, 0x10000000
# Connecting is enough: they answer everything.
SOCKETS = (
    *("supervisor/control.sock", "supervisor/monitor.sock", "supervisor/monitor-init.sock", "supervisor/qmp.sock"),
    *("supervisor/vnc.sock", "supervisor/guest-agent.sock", "supervisor/serial0.sock", "order/agent.sock"),
)
READABLE = (
    *("launch-request.json", "order/vmi.json", "order/volumes.json", "order/facts.json", "supervisor/journal.json"),
    *("supervisor/plan.json", "supervisor/live.json", "supervisor/launch.secret", "supervisor/qmp.jsonl"),
    *("init/qemu.log", "init/exit.json", "launcher.log", "shim.log"),
)
WRITTEN = (
    *("supervisor/journal.json", "supervisor/plan.json", "supervisor/live.json", "supervisor/launch.secret"),
    *("init/exit.json", "init/launch.sock", "init/probe.sock", "init/qemu.log", "order/volumes.json"),
    *("order/agent.sock", "launcher.log"),
)
# What is asked of the socket for probes, which answers those of the guest alone.
QUESTIONS: tuple[dict[str, Any], ...] = (
    {"ask": "status"},
    {"ask": "watch"},
    {"ask": "stop", "mode": {"mode": "force"}},
    {"ask": "prolong", "grace_seconds": 300},
    {"ask": "pause"},
    {"ask": "unpause"},
    {"ask": "reset"},
    {"ask": "softReboot"},
    {"ask": "freeze", "thaw_after_seconds": 300},
    {"ask": "unfreeze"},
    {"ask": "guest", "about": "info"},
    {"ask": "statistics"},
    {"ask": "logVerbosity", "verbosity": 6},
    {"ask": "show", "part": "plan"},
    {"ask": "vnc"},
    {"ask": "usbRedir"},
    {"ask": "screenshot"},
    {"ask": "console", "access": "takeOver"},
    {"ask": "qmp", "access": "dangerous"},
    {"ask": "qmp", "access": "readOnly"},
)
# Devices that every program has, and the guest's processor.
DEVICES = {"null", "zero", "full", "random", "urandom", "kvm"}
# Places where nothing may be written, beside the machine's own.
PLACES = ("/", "/tmp", "/dev", "/dev/shm", "/usr", "/var")
SETTINGS = (
    *("/proc/sys/kernel/core_pattern", "/proc/self/oom_score_adj", "/proc/sysrq-trigger"),
    "/sys/kernel/uevent_helper",
)
# How long a socket may be silent before that counts as a refusal, seconds; and one that answers everything.
SILENCE, PATIENCE = 2, 60


def show(text: str) -> None:
    os.write(2, f"attack: {text}\n".encode())


def attempt(name: str, action: Callable[..., object], *arguments: Any) -> None:
    try:
        action(*arguments)
    except OSError as error:
        show(f"refused: {name}: {errno.errorcode.get(error.errno or 0, error)}")
    else:
        show(f"DONE: {name}")


def call(name: str, *arguments: Any) -> None:
    """A function of the C library that answers -1 when it fails."""
    library = ctypes.CDLL(None, use_errno=True)
    if getattr(library, name)(*arguments) == -1:
        raise OSError(ctypes.get_errno(), name)


def connect(path: str | os.PathLike[str]) -> None:
    with socket.socket(socket.AF_UNIX) as peer:
        peer.connect(str(path))


def ask(path: pathlib.Path, request: dict[str, Any], silence: float = SILENCE) -> None:
    """One line, and the answer to it: a refusal is an error."""
    with socket.socket(socket.AF_UNIX) as peer:
        peer.settimeout(silence)
        peer.connect(str(path))
        peer.sendall(json.dumps(request).encode() + b"\n")
        line = peer.recv(65536)
        if not line:
            raise OSError("sent away")
        answer = json.loads(line.split(b"\n")[0])
        if answer.get("answer") == "denied":
            raise OSError(answer["reason"])


def hello() -> dict[str, Any]:
    """What PID 1 sends first, with a secret that is not its own."""
    return {"init": "hello", "version": 1, "oldest": 1, "state": {"state": "running", "pid": 2}, "secret": "guessed"}


def ask_as_pid_1_until_it_was_answered(path: pathlib.Path) -> None:
    """For as long as it takes: the supervisor is started again meanwhile, and the first to connect sends first."""
    was_away = False
    while True:
        try:
            ask(path, hello())
        except TimeoutError:
            continue
        except (ConnectionRefusedError, FileNotFoundError):
            was_away = True
        except OSError as error:
            if was_away and str(error) == "sent away":
                show("later: refused: pass for PID 1 before another supervisor")
                return
        else:
            show("later: DONE: pass for PID 1 before another supervisor")
            return
        time.sleep(0.005)


def listen(path: str) -> None:
    with socket.socket(socket.AF_UNIX) as mine:
        mine.bind(path)


def tcp(action: str, address: tuple[str, int]) -> None:
    with socket.socket(socket.AF_INET) as peer:
        peer.settimeout(3)
        getattr(peer, action)(address)


def read(path: str) -> None:
    """A file, or the names in a directory."""
    if os.path.isdir(path):
        os.listdir(path)
    else:
        opened(path, os.O_RDONLY | os.O_NONBLOCK)


def opened(path: str | os.PathLike[str], flags: int, mode: int = 0o777) -> None:
    os.close(os.open(path, flags, mode))


def leave_names(machine: pathlib.Path, victim: str) -> None:
    """Where another process opens names later."""
    for name in WRITTEN:
        path = machine / name
        attempt(f"link {name}.new", os.symlink, victim, f"{path}.new")
        attempt(f"write {name}", opened, path, os.O_WRONLY | os.O_CREAT, 0o600)
        attempt(f"cut {name}", os.truncate, path, 0)
        attempt(f"remove {name}", os.unlink, path)
        attempt(f"rename {name}", os.rename, path, f"{path}.old")
        attempt(f"listen at {name}.new", listen, f"{path}.new")
        attempt(f"make a pipe {name}.new", os.mkfifo, f"{path}.new")
    for directory in [*PLACES, str(machine), f"{machine}/init"]:
        attempt(f"make a file in {directory}", opened, f"{directory}/x", os.O_WRONLY | os.O_CREAT)


def reach_pid_1() -> None:
    attempt("list PID 1's descriptors", os.listdir, "/proc/1/fd")
    for number in range(2000):
        path = f"/proc/1/fd/{number}"
        if os.path.lexists(path):
            attempt(f"open {path}", opened, path, os.O_PATH)
    for directory in ["root", "cwd", "map_files"]:
        attempt(f"look into PID 1's {directory}", os.listdir, f"/proc/1/{directory}")
    for name in ["mem", "environ", "maps", "auxv"]:
        attempt(f"read PID 1's {name}", lambda path: pathlib.Path(path).open("rb").read(1), f"/proc/1/{name}")
    attempt("trace PID 1", call, "ptrace", PTRACE_ATTACH, 1, 0, 0)
    attempt("signal PID 1", os.kill, 1, signal.SIGTERM)
    attempt("kill PID 1", os.kill, 1, signal.SIGKILL)
    attempt("signal everything", os.kill, -1, signal.SIGTERM)
    attempt("copy PID 1's memory", copy_memory)
    attempt("take PID 1's descriptors", take_descriptors)
    attempt("see other processes", others_run)


class Piece(ctypes.Structure):
    """struct iovec"""

    _fields_ = (("start", ctypes.c_void_p), ("length", ctypes.c_size_t))


def copy_memory() -> None:
    buffer = ctypes.create_string_buffer(8)
    here, there = Piece(ctypes.addressof(buffer), 8), Piece(0x400000, 8)
    one = ctypes.c_ulong(1)
    call("process_vm_readv", 1, ctypes.byref(here), one, ctypes.byref(there), one, ctypes.c_ulong(0))


def take_descriptors() -> None:
    library = ctypes.CDLL(None, use_errno=True)
    handle = library.syscall(PIDFD_OPEN, 1, 0)
    for number in range(3, 64):
        if library.syscall(PIDFD_GETFD, handle, number, 0) != -1:
            return
    raise OSError(ctypes.get_errno(), "pidfd_getfd")


def others_run() -> None:
    if not {int(name) for name in os.listdir("/proc") if name.isdigit()} - {1, os.getpid()}:
        raise ProcessLookupError(errno.ESRCH, "none")


def use_what_is_held() -> None:
    """Descriptors are to be of files and sockets: below a directory there are names."""
    for number in map(int, os.listdir("/proc/self/fd")):
        try:
            is_directory = stat.S_ISDIR(os.fstat(number).st_mode) and os.readlink(f"/proc/self/fd/{number}") != "/"
        except OSError:
            continue
        # Not the one that this list was read from.
        if is_directory and not os.readlink(f"/proc/self/fd/{number}").startswith("/proc/"):
            show(f"DONE: hold the directory {os.readlink(f'/proc/self/fd/{number}')}")


def look_at_mounts(allowed: str) -> None:
    for line in pathlib.Path("/proc/self/mountinfo").read_text().splitlines():
        point = line.split()[4]
        if not re.fullmatch(allowed, point):
            show(f"DONE: find a mount at {point}")


def use_devices() -> None:
    for directory, _, names in os.walk("/dev"):
        for name in names:
            path = os.path.join(directory, name)
            mode = os.lstat(path).st_mode
            if name not in DEVICES and (stat.S_ISCHR(mode) or stat.S_ISBLK(mode)):
                attempt(f"open {path}", opened, path, os.O_RDWR | os.O_NOCTTY | os.O_NONBLOCK)
    for kind, number in ((stat.S_IFCHR, os.makedev(1, 1)), (stat.S_IFBLK, os.makedev(8, 0))):
        attempt(f"make the device {number:#x}", os.mknod, "/dev/x", kind | 0o600, number)
    for path in SETTINGS:
        attempt(f"write {path}", opened, path, os.O_WRONLY)


def use_the_network(addresses: list[list[Any]]) -> None:
    attempt("listen on TCP", tcp, "bind", ("0.0.0.0", 4444))
    for host, port in [("169.254.169.254", 80), *addresses]:
        attempt(f"connect to {host}:{port} by TCP", tcp, "connect", (host, port))


def use_sockets(machine: pathlib.Path, is_in_pod: bool) -> None:
    for name in SOCKETS:
        attempt(f"connect {name}", connect, machine / name)
    for question in QUESTIONS:
        silence = PATIENCE if is_in_pod else SILENCE
        attempt(f"ask for {question} as a probe", ask, machine / "init/probe.sock", question, silence)
    attempt("pass for PID 1", ask, machine / "init/launch.sock", hello())


def attack(about: dict[str, Any]) -> None:
    machine, victim, is_in_pod = pathlib.Path(about["machine"]), about["victim"], bool(about.get("pod"))
    leave_names(machine, victim)
    for name in READABLE:
        attempt(f"read {name}", (machine / name).read_bytes)
    use_sockets(machine, is_in_pod)
    for path in about["others"]:
        attempt(f"look at {path}", os.stat, path)
    for path in [victim, "/etc/shadow", "/etc/passwd", "/root", *about.get("closed", [])]:
        attempt(f"read {path}", read, path)
        attempt(f"write {path}", opened, path, os.O_WRONLY)
        attempt(f"connect {path}", connect, path)
    reach_pid_1()
    use_devices()
    use_what_is_held()
    look_at_mounts(about["mounts"])
    use_the_network(about.get("tcp", []))
    attempt("become root", os.setuid, 0)
    attempt("mount", call, "mount", b"tmpfs", b"/tmp", b"tmpfs", 0, None)
    if is_in_pod:
        # A container runtime's filter; on a bare host it is QEMU's own.
        attempt("make a user namespace", call, "unshare", NEW_USER)
    what_must_work(about["real"])
    show("over")


def what_must_work(program: str) -> None:
    """Or none of the refusals means anything."""
    actions: dict[str, Callable[[], object]] = {
        "read itself": lambda: pathlib.Path(program).open("rb").read(4),
        "write to a device": lambda: pathlib.Path("/dev/null").write_bytes(b"x"),
    }
    for name, action in actions.items():
        try:
            action()
        except OSError as error:
            show(f"DONE: {name} should be allowed: {error}")


if __name__ == "__main__":
    config = json.loads(pathlib.Path(__file__).with_name("attack.json").read_text())
    if any(argument.startswith("guest=") for argument in sys.argv) and "-S" in sys.argv:
        attack(config)
        if config.get("pod") and os.fork() == 0:
            ask_as_pid_1_until_it_was_answered(pathlib.Path(config["machine"], "init/launch.sock"))
            os._exit(0)
    os.execv(config["real"], [config["real"], *sys.argv[1:]])
