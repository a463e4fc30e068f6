"""Bad input: the command in directories of its own, and the rules for its error messages."""

import contextlib
import copy
import dataclasses
import json
import pathlib
import re
import resource
import subprocess
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from .command import Argument, Garboard
from .outcome import Failure

IMAGE = "registry.garboard.dev/bad:1"
# What a program prints for its author: a panic, a backtrace, a value as Rust prints it.
FOR_PROGRAMMERS = re.compile(
    r"panicked|RUST_BACKTRACE|stack backtrace|\bunwrap\b|\b(Some|None|Ok|Err)\(|\b(Os|Error|Custom) \{|\{ \w+: "
    r"|\w::\w+\b(?!\])|\b(serde|tokio|hyper|reqwest|oci_client)\b"
)
# Lines that are no error message: who runs the guest's instructions, and progress.
ASIDE = re.compile(r"^garboard: (.*using TCG.*|warning: .*|runStrategy .*|looking for .*)$")
LINES, CHARACTERS = 4, 700
# Address space of a command and what it starts.
MOST_BYTES = 8 << 30

Object = dict[str, Any]
Manifest = str | bytes | Object | Sequence[Object] | Callable[[], str]

INSTANCE: Object = {
    "apiVersion": "kubevirt.io/v1",
    "kind": "VirtualMachineInstance",
    "metadata": {"name": "refused"},
    "spec": {
        "domain": {
            "memory": {"guest": "64Mi"},
            "devices": {"disks": [{"name": "root", "disk": {"bus": "virtio"}}]},
        },
        "terminationGracePeriodSeconds": 0,
        "volumes": [{"name": "root", "containerDisk": {"image": IMAGE, "imagePullPolicy": "IfNotPresent"}}],
    },
}


def instance(**changes: Any) -> Object:
    """A sound instance with fields replaced; `__` stands for a dot, and a number for a place in a list."""
    made = copy.deepcopy(INSTANCE)
    for path, value in changes.items():
        *way, last = [int(step) if step.isdigit() else step for step in path.split("__")]
        target: Any = made
        for step in way:
            target = target.setdefault(step, {}) if isinstance(step, str) else target[step]
        target[last] = value
    return made


def with_volume(volume: Object, name: str = "data") -> Object:
    """A sound instance with one more disk, of this volume."""
    made = instance()
    made["spec"]["domain"]["devices"]["disks"].append({"name": name, "disk": {"bus": "virtio"}})
    made["spec"]["volumes"].append({"name": name} | volume)
    return made


def written(manifest: Manifest) -> bytes:
    """A manifest as text: JSON is YAML."""
    if callable(manifest):
        manifest = manifest()
    if isinstance(manifest, str):
        return manifest.encode()
    if isinstance(manifest, bytes):
        return manifest
    documents = [manifest] if isinstance(manifest, dict) else manifest
    return "\n---\n".join(json.dumps(document) for document in documents).encode()


@dataclasses.dataclass(frozen=True)
class Bad:
    """What the command is given, and patterns of its error message. In arguments, {nothing} stands for an image of
    nothing, {directory} for the bench's directory."""

    patterns: tuple[str, ...]
    manifest: Manifest = ""
    # In place of `run --detach` with options and manifest.
    run: tuple[str, ...] = ()
    options: tuple[str, ...] = ()
    # With an image for the machine's disk.
    has_image: bool = False
    code: int = 2
    seconds: float = 60
    prefix: tuple[str, ...] = ()
    environment: Mapping[str, str] = dataclasses.field(default_factory=dict)


