"""One attempt by its name."""

import sys
from collections.abc import Callable

from .answers import failed
from .claims import another_user, impostor, lies, more, stranger, unordered
from .crowd import crowd
from .deaths import deaths, gone, late
from .descriptors import descriptors, lend
from .dials import holds, pretends
from .flood import flood
from .launcher import offers, serves
from .lingering import lingering
from .meeting import sleep

ATTEMPTS: list[Callable[..., None]] = [
    *(stranger, lies, unordered, more, impostor, another_user),
    *(descriptors, lend, lingering, flood, crowd, deaths, gone, late, sleep),
    *(offers, serves, pretends, holds),
]

if __name__ == "__main__":
    {attempt.__name__: attempt for attempt in ATTEMPTS}[sys.argv[1]](*sys.argv[2:])
    sys.exit(1 if failed else 0)
