"""What the tables of check-refusals are made of: the command in directories of its own, and the judge of what it says."""

import copy
import json
import os
import pathlib
import re
import resource
import subprocess

from garboard import Garboard
from report import room
from terminal import Failure

IMAGE = "registry.garboard.dev/bad:1"
# What a program says to its author: a panic, a backtrace, a value as Rust prints it.
FOR_PROGRAMMERS = re.compile(
    r"panicked|RUST_BACKTRACE|stack backtrace|\bunwrap\b|\b(Some|None|Ok|Err)\(|\b(Os|Error|Custom) \{|\{ \w+: |\w::\w+\b(?!\])"
    r"|\b(serde|tokio|hyper|reqwest|oci_client)\b")
# Lines that are no complaint: who runs the guest's instructions, and progress.
ASIDE = re.compile(r"^garboard: (.*using TCG.*|warning: .*|runStrategy .*|looking for .*)$")
LINES, CHARACTERS = 4, 700
# Address space of a command and what it starts.
MOST_BYTES = 8 << 30

INSTANCE = {
    "apiVersion": "kubevirt.io/v1", "kind": "VirtualMachineInstance", "metadata": {"name": "refused"},
    "spec": {
        "domain": {"memory": {"guest": "64Mi"}, "devices": {"disks": [{"name": "root", "disk": {"bus": "virtio"}}]}},
        "terminationGracePeriodSeconds": 0,
        "volumes": [{"name": "root", "containerDisk": {"image": IMAGE, "imagePullPolicy": "IfNotPresent"}}],
    },
}


def instance(**changes):
    """A sound instance with fields replaced; `__` stands for a dot, and a number for a place in a list."""
    made = copy.deepcopy(INSTANCE)
    for path, value in changes.items():
        *way, last = [int(step) if step.isdigit() else step for step in path.split("__")]
        target = made
        for step in way:
            target = target.setdefault(step, {}) if isinstance(step, str) else target[step]
        target[last] = value
    return made


def with_volume(volume, name="data"):
    """A sound instance with one more disk, of this volume."""
    made = instance()
    made["spec"]["domain"]["devices"]["disks"].append({"name": name, "disk": {"bus": "virtio"}})
    made["spec"]["volumes"].append({"name": name} | volume)
    return made


def written(manifest):
    """A manifest as text: JSON is YAML."""
    if isinstance(manifest, (str, bytes)):
        return manifest.encode() if isinstance(manifest, str) else manifest
    documents = manifest if isinstance(manifest, list) else [manifest]
    return "\n---\n".join(json.dumps(document) for document in documents).encode()


class Bench(Garboard):
    """The command with directories of its own, and the count of what it did well."""

    def __init__(self, garboard, image, directory):
        super().__init__(garboard, directory, ["default/refused"])
        self.image, self.passed, self.failures, self.rows = image, 0, [], 0
        self.environment |= {"GARBOARD_CACHE_DIR": str(self.directory / "cache"), "HOME": str(self.directory)}
        self.environment.pop("DOCKER_CONFIG", None)

    def file(self, manifest):
        self.rows += 1
        path = self.directory / f"{self.rows}.yaml"
        path.write_bytes(written(manifest))
        return path

    def start(self, *arguments, prefix=(), **environment):
        return subprocess.Popen([*prefix, *self.argv(*arguments)], env=self.environment | environment,
                                stdout=subprocess.PIPE, stderr=subprocess.PIPE, stdin=subprocess.DEVNULL,
                                cwd=self.directory, preexec_fn=limited)

    def is_ours(self, thing):
        """All of these namespaces is; control groups are shared with the whole host."""
        return not thing.startswith("cgroup ") or super().is_ours(thing)

    def refuses(self, name, *patterns, manifest=None, run=None, code=2, options=(), seconds=60, prefix=(), **environment):
        """One row: the command must end with `code` and one clear sentence in which all the patterns are found."""
        arguments = run if run is not None else ["run", "--detach", *options, self.file(manifest)]
        self.judge(name, patterns, code, self.start(*arguments, prefix=prefix, **environment), seconds)

    def judge(self, name, patterns, code, process, seconds=60):
        try:
            ended, out, complaint = finish(process, seconds)
            complain_about(ended, out, complaint, code, patterns)
            self.passed += 1
            if os.environ.get("SHOW_SENTENCES"):
                print(f"        {name} [{ended}]: {complaint.strip()}", flush=True)
        except Failure as failure:
            self.failures.append(f"{name}: {failure}")
            print(f"        FAILED  {name}: {failure}", flush=True)
            self.stop_everything()

    def expect(self, name, holds, what=""):
        """A row that is no refusal."""
        if holds:
            self.passed += 1
        else:
            self.failures.append(f"{name}: {what}")
            print(f"        FAILED  {name}: {what}", flush=True)

    def stop_everything(self):
        for machine in self.runtime.glob("*/*"):
            self.call("stop", "--force", machine.relative_to(self.runtime), seconds=60)


def limited():
    """What goes wrong must not take this host with it."""
    resource.setrlimit(resource.RLIMIT_AS, (MOST_BYTES, MOST_BYTES))


def finish(process, seconds):
    """Exit code and what was said, within so many seconds."""
    try:
        out, complaint = process.communicate(timeout=seconds)
    except subprocess.TimeoutExpired as timeout:
        process.kill()
        process.communicate()
        raise Failure(f"still running after {seconds} s") from timeout
    return process.returncode, out.decode(errors="replace"), complaint.decode(errors="replace")


def complain_about(ended, out, complaint, code, patterns):
    """What a person would have complained about."""
    lines = [line for line in complaint.splitlines() if line.strip() and not ASIDE.match(line)]
    said = "\n".join(lines)
    if ended != code:
        raise Failure(f"ended with {ended}, not {code}; it said: {out}{complaint}")
    if not lines:
        raise Failure("said nothing")
    if len(lines) > LINES or any(len(line) > CHARACTERS for line in lines):
        raise Failure(f"more than a sentence: {said[:3000]}")
    if found := FOR_PROGRAMMERS.search(said):
        raise Failure(f"{found.group()!r} is for programmers: {said}")
    if any(not character.isprintable() for line in lines for character in line):
        raise Failure(f"unprintable characters: {said!r}")
    for pattern in patterns:
        if not re.search(pattern, said, re.S):
            raise Failure(f"does not say {pattern!r}: {said}")


class Mount:
    """A small file system of its own at a path below the bench; `options` as of mount(8)."""

    def __init__(self, path, options):
        self.path, self.options = pathlib.Path(path), options

    def __enter__(self):
        self.path.mkdir(parents=True, exist_ok=True)
        subprocess.run(["mount", "-t", "tmpfs", "-o", self.options, "tmpfs", str(self.path)], check=True)
        return self.path

    def __exit__(self, *_):
        subprocess.run(["umount", str(self.path)], check=True)


def in_room_of_its_own(garboard, image, table):
    """Plays a table with directories of its own and looks what it leaves on this host. Gives passed and failures."""
    with room("gbr-") as directory:
        bench = Bench(garboard, image, directory)
        try:
            table(bench)
            bench.expect_clean()
            bench.passed += 1
        except Exception as failure:  # whatever it is, the tables after this one are played
            bench.failures.append(f"{table.__name__}: {failure}")
            print(f"        FAILED  {table.__name__}: {failure}", flush=True)
            bench.stop_everything()
    return bench.passed, bench.failures
