"""scripts/bench after everything is built: runs the sections in turn and prints markdown for docs/benchmarks.md."""

import argparse
import os
import pathlib
import platform
import signal
import subprocess
import sys
import time
from typing import NoReturn

from ..outcome import Failure
from ..places import EXAMPLES, temporary_directory
from . import figures, memory, start, throughput
from .host import MACHINE, NAMESPACE, Garboard, output

SECTIONS = ["start", "disk", "net", "pss", "explain"]
EXAMPLE = EXAMPLES / "vm-hello.yaml"


def show(text: str) -> None:
    print(f"==> {text}", file=sys.stderr, flush=True)


def hello(directory: pathlib.Path) -> str:
    """The example under a name of its own, and with a share of the CPU that a busy host leaves it."""
    share = '        resources:\n          requests:\n            cpu: "4"\n'
    text = EXAMPLE.read_text().replace("      domain:\n", f"      domain:\n{share}")
    text = text.replace("metadata:\n  name: hello", f"metadata:\n  name: {MACHINE}\n  namespace: {NAMESPACE}")
    path = directory / "hello.yaml"
    path.write_text(text)
    return str(path)


def explain(garboard: Garboard, runs: int) -> list[float]:
    """Wall time of the whole command, in milliseconds."""
    command = [garboard.program, "explain", "--reference", str(EXAMPLE)]
    times = []
    for _ in range(runs + 3):
        began = time.perf_counter()
        subprocess.run(command, env=garboard.environment, stdout=subprocess.DEVNULL, check=True)
        times.append((time.perf_counter() - began) * 1000)
    return times[3:]


def about(garboard: Garboard) -> str:
    """Under what the figures were taken."""
    processors = [line.split(": ")[1] for line in lines_of("/proc/cpuinfo") if line.startswith("model name")]
    total = next(line.split()[1] for line in lines_of("/proc/meminfo") if line.startswith("MemTotal"))
    when = time.strftime("%Y-%m-%d %H:%M", time.gmtime())
    qemu = output(["qemu-system-x86_64", "--version"]).splitlines()[0]
    libvirt = output(["virsh", "--version"]).strip()
    version = output([garboard.program, "--version"]).splitlines()[0]
    lines = [
        f"- {when} UTC, load {os.getloadavg()[0]:.1f} before the run",
        f"- {len(processors)} × {processors[0]}, {int(total) // 1024} MiB, Linux {platform.release()}",
        f"- {qemu} under TCG; libvirt {libvirt}; {version}",
    ]
    return "\n".join([*lines, ""])


def lines_of(path: str) -> list[str]:
    return pathlib.Path(path).read_text().splitlines()


def run_section(name: str, garboard: Garboard, options: argparse.Namespace) -> None:
    rounds = options.rounds or (3 if options.quick else 11)
    if name == "start":
        found = start.report(start.measure(garboard, hello(garboard.directory), rounds, show))
        print(f"## start (n={rounds})\n\n{found}")
    elif name in ("disk", "net"):
        manifest = str(pathlib.Path(__file__).with_name("bench.yaml"))
        measured = throughput.Rounds(manifest, [name], rounds, options.load)
        print(f"## {name} (n={rounds})\n\n{throughput.report(throughput.measure(garboard, measured, show))}")
    elif name == "pss":
        print(f"## pss\n\n{memory.report(memory.measure(garboard, hello(garboard.directory), show))}")
    elif name == "explain":
        times = explain(garboard, 10 if options.quick else 50)
        print(f"## explain (n={len(times)})\n\n{figures.summary(times)} ms\n")
    sys.stdout.flush()


def end_tidily(*_: object) -> NoReturn:
    raise Failure("ended by a signal")


def wanted() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="scripts/bench", description=__doc__)
    parser.add_argument("--garboard", required=True)
    parser.add_argument("--image", required=True)
    parser.add_argument("--qemu", required=True, help="exec-clock")
    parser.add_argument("--load", required=True)
    parser.add_argument("--quick", action="store_true", help="three rounds")
    parser.add_argument("--rounds", type=int, help="11 by default")
    parser.add_argument("sections", nargs="*", metavar="SECTION", help=" ".join(SECTIONS))
    options = parser.parse_args()
    for section in options.sections:
        if section not in SECTIONS:
            parser.error(f"unknown section '{section}': there are {' '.join(SECTIONS)}")
    return options


def main() -> int:
    options = wanted()
    signal.signal(signal.SIGTERM, end_tidily)
    with temporary_directory("gbb-") as directory:
        garboard = Garboard(options.garboard, options.image, directory, options.qemu)
        print(about(garboard))
        try:
            for section in options.sections or SECTIONS:
                run_section(section, garboard, options)
        except (Failure, KeyboardInterrupt) as failure:
            show(f"FAILED  {failure}")
            # Gone too when it was only just being made: the directory below is to be empty.
            if garboard.machine.exists():
                garboard.stop_by_force()
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
