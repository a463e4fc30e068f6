"""A person at a terminal: `kubectl garboard console` types a command into the guest, sees the answer, and leaves.

  plugin_console.py NAMESPACE MACHINE
"""

import os
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "tests/e2e"))

from garboard_e2e.outcome import Failure  # noqa: E402
from garboard_e2e.terminal import DETACH, Terminal  # noqa: E402


def main(namespace, machine):
    command = ["kubectl", "garboard", "-n", namespace, "console", machine]
    person = Terminal(command, os.environ)
    # What was printed before is shown first; a prompt comes for every line.
    person.expect("hello", 60)
    person.type(b"\r")
    person.type(b"echo product-$((6*7))\r")
    person.expect("product-42", 60)
    person.type(DETACH)
    person.expect(f"detached; {namespace}/{machine} runs on", 20)
    if (code := person.end(20)) != 0:
        raise Failure(f"the command ended with {code}")
    print(f"{person.seconds():.1f} s")


try:
    main(*sys.argv[1:])
except Failure as failure:
    sys.exit(str(failure))
