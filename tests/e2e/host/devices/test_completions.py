"""Completions of a shell, and man pages."""

import subprocess
from collections.abc import Callable

from garboard_e2e.namespace import Namespace
from garboard_e2e.patience import PATIENCE

NAMESPACE = "completions"


def test_bash_completes_with_what_completions_prints(namespace: Namespace) -> None:
    script = namespace.run("completions", "bash")
    call = "COMP_WORDS=(garboard exp) COMP_CWORD=1; _garboard garboard exp garboard"
    ask = f'{call}; echo "${{COMPREPLY[@]}}"; complete -p garboard'
    # Not as an argument: it is longer than one may be.
    done = subprocess.run(["bash"], input=f"{script}\n{ask}\n", capture_output=True, text=True, timeout=PATIENCE)
    assert done.stdout.splitlines()[0] == "explain", f"bash does not complete: {done.stdout}{done.stderr}"
    assert "-F _garboard" in done.stdout, f"bash does not complete: {done.stdout}{done.stderr}"


def test_there_is_a_man_page_for_each_command(namespace: Namespace, note: Callable[[str], None]) -> None:
    pages = namespace.directory / "man"
    namespace.run("man", pages)
    commands = namespace.commands()
    for command in ["", *(f"-{command}" for command in commands)]:
        page = (pages / f"garboard{command}.1").read_text()
        assert ".TH" in page and ".SH NAME" in page, f"garboard{command}.1 is no man page"
    note(f"{len(commands)} commands")
