"""A person at a terminal: `kubectl garboard console` types a command into the guest, sees the answer, and leaves.

  plugin_console.py NAMESPACE MACHINE
"""

import os
import sys

import terminal


def main(namespace, machine):
    command = ["kubectl", "garboard", "-n", namespace, "console", machine]
    person = terminal.Terminal(command, os.environ)
    # What was printed before is shown first; a prompt comes for every line.
    person.expect("hello", 60)
    person.type(b"\r")
    person.type(b"echo product-$((6*7))\r")
    person.expect("product-42", 60)
    person.type(terminal.DETACH)
    person.expect(f"detached; {namespace}/{machine} runs on", 20)
    if (code := person.end(20)) != 0:
        raise terminal.Failure(f"the command ended with {code}")
    print(f"{person.seconds():.1f} s")


try:
    main(*sys.argv[1:])
except terminal.Failure as failure:
    sys.exit(str(failure))
