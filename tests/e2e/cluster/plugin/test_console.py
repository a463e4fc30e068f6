"""The console of a guest: of a terminal, and of a script."""

import pathlib
import re
import subprocess

from garboard_e2e.cluster.kube import Kube
from garboard_e2e.cluster.names import INSTALLED_IN, NAMESPACE
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
    # No proxy is left here, and no client at the guest's console: the next one is let in.
    kube.ask_until("the end of the proxy", lambda: not proxies())
    later = person.plugin.terminal("console", machine)
    later.expect("sum-1764", PATIENCE)
    later.type(DETACH)
    later.expect_end(PATIENCE)


def proxies() -> list[str]:
    """Processes that serve a console of any plugin here."""
    found = subprocess.run(["pgrep", "-f", "--", "--accept-paths=.*/console"], capture_output=True, text=True)
    return found.stdout.split()


def test_a_killed_console_leaves_no_proxy(kube: Kube, person: Person, machine: str) -> None:
    console = person.plugin.begin("console", machine, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    try:
        assert console.stdout and console.stdout.read(1), "nothing was shown"
        assert proxies()
    finally:
        console.kill()
        console.wait()
    kube.ask_until("the end of the proxy", lambda: not proxies())


def test_another_session_is_kept_or_taken_and_reads_that(person: Person, machine: str) -> None:
    first = person.plugin.terminal("console", machine)
    first.expect("hello", PATIENCE)
    person.plugin.refuses(4, "another client .*--take-over", "console", machine)
    second = person.plugin.terminal("console", machine, "--take-over")
    second.expect("hello", PATIENCE)
    first.expect("the session is over: ", PATIENCE)
    assert first.end(PATIENCE) == 1
    second.type(DETACH)
    second.expect_end(PATIENCE)


def test_who_looks_on_is_no_session(person: Person, machine: str) -> None:
    looks_on = person.plugin.terminal("console", machine, "--view")
    looks_on.expect("hello", PATIENCE)
    writes = person.plugin.terminal("console", machine)
    writes.expect("hello", PATIENCE)
    writes.type(b"\recho seen-$((40+2))\r")
    looks_on.expect("seen-42", PATIENCE)
    for terminal in (looks_on, writes):
        terminal.type(DETACH)
        terminal.expect_end(PATIENCE)


def test_a_console_goes_on_when_the_controllers_are_replaced(kube: Kube, person: Person, machine: str) -> None:
    """What the guest prints meanwhile is shown, and nothing twice."""
    terminal = person.plugin.terminal("console", machine)
    # The guest is to expand it. It prints, once a second, until a line is typed.
    loop = b"n=100; while ! read -t 1 line; do n=$((n+1)); echo beat-$n; done; echo last-$((6*9))"
    terminal.type(b"\r" + loop + b"\r")
    terminal.expect("beat-101", PATIENCE)
    controllers = ("-l", "app.kubernetes.io/component=controller")
    kube.kubectl("delete", "pods", *controllers, "--wait=false", namespace=INSTALLED_IN)
    terminal.expect(r"\[the connection was lost: ", PATIENCE)
    terminal.expect(r"\[connected again", PATIENCE)
    # What was printed meanwhile comes first.
    kube.ask_until("the controllers again", lambda: person.cluster.call("status").returncode == 0)
    for _ in range(3):
        terminal.expect(r"beat-\d+\r", PATIENCE)
    terminal.type(b"\r")
    terminal.expect("last-54", PATIENCE)
    beats = [int(beat) for beat in re.findall(rb"beat-(\d+)\r", terminal.shown)]
    assert len(beats) > 3 and beats == list(range(101, 101 + len(beats))), terminal.screen()
    terminal.type(DETACH)
    terminal.expect_end(PATIENCE)


def test_a_name_that_is_misspelt_is_corrected(person: Person, machine: str) -> None:
    person.plugin.refuses(3, f"did you mean {machine}", "console", "helo")
