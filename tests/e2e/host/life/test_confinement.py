"""What confines QEMU, PID 1 and the supervisor, and what an attacker in their places would get."""

import collections
import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
from collections.abc import Callable

from garboard_e2e import names
from garboard_e2e.hostile.taken_over import ATTACKER
from garboard_e2e.leftovers import MACHINE_IDS
from garboard_e2e.machine import Machine
from garboard_e2e.patience import PATIENCE
from garboard_e2e.processes import status_of

NO_CAPABILITY = "0" * 16
# What QEMU may hold, and what for. Everything it was not born with it cannot get.
DESCRIPTORS = {
    r"/dev/null": "standard input",
    r"(.*/init)?/qemu\.log": "standard output and error",
    r"(.*/supervisor)?/serial0\.log": "the console's log",
    r".*/images/.*/hello\.img|.*/hello\.img": "the container disk",
    r".*/images/files/sha256/[0-9a-f]{64}": "kernel and initrd",
    r".*/scratch/.*": "the overlay, without a name",
    r"/dev/net/tun": "its tap",
    r"/dev/vhost-net": "the tap's accelerator",
    r"/dev/(urandom|random)": "random numbers",
    r"socket:.*": "monitors, console, agent",
    r"anon_inode:\[(eventfd|eventpoll|signalfd)\]": "its main loop",
    r"/memfd:.*": "guest memory",
    r"pipe:.*": "its threads",
}
ROOT = {"bin", "dev", "etc", "lib", "lib64", "sbin", "proc", "tmp", "usr", "var", "sys"}
# Links that every network namespace has where the kernel has these drivers built in.
FALLBACK_LINKS = ("sit", "tunl", "ip6tnl")


def namespace_of(process: int | str, kind: str) -> str:
    return os.readlink(f"/proc/{process}/ns/{kind}")


def expect_no_power(process: int, what: str, seccomp: str) -> None:
    status = status_of(process)
    wanted = {
        "Seccomp": seccomp,
        "NoNewPrivs": "1",
        **dict.fromkeys(["CapEff", "CapPrm", "CapInh", "CapAmb"], NO_CAPABILITY),
    }
    for field, value in wanted.items():
        assert status[field] == value, f"{what}'s {field} is {status[field]}, not {value}"
    for field in ("Uid", "Gid"):
        is_a_machines = all(int(number) in MACHINE_IDS for number in status[field].split())
        assert is_a_machines, f"{what}'s {field} is {status[field]}, which is not one of a machine"
    assert "0" not in status["Groups"].split(), f"{what} is in root's group: {status['Groups']}"
    for kind in ["mnt", "pid", "ipc", "uts", "net"]:
        is_shared = namespace_of(process, kind) == namespace_of("self", kind)
        assert not is_shared, f"{what} shares its {kind} namespace with the host"


def expect_own_root(process: int, what: str) -> None:
    """Looked at from outside: the process's root, and its mounts."""
    root = pathlib.Path(f"/proc/{process}/root")
    assert not (extra := set(os.listdir(root)) - ROOT), f"{what}'s root shows {sorted(extra)}"
    extra = set(os.listdir(root / "etc")) - {"ld.so.cache", "localtime"}
    assert not extra, f"{what}'s /etc shows {sorted(extra)}"
    for mount in pathlib.Path(f"/proc/{process}/mountinfo").read_text().splitlines():
        point, options = mount.split()[4:6]
        flags = options.split(",")
        is_writable_file_system = "rw" in flags and not point.startswith(("/dev", "/proc"))
        may_change_user = is_writable_file_system and "nosuid" not in options
        assert not may_change_user, f"{what} may use set-user-ID programs below {point} ({options})"
        assert not point.startswith("/usr") or "ro" in flags, f"{what} may write to {point}"


def expect_supervisor_apart(machine: Machine) -> None:
    """Beside its machine, not in it, with an end to what it may use; without a network."""
    supervisor = machine.only(names.SUPERVISOR)
    for kind in ["ipc", "uts", "net"]:
        others = [namespace_of(process, kind) for process in ("self", machine.qemu)]
        is_shared = namespace_of(supervisor, kind) in others
        assert not is_shared, f"the supervisor shares its {kind} namespace with the host or QEMU"
    lines = pathlib.Path(f"/proc/{supervisor}/net/dev").read_text().splitlines()[2:]
    links = [line.split(":")[0].strip() for line in lines]
    own = [link for link in links if not link.startswith(FALLBACK_LINKS)]
    assert own == ["lo"], f"the supervisor's network has {lines}"
    expect_limited(supervisor, f"/garboard/default_{machine.name}_supervisor")


def expect_limited(process: int, group: str) -> None:
    """By its control group, of version 1 or 2, in memory and processes."""
    lines = pathlib.Path(f"/proc/{process}/cgroup").read_text().splitlines()
    groups = {controllers: path for _, controllers, path in (line.split(":") for line in lines)}
    for controller, files in {
        "memory": ("memory.max", "memory.limit_in_bytes"),
        "pids": ("pids.max", "pids.max"),
    }.items():
        is_version_1 = controller in groups
        path = groups[controller if is_version_1 else ""]
        assert path.endswith(group), f"the process is in {groups}"
        place = pathlib.Path("/sys/fs/cgroup", controller if is_version_1 else "", path.lstrip("/"))
        assert place.joinpath(files[is_version_1]).read_text().strip().isdecimal(), f"{place} has no limit"


def purposes_of_descriptors(qemu: int) -> collections.Counter[str]:
    found: collections.Counter[str] = collections.Counter()
    for descriptor in pathlib.Path(f"/proc/{qemu}/fd").iterdir():
        try:
            target = os.readlink(descriptor)
        except FileNotFoundError:  # it was closed meanwhile
            continue
        purpose = next((purpose for pattern, purpose in DESCRIPTORS.items() if re.fullmatch(pattern, target)), None)
        assert purpose, f"QEMU holds {target} at {descriptor.name}, which was not expected"
        found[purpose] += 1
    return found


