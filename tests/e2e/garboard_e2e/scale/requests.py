"""What was asked of the API server for machines that were started, by its audit log. Pure."""

import collections
import re
from collections.abc import Callable, Iterable, Sequence

from ..cluster import audit
from ..cluster.names import NAMESPACE

# Of which lists of everything count, beside what is asked in the namespace of the machines.
KINDS = ("pods", "virtualmachines", "virtualmachineinstances")
# Names of machines as they are started here, alone or within those of their pods and events.
MACHINE = re.compile(r"(?:virt-launcher-)?([a-z]+-\d+)(?:$|[-.])")

# The component that a request is from, or None.
Asker = Callable[[audit.Event], str | None]


class Requests:
    """How often each component did what, and for which machine."""

    def __init__(self, events: Iterable[audit.Event], asker: Asker) -> None:
        self.counted: collections.Counter[str] = collections.Counter()
        self.by_machine: dict[str, collections.Counter[str]] = collections.defaultdict(collections.Counter)
        for event in events:
            if (component := asker(event)) and counts(event):
                what = f"{component}: {event['verb']} {audit.resource(event)}"
                self.counted[what] += 1
                if found := MACHINE.match(audit.name(event)):
                    self.by_machine[found[1]][what] += 1

    def sum(self, verbs: Sequence[str], *components: str) -> int:
        """How often these components did one of these, events apart."""
        return total(self.counted, verbs, components)

    def of(self, machine: str, verbs: Sequence[str], *components: str) -> int:
        """The same for one machine."""
        return total(self.by_machine[machine], verbs, components)

    def written(self) -> dict[str, int]:
        """Everything that was written, events too."""
        return {what: number for what, number in self.counted.items() if verb_of(what) in audit.WRITES}

    def rates(self, seconds: float) -> str:
        """Requests a second, by verb."""
        verbs: collections.Counter[str] = collections.Counter()
        for what, number in self.counted.items():
            verbs[verb_of(what)] += number
        return ", ".join(f"{verb} {number / seconds:.0f}" for verb, number in verbs.most_common())


def counts(event: audit.Event) -> bool:
    """Whether it is about machines. What is refused does not count as written: the API server keeps nothing of it."""
    about = audit.about(event)
    is_all = about.get("namespace") is None and about.get("resource") in KINDS
    is_about_machines = about.get("namespace") == NAMESPACE or is_all
    return is_about_machines and (event["verb"] in audit.READS or audit.is_written(event))


def verb_of(what: str) -> str:
    return what.split(" ")[1]


def total(counted: collections.Counter[str], verbs: Sequence[str], components: Sequence[str]) -> int:
    found = 0
    for what, number in counted.items():
        is_of = what.split(":")[0] in components and verb_of(what) in verbs
        found += number if is_of and not audit.is_event(what) else 0
    return found
