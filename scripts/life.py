"""One machine on a host of its own, for the checks of its life: the command with its own directories, the machine's four
processes, and the frame in which checks are run and counted."""

import json
import os
import pathlib
import re
import signal
import subprocess
import tempfile
import time
import uuid

from terminal import Failure, leftovers

IMAGE = "registry.garboard.dev/hello:1"
# From which the command makes the UID of a machine that has none (cli/src/subject.rs).
IDENTITY_NAMESPACE = uuid.UUID("67617262-6f61-7264-8000-000000000001")
# Generous: checks run beside compilers, and guests are emulated.
PATIENCE = int(os.environ.get("GARBOARD_PATIENCE", "120"))


def link_of(uid):
    """The host's link of a machine (net/src/names.rs)."""
    fingerprint = 0xCBF29CE484222325
    for byte in uid.encode():
        fingerprint = (fingerprint ^ byte) * 0x100000001B3 % 2**64
    return f"gb{fingerprint >> 12:013x}"


class Host:
    """The command with directories of its own, and one machine."""

    def __init__(self, garboard, image, directory):
        self.garboard, self.image, self.directory = garboard, image, pathlib.Path(directory)
        # Others may run machines here at the same time.
        self.name = f"life-{os.getpid()}"
        self.uid = str(uuid.uuid5(IDENTITY_NAMESPACE, f"default/{self.name}"))
        self.environment = os.environ | {"GARBOARD_RUNTIME_DIR": f"{directory}/run",
                                         "GARBOARD_STATE_DIR": f"{directory}/state"}
        self.machine = self.directory / "run/default" / self.name
        self.shared = self.machine / "shared"
        self.before = leftovers(str(directory))

    def call(self, *arguments, **options):
        return subprocess.run([self.garboard, *arguments], env=self.environment, capture_output=True, text=True,
                              timeout=PATIENCE, stdin=subprocess.DEVNULL, **options)

    def run(self, *arguments, fails=False):
        done = self.call(*arguments)
        if (done.returncode != 0) != fails:
            raise Failure(f"garboard {' '.join(arguments)} ended with {done.returncode}: {done.stdout}{done.stderr}")
        return done.stdout + done.stderr

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
            # On a busy host the emulated timer is late, and the kernel would give up on it.
            arguments = f"console=ttyS0 quiet cryptomgr.notests no_timer_check garboard.test={tests} {words}"
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
        self.run("run", "--detach", "--accel", "tcg", "--image", f"{IMAGE}={image or self.image}", path)

    def told(self):
        """The status, as soon as there is a supervisor to tell it: one that was killed has a successor a moment later."""
        return self.wait("a supervisor that answers", self.status)

    def status(self):
        machines = json.loads(self.run("ps", "-o", "json"))
        return machines[0].get("status") if machines else None

    def wait(self, what, holds, seconds=PATIENCE):
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            if found := holds():
                return found
            time.sleep(0.05)
        raise Failure(f"{what}: not within {seconds} s; the serial log ends with {self.serial()[-300:]!r}; {self.circumstances()}")

    def circumstances(self):
        """What there is of the machine, for whoever reads of a failure that does not come again."""
        programs = ("garboard", "garboard-launcher", "garboard-init", "qemu-system")
        alive = {program: [self.processor_time(each) for each in self.processes(program)] for program in programs}
        told = subprocess.run([self.garboard, "ps", "-o", "json"], env=self.environment, capture_output=True, text=True, check=False)
        there = sorted(path.name for path in self.shared.glob("*"))
        return f"processor seconds of its processes {alive}; files {there}; `garboard ps` says {told.stdout.strip()[-600:]}"

    @staticmethod
    def processor_time(process):
        try:
            fields = pathlib.Path(f"/proc/{process}/stat").read_text().rpartition(") ")[2].split()
        except OSError:
            return None
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def serial(self):
        try:
            return (self.shared / "serial0.log").read_bytes()
        except OSError:
            return b""

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
            marks = [str(self.shared), f"{self.machine}/order.json", f"guest=default_{self.name}"]
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
        directory = self.directory / "state/records/default" / self.name
        return sorted(directory.iterdir()) if directory.exists() else []

    def recorded_end(self):
        self.wait("the end of the machine", lambda: not self.machine.exists())
        return json.loads((self.records()[-1] / "journal.json").read_text())["ended"]

    def is_ours(self, thing):
        kind, _, name = thing.partition(" ")
        if kind == "link":
            return link_of(self.uid) in thing
        if kind in ("mount", "cgroup") or thing.startswith("nft table"):
            return any(mark in name for mark in (str(self.directory), self.name, self.uid))
        return True

    def wait_until_clean(self, seconds=30):
        """Until nothing of this machine is there any more; what ends last ends shortly after the command that asked."""
        end = time.monotonic() + seconds
        while left := {thing for thing in leftovers(str(self.directory)) - self.before if self.is_ours(thing)}:
            if time.monotonic() > end:
                raise Failure("left behind:\n" + "\n".join(f"  {thing}" for thing in sorted(left)))
            time.sleep(0.1)


def expect_end(host, cause, word=""):
    """The machine ends with this cause, and `word` in its sentence."""
    ended = host.recorded_end()
    if ended["cause"]["cause"] != cause or word not in ended["sentence"]:
        raise Failure(f"the run should have ended as {cause}{word and f' with {word!r}'}, not {ended}")
    return ended


def run_checks(garboard, image, checks):
    """Runs each (name, function of a Host) on a host of its own; prints the sums and answers with the exit code."""
    passed = failed = 0
    for name, check in checks:
        # For whoever mends one of them.
        if os.environ.get("ONLY", "") not in name:
            continue
        # Short: a socket's path has at most 107 bytes.
        with tempfile.TemporaryDirectory(prefix="gbl-") as directory:
            os.chmod(directory, 0o755)  # the machine's own user must get through
            host, began = Host(garboard, image, directory), time.monotonic()
            try:
                note = check(host)
                host.wait_until_clean()
                passed += 1
                print(f"  ok  {name}{note and f': {note}' or ''} ({time.monotonic() - began:.1f} s)", flush=True)
            except (Failure, ValueError, TypeError, KeyError, IndexError, OSError, subprocess.SubprocessError) as failure:
                failed += 1
                print(f"  FAILED  {name}: {type(failure).__name__}: {failure}", flush=True)
                if keep := os.environ.get("GARBOARD_KEEP"):
                    subprocess.run(["cp", "-a", directory, f"{keep}/{name.replace(' ', '-')}"], check=False)
                for program in ("garboard-launcher", "garboard"):
                    host.kill(program, signal.SIGCONT)
                subprocess.run([garboard, "stop", "--force", host.name], env=host.environment, capture_output=True, check=False)
    print(f"{passed} passed, {failed} failed")
    return 1 if failed else 0