class Bench(Garboard):
    """The command with directories of its own."""

    def __init__(self, programs: pathlib.Path, image: str, directory: pathlib.Path) -> None:
        super().__init__(programs, directory, ["default/refused"])
        self.image, self.files = image, 0
        self.environment |= {"GARBOARD_CACHE_DIR": str(self.directory / "cache"), "HOME": str(self.directory)}
        self.environment.pop("DOCKER_CONFIG", None)
        (self.directory / "cache").mkdir()
        # A guest that does nothing, for rows that get as far as starting it.
        self.nothing = self.directory / "nothing.img"
        self.nothing.write_bytes((b"\x00" * 510 + b"\x55\xaa") * 2048)

    def file(self, manifest: Manifest) -> pathlib.Path:
        self.files += 1
        path = self.directory / f"{self.files}.yaml"
        path.write_bytes(written(manifest))
        return path

    def start(self, *arguments: Argument, prefix: Sequence[str] = (), **environment: str) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            [*prefix, *self.argv(*arguments)],
            env=self.environment | environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            stdin=subprocess.DEVNULL,
            cwd=self.directory,
            preexec_fn=limited,
        )

    def is_ours(self, thing: str) -> bool:
        """All of these namespaces is; control groups are shared with the whole host."""
        return not thing.startswith("cgroup ") or super().is_ours(thing)

    def begin_bad(self, bad: Bad) -> subprocess.Popen[bytes]:
        places = {"nothing": self.nothing, "directory": self.directory}
        image = ["--image", f"{IMAGE}={self.nothing}"] if bad.has_image else []
        options = [*image, *(option.format(**places) for option in bad.options)]
        arguments: list[Argument] = [argument.format(**places) for argument in bad.run]
        if not arguments:
            arguments = ["run", "--detach", *options, self.file(bad.manifest)]
        environment = {name: value.format(**places) for name, value in bad.environment.items()}
        return self.start(*arguments, prefix=bad.prefix, **environment)

    def refuses(self, bad: Bad) -> None:
        """The command must end with the code and one clear error message in which all the patterns are found."""
        self.judge(self.begin_bad(bad), bad.patterns, bad.code, bad.seconds)

    def judge(self, process: subprocess.Popen[bytes], patterns: Sequence[str], code: int, seconds: float = 60) -> None:
        try:
            check_error_message(finish(process, seconds), code, patterns)
        except Failure:
            self.stop_everything()
            raise

    def stop_everything(self) -> None:
        for machine in self.runtime.glob("*/*"):
            self.call("stop", "--force", str(machine.relative_to(self.runtime)), seconds=60)


def limited() -> None:
    """What goes wrong must not take this host with it."""
    resource.setrlimit(resource.RLIMIT_AS, (MOST_BYTES, MOST_BYTES))


@dataclasses.dataclass(frozen=True)
class Ended:
    """How a command ended and what it printed."""

    code: int
    stdout: str
    stderr: str


def finish(process: subprocess.Popen[bytes], seconds: float) -> Ended:
    """Within so many seconds."""
    try:
        stdout, stderr = process.communicate(timeout=seconds)
    except subprocess.TimeoutExpired as timeout:
        process.kill()
        process.communicate()
        raise Failure(f"still running after {seconds} s") from timeout
    return Ended(process.returncode, stdout.decode(errors="replace"), stderr.decode(errors="replace"))


def check_error_message(ended: Ended, code: int, patterns: Sequence[str]) -> None:
    """Checks the error message as a user would read it."""
    lines = [line for line in ended.stderr.splitlines() if line.strip() and not ASIDE.match(line)]
    message = "\n".join(lines)
    if ended.code != code:
        raise Failure(f"ended with {ended.code}, not {code}; it printed: {ended.stdout}{ended.stderr}")
    if not lines:
        raise Failure("printed no error message")
    if len(lines) > LINES or any(len(line) > CHARACTERS for line in lines):
        raise Failure(f"too long for an error message: {message[:3000]}")
    if found := FOR_PROGRAMMERS.search(message):
        raise Failure(f"{found.group()!r} is for programmers: {message}")
    if any(not character.isprintable() for line in lines for character in line):
        raise Failure(f"unprintable characters: {message!r}")
    for pattern in patterns:
        if not re.search(pattern, message, re.S):
            raise Failure(f"the error message lacks {pattern!r}: {message}")
    print(f"[{ended.code}] {ended.stderr.strip()}")  # noqa: T201 pytest's -rP shows every error message


@contextlib.contextmanager
def mounted(path: pathlib.Path, options: str) -> Iterator[pathlib.Path]:
    """A small file system of its own at a path below the bench; `options` as of mount(8)."""
    path.mkdir(parents=True, exist_ok=True)
    subprocess.run(["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(path)], check=True)
    try:
        yield path
    finally:
        subprocess.run(["umount", str(path)], check=True)


def executable(path: pathlib.Path, text: str) -> str:
    path.write_text(text)
    path.chmod(0o755)
    return str(path)


def files_kept(bench: Bench) -> list[pathlib.Path]:
    """What is in the image cache and larger than notes about it."""
    everything = (bench.directory / "cache/images").rglob("*")
    return [path for path in everything if path.is_file() and path.stat().st_size > 4096]
