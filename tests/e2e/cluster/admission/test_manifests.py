"""Every manifest that KubeVirt was asked about has the messages of `garboard validate`. Meanwhile certificates
are renewed."""

import dataclasses
import pathlib
import time
from collections.abc import Callable, Iterator, Sequence

import pytest

from garboard_e2e import names
from garboard_e2e.answer import Answer
from garboard_e2e.cluster import admission
from garboard_e2e.cluster.admission import SHORT_LIVES, Case
from garboard_e2e.cluster.api import Api
from garboard_e2e.cluster.kube import Kube
from garboard_e2e.cluster.names import INSTALLED_IN
from garboard_e2e.cluster.renewals import Watch
from garboard_e2e.patience import PATIENCE
from garboard_e2e.places import temporary_directory

CASES = {case.name: case for case in admission.cases()}
GATES = admission.gates()
GUARDED = {name: case for name, case in CASES.items() if case.gates and case.gates.issubset(GATES)}
Answers = dict[str, Answer]


def await_answers(api: Api, cases: Sequence[Case], are_settled: Callable[[Answers], bool]) -> Answers:
    """Settings reach every replica a moment after they are written. The last answers, settled or not: each of them is
    judged by itself."""
    end = time.monotonic() + PATIENCE
    while True:
        answers = admission.ask(api, cases)
        if are_settled(answers) or time.monotonic() > end:
            return answers


@dataclasses.dataclass(frozen=True)
class Judged:
    """The API server's answer to each manifest, and the command's."""

    answers: Answers
    messages: dict[str, list[str]]

    def difference(self, case: Case) -> str | None:
        return admission.difference(self.answers[case.stem], self.messages[case.stem])


@pytest.fixture(scope="module")
def directory() -> Iterator[pathlib.Path]:
    with temporary_directory() as made:
        yield made


@pytest.fixture(scope="module")
def judged(kube: Kube, api: Api, renewals: Watch, programs: pathlib.Path, directory: pathlib.Path) -> Judged:
    """With every gate on: all in one go."""
    kube.apply(admission.with_gates(GATES, SHORT_LIVES), namespace=INSTALLED_IN)
    cases = list(CASES.values())
    messages = admission.verdicts(programs / names.COMMAND, cases, directory)
    refused = sum(bool(each) for each in messages.values())
    assert 100 < refused < len(cases) - 50, f"the command refuses {refused} of {len(cases)}"

    def as_wanted(answers: Answers) -> bool:
        return not any(map(Judged(answers, messages).difference, cases))

    return Judged(await_answers(api, cases, as_wanted), messages)


@pytest.mark.parametrize("name", CASES)
def test_the_api_server_answers_as_the_command(judged: Judged, name: str) -> None:
    problem = judged.difference(CASES[name])
    assert problem is None, problem


def test_kubectl_shows_every_message_of_a_refusal(kube: Kube, judged: Judged, directory: pathlib.Path) -> None:
    refused = (case for case in CASES.values() if 1 < len(judged.messages[case.stem]) <= admission.MOST_CAUSES)
    # kubectl itself refuses to apply what has no name yet.
    case = next(case for case in refused if case.given["metadata"].get("name"))
    shown = admission.dry_run(kube, directory / f"{case.stem}.json")
    assert shown.returncode != 0, f"{case.name} is taken"
    missing = [message for message in judged.messages[case.stem] if message not in shown.stderr]
    assert not missing, f"{case.name}: not shown: {missing}; but: {shown.stderr}"


def are_refused(answers: Answers) -> bool:
    return not any(answer.is_granted for answer in answers.values())


@pytest.fixture(scope="module")
def without_gates(kube: Kube, api: Api, judged: Judged) -> Answers:
    """The API server's answers with the default gates, to what they guard."""
    kube.apply(admission.with_gates([], SHORT_LIVES), namespace=INSTALLED_IN)
    return await_answers(api, list(GUARDED.values()), are_refused)


@pytest.mark.parametrize("name", GUARDED)
def test_what_a_gate_guards_is_refused_without_it(without_gates: Answers, name: str) -> None:
    assert not without_gates[GUARDED[name].stem].is_granted, "it is taken"
