"""Guests that count aloud: whether one stood still, or was started again, while something failed."""

import contextlib
import re
import secrets
from collections.abc import Iterator

from ..outcome import Failure
from .kube import Kube


class Counter:
    """A guest that prints the next number on its console each second."""

    def __init__(self, kube: Kube, name: str) -> None:
        self.kube, self.name, self.mark = kube, name, secrets.token_hex(4)
        kube.has_shell(name)
        loop = f"while :; do n=$((n+1)); echo {self.mark}-$n; sleep 1; done"
        kube.shell(name, f"n=0; {{ {loop} & }}")

    def numbers(self) -> list[int]:
        return [int(number) for number in re.findall(rf"{self.mark}-(\d+)\r?\n", self.kube.serial(self.name))]

    def goes_on(self) -> None:
        """Waits for more numbers; it has missed none."""
        before = len(self.numbers())
        self.kube.ask_until(f"more than {before} numbers of {self.name}", lambda: len(self.numbers()) > before)
        if (found := self.numbers()) != list(range(1, len(found) + 1)):
            raise Failure(f"{self.name} has counted {found}")

    def stop(self) -> None:
        self.kube.shell(self.name, "kill $!")


@contextlib.contextmanager
def counting(kube: Kube, *names: str) -> Iterator[list[Counter]]:
    """These machines, from their consoles. In the end all have counted on."""
    counters = [Counter(kube, name) for name in names]
    yield counters
    for counter in counters:
        counter.goes_on()
        counter.stop()
