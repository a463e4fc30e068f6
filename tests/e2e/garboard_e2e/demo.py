"""Plays the person in front of scripts/demo: runs the hello VM on a terminal, types into the guest, leaves the console,
stops the machine, and looks whether anything is left of it.

  python3 -B -m garboard_e2e.demo GARBOARD IMAGE=PATH URL     (URL: something that answers outside of the guest's
  namespace)
"""

import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Mapping

from .leftovers import leftovers, wait_until_clean
from .outcome import Failure
from .places import EXAMPLES, temporary_directory
from .terminal import DETACH, Terminal

EXAMPLE = EXAMPLES / "vm-hello.yaml"


class Demo:
    """The person's command, with directories of its own."""

    def __init__(self, garboard: str, directory: str) -> None:
        own = {"GARBOARD_RUNTIME_DIR": f"{directory}/run", "GARBOARD_STATE_DIR": f"{directory}/state", "TERM": "dumb"}
        self.garboard, self.environment = garboard, dict(os.environ) | own

    def run(self, image: str, url: str) -> None:
        terminal = Terminal([self.garboard, "run", str(EXAMPLE), "--image", image], self.environment)
        address = terminal.expect(r"garboard-hello: address (\S+)\r", 60).group(1).decode()
        terminal.expect("# ", 30)
        ok(f"shell with the address {address} after {terminal.seconds():.1f} s")
        terminal.type(b"ip -4 addr show eth0\n")
        terminal.expect(rf"inet {re.escape(address)}/", 20)
        terminal.type(f"wget -q -O - {url}; echo 'wget ended with' $?\n".encode())
        terminal.expect("You have left the guest's network", 20)
        terminal.expect("wget ended with 0", 20)
        ok("the guest reaches the outside of its network namespace")
        terminal.type(DETACH)
        code = terminal.end(10)
        if code != 0:
            raise Failure(f"after Ctrl-] `garboard run` ended with {code}; the screen:\n{terminal.screen()}")
        if "hello" not in (machines := self.machines()):
            raise Failure(f"Ctrl-] took the machine with it: `garboard ps` prints {machines}")
        ok("Ctrl-] leaves the console and the machine running")

    def stop(self) -> None:
        began = time.monotonic()
        output([self.garboard, "stop", "hello"], self.environment)
        if json.loads(machines := self.machines()):
            raise Failure(f"`garboard stop` returned, and `garboard ps` prints {machines}")
        ok(f"garboard stop powers it down in {time.monotonic() - began:.1f} s")

    def machines(self) -> str:
        return output([self.garboard, "ps", "-o", "json"], self.environment)

    def stop_by_force(self) -> None:
        """After a failure."""
        subprocess.run([self.garboard, "stop", "--force", "hello"], capture_output=True, env=self.environment)


def ok(text: str) -> None:
    print(f"  ok  {text}", flush=True)


def output(command: list[str], environment: Mapping[str, str]) -> str:
    """What a garboard command prints; it must succeed."""
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60)
    if done.returncode != 0:
        raise Failure(f"`{' '.join(command[1:])}` ended with {done.returncode}:\n{done.stderr}")
    return done.stdout


def main() -> int:
    garboard, image, url = sys.argv[1:]
    with temporary_directory("gbd-") as directory:
        demo, before = Demo(garboard, str(directory)), leftovers(str(directory))
        try:
            demo.run(image, url)
            demo.stop()
            wait_until_clean(str(directory), before)
        except Failure as failure:
            demo.stop_by_force()
            print(f"  FAILED  {failure}\n0 passed, 1 failed", flush=True)
            return 1
    ok("nothing is left: process, link, namespace, nft table, mount, cgroup, file")
    print("1 passed, 0 failed")
    return 0


if __name__ == "__main__":
    sys.exit(main())
