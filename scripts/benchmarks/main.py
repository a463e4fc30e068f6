"""scripts/bench after everything is built: runs the sections in turn and prints markdown for docs/benchmarks.md."""

import argparse
import os
import pathlib
import platform
import signal
import subprocess
import sys
import tempfile
import time

REPOSITORY = pathlib.Path(__file__).resolve().parents[2]
sys.path.append(str(REPOSITORY / "tests/e2e"))

import figures  # noqa: E402
import memory  # noqa: E402
import start  # noqa: E402
import throughput  # noqa: E402
from host import MACHINE, NAMESPACE, Failure, Garboard, output  # noqa: E402

SECTIONS = ["start", "disk", "net", "pss", "explain"]
EXAMPLE = REPOSITORY / "examples/vm-hello.yaml"


def say(text):
    print(f"==> {text}", file=sys.stderr, flush=True)


def hello(directory):
    """The example under a name that is nobody else's, and with a share of the CPU that a busy host leaves it."""
    share = "        resources:\n          requests:\n            cpu: \"4\"\n"
    text = EXAMPLE.read_text().replace("      domain:\n", f"      domain:\n{share}")
    text = text.replace("metadata:\n  name: hello", f"metadata:\n  name: {MACHINE}\n  namespace: {NAMESPACE}")
    path = pathlib.Path(directory) / "hello.yaml"
    path.write_text(text)
    return str(path)


def explain(garboard, runs):
    """Wall time of the whole command, in milliseconds."""
    command = [garboard.program, "explain", "--reference", str(EXAMPLE)]
    times = []
    for _ in range(runs + 3):
        began = time.perf_counter()
        subprocess.run(command, env=garboard.environment, stdout=subprocess.DEVNULL, check=True)
        times.append((time.perf_counter() - began) * 1000)
    return times[3:]


def about(garboard):
    """Under what the figures were taken."""
    processors = [line.split(": ")[1].strip() for line in open("/proc/cpuinfo") if line.startswith("model name")]
    memory_mib = int(next(line.split()[1] for line in open("/proc/meminfo") if line.startswith("MemTotal"))) // 1024
    qemu = output(["qemu-system-x86_64", "--version"]).splitlines()[0]
    libvirt = output(["virsh", "--version"]).strip()
    return "\n".join([
        f"- {time.strftime('%Y-%m-%d %H:%M', time.gmtime())} UTC, load {os.getloadavg()[0]:.1f} before the run",
        f"- {len(processors)} × {processors[0]}, {memory_mib} MiB, Linux {platform.release()}",
        f"- {qemu} under TCG; libvirt {libvirt}; {output([garboard.program, '--version']).strip()}", ""])


def run_section(name, garboard, options):
    rounds = options.rounds or (3 if options.quick else 11)
    if name == "start":
        print(f"## start (n={rounds})\n\n{start.report(start.measure(garboard, hello(garboard.directory), rounds, say))}")
    elif name in ("disk", "net"):
        manifest = str(pathlib.Path(__file__).with_name("bench.yaml"))
        seen = throughput.measure(garboard, manifest, [name], rounds, options.load, say)
        print(f"## {name} (n={rounds})\n\n{throughput.report(seen)}")
    elif name == "pss":
        print(f"## pss\n\n{memory.report(memory.measure(garboard, hello(garboard.directory), say))}")
    elif name == "explain":
        times = explain(garboard, 10 if options.quick else 50)
        print(f"## explain (n={len(times)})\n\n{figures.summary(times)} ms\n")
    sys.stdout.flush()


def end_tidily(*_):
    raise Failure("it was told to end")


def main():
    parser = argparse.ArgumentParser(prog="scripts/bench", description=__doc__)
    parser.add_argument("--garboard", required=True)
    parser.add_argument("--image", required=True)
    parser.add_argument("--qemu", required=True, help="exec-clock")
    parser.add_argument("--load", required=True)
    parser.add_argument("--quick", action="store_true", help="three rounds")
    parser.add_argument("--rounds", type=int, help="11 where nothing else is said")
    parser.add_argument("sections", nargs="*", metavar="SECTION", help=" ".join(SECTIONS))
    options = parser.parse_args()
    for section in options.sections:
        if section not in SECTIONS:
            parser.error(f"unknown section '{section}': there are {' '.join(SECTIONS)}")
    signal.signal(signal.SIGTERM, end_tidily)
    # Short: a socket's path has at most 107 bytes.
    with tempfile.TemporaryDirectory(prefix="gbb-") as directory:
        os.chmod(directory, 0o755)  # the machine's own user must get through
        garboard = Garboard(options.garboard, options.image, directory, options.qemu)
        print(about(garboard))
        try:
            for section in options.sections or SECTIONS:
                run_section(section, garboard, options)
        except (Failure, KeyboardInterrupt) as failure:
            say(f"FAILED  {failure}")
            # Gone too when it was only just being made: the directory below is to be empty.
            if garboard.machine.exists():
                subprocess.run([garboard.program, "stop", "--force", f"{NAMESPACE}/{MACHINE}"], env=garboard.environment)
            sys.exit(1)


main()
