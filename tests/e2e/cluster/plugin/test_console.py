"""The console of a guest: of a terminal, and of a script."""

import pathlib
import subprocess

from garboard_e2e.cluster.kube import Kube
from garboard_e2e.cluster.names import NAMESPACE
from garboard_e2e.cluster.person import Person
from garboard_e2e.patience import PATIENCE
from garboard_e2e.terminal import DETACH


def test_a_terminal_types_a_command_and_shows_the_answer(person: Person, machine: str) -> None:
    terminal = person.plugin.terminal("console", machine)
    # What was printed before is shown first; a prompt comes for every line.
    terminal.expect("hello", PATIENCE)
    terminal.type(b"\r")
    terminal.type(b"echo product-$((6*7))\r")
    terminal.expect("product-42", PATIENCE)
    terminal.type(DETACH)
    terminal.expect(f"detached; {NAMESPACE}/{machine} runs on", PATIENCE)
    terminal.expect_end(PATIENCE)


def test_a_script_pipes_a_command_in(kube: Kube, person: Person, machine: str, directory: pathlib.Path) -> None:
    shown = directory / "shown"
    with shown.open("w") as out:
        console = person.plugin.begin("console", machine, stdin=subprocess.PIPE, stdout=out, stderr=subprocess.STDOUT)
    try:
        assert console.stdin
        # The guest is to expand it.
        console.stdin.write("\necho sum-$((42*42))\n")
        console.stdin.flush()
        kube.ask_until("the answer of the guest", lambda: "sum-1764" in shown.read_text(errors="replace"))
        console.stdin.close()
        assert console.poll() is None, "it should go on showing what the guest prints"
    finally:
        console.terminate()
        console.wait()
    # No client is left at the guest's console.
    relay = ["pgrep", "-f", "[g]arboard-launcher --connect"]
    node = person.node_of(machine)
    kube.ask_until("the end of the relay in the pod", lambda: not kube.inside(node, *relay, check=False))


def test_a_name_that_is_misspelt_is_corrected(person: Person, machine: str) -> None:
    person.plugin.refuses(3, f"did you mean {machine}", "console", "helo")