def test_qemu_pid_1_and_the_supervisor_are_confined(machine: Machine, note: Callable[[str], None]) -> None:
    machine.start()
    machine.wait_for_shell()
    qemu, init = machine.qemu, machine.only(names.INIT)
    expect_supervisor_apart(machine)
    expect_no_power(qemu, "QEMU", seccomp="2")
    expect_no_power(init, "PID 1", seccomp=status_of(init)["Seccomp"])
    for process, what in ((qemu, "QEMU"), (init, "PID 1")):
        expect_own_root(process, what)
    in_namespaces = status_of(init)["NSpid"].split()
    assert in_namespaces[-1] == "1", f"PID 1 is {in_namespaces} in its namespaces"
    assert len(status_of(qemu)["NSpid"].split()) >= 2, "QEMU is in no PID namespace of its own"
    found = purposes_of_descriptors(qemu)
    machine.expect_private()
    machine.run("stop", "--force", machine.name)
    machine.expect_end("forceStopped")
    machine.expect_private()
    note(", ".join(f"{count} {purpose}" for purpose, count in sorted(found.items())))


def test_a_qemu_that_was_taken_over_gets_nothing(machine: Machine, note: Callable[[str], None]) -> None:
    victim, place = machine.directory / "victim", machine.directory / "bin"
    victim.write_text("untouched")
    place.mkdir()
    qemu = pathlib.Path(shutil.copy(ATTACKER, place / "qemu-system-x86_64"))
    qemu.chmod(0o755)
    # What its root shows, and the directory of the program itself.
    shown = r"/|/(tmp|sys|lib|lib64|bin|sbin)|/(proc|dev|usr)(/.*)?|/etc/(ld\.so\.cache|localtime)|"
    attack = {
        "machine": str(machine.machine),
        "victim": str(victim),
        "others": [str(machine.runtime), str(machine.state), str(machine.directory / "vm.json")],
        "mounts": shown + re.escape(str(place)),
        "real": "/usr/bin/qemu-system-x86_64",
    }
    (place / "attack.json").write_text(json.dumps(attack))
    options = ["--accel", "tcg", "--qemu", str(qemu), "--image", machine.image_option]
    machine.run("run", "--detach", *options, machine.manifest())
    # It went on as the real one.
    machine.wait_for_shell()
    machine.run("stop", machine.name)
    machine.expect_end("stoppedGracefully")
    log = (machine.records()[-1] / "qemu.log").read_text()
    refused = re.findall(r"^attack: refused: (.*)$", log, re.M)
    assert "attack: over" in log, f"the attack did not take place: {log[-2000:]}"
    assert len(refused) >= 120, f"the attack did not take place: {log[-2000:]}"
    done = re.findall(r"^attack: DONE: (.*)$", log, re.M)
    assert not done, f"QEMU could do what it should not: {done}"
    assert victim.read_text() == "untouched", "a file of root's was written"
    note(f"{len(refused)} attempts refused")


# What the machine's user may leave in its own directories for a reader who is root.
PLANT = """
import os, pathlib, sys
machine, victim, secret = map(pathlib.Path, sys.argv[1:])
for name, target in {"supervisor/journal.json": "/dev/zero", "supervisor/journal.json.new": victim,
                     "supervisor/serial0.log": secret, "supervisor/control.sock": victim, "init/qemu.log": secret,
                     "init/exit.json.new": victim, "supervisor/qmp.jsonl": secret}.items():
    (machine / name).unlink(missing_ok=True)
    (machine / name).symlink_to(target)
(machine / "supervisor/plan.json").unlink()
os.mkfifo(machine / "supervisor/plan.json")
for name in ("order/vmi.json.new", "journal.json.new", "launcher.log", "launch-request.json.new"):
    try:
        os.symlink(victim, machine / name)
    except OSError:
        continue
    sys.exit(f"{name} is in a directory of the machine's user")
"""


def test_what_the_machines_user_leaves_is_not_followed(machine: Machine) -> None:
    victim, secret = machine.directory / "victim", machine.directory / "secret"
    for path, text in ((victim, "untouched"), (secret, "root's secret")):
        path.write_text(text)
        path.chmod(0o600)
    machine.start()
    machine.wait_for_shell()
    user = machine.supervisor.stat().st_uid
    assert user in MACHINE_IDS, f"the machine's user is {user}"
    shim = machine.only(names.SHIM)
    os.kill(shim, signal.SIGSTOP)
    machine.kill(names.SUPERVISOR)
    # Not the interpreter of this test: that may be in root's home.
    plant = ["/usr/bin/python3", "-c", PLANT, *map(str, (machine.machine, victim, secret))]
    subprocess.run(plant, check=True, user=user, group=user, extra_groups=[], cwd="/", timeout=PATIENCE)
    os.kill(shim, signal.SIGKILL)
    done = [machine.call("ps"), machine.call("logs", machine.name)]
    done += [machine.call("logs", "--part", part, machine.name) for part in ("serial", "qemu", "plan", "qmp")]
    machine.run("stop", "--force", machine.name)
    machine.expect_end("forceStopped")
    shown = "".join(one.stdout + one.stderr for one in done)
    assert "secret" not in shown, "`garboard logs` showed root's file"
    for kept in machine.records()[-1].iterdir():
        assert "root's secret" not in kept.read_text(errors="replace"), f"root's file is in the record as {kept.name}"
    assert victim.read_text() == "untouched", "a file of root's was written"
