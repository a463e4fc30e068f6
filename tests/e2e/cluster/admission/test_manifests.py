"""Every manifest that the reference was asked about has the sentences of `garboard validate`."""

import dataclasses
import pathlib
from collections.abc import Iterator

import pytest

from garboard_e2e import names
from garboard_e2e.cluster import admission
from garboard_e2e.cluster.admission import Answers, Case
from garboard_e2e.cluster.kube import Kube
from garboard_e2e.cluster.names import INSTALLED_IN
from garboard_e2e.places import room

CASES = {case.name: case for case in admission.cases()}
GATES = admission.gates()
GUARDED = {name: case for name, case in CASES.items() if case.gates and case.gates.issubset(GATES)}


@dataclasses.dataclass(frozen=True)
class Judged:
    """What the API server says to each manifest, and what the command says."""

    answers: Answers
    sentences: dict[str, list[str]]


@pytest.fixture(scope="module")
def directory() -> Iterator[pathlib.Path]:
    with room() as made:
        yield made


@pytest.fixture(scope="module")
def judged(kube: Kube, programs: pathlib.Path, directory: pathlib.Path) -> Judged:
    """With every gate on: all in one go, for each call of kubectl costs a second."""
    kube.apply(admission.with_gates(GATES), namespace=INSTALLED_IN)
    everything = admission.write(CASES.values(), directory / "all")
    sentences = admission.verdicts(programs / names.COMMAND, everything)
    for case in CASES.values():
        if case.number in admission.BARE_HOST_ONLY:
            sentences[case.stem] = [admission.BARE_HOST_ONLY[case.number]]
    wanted = {case.stem for case in CASES.values() if sentences.get(case.stem)}
    assert 100 < len(wanted) < len(CASES) - 50, f"the command refuses {len(wanted)} of {len(CASES)}"

    def as_wanted(said: Answers) -> bool:
        return {stem for stem, answer in said.items() if answer} == wanted

    return Judged(admission.await_answers(kube, everything, as_wanted), sentences)


@pytest.mark.parametrize("name", CASES)
def test_the_api_server_answers_as_the_command(judged: Judged, name: str) -> None:
    stem = CASES[name].stem
    problem = admission.difference(judged.answers[stem], judged.sentences.get(stem, []))
    assert problem is None, problem


@pytest.fixture(scope="module")
def without_gates(kube: Kube, judged: Judged, directory: pathlib.Path) -> Answers:
    """What the API server says with the gates as they are by themselves, to what they guard."""
    kube.apply(admission.with_gates([]), namespace=INSTALLED_IN)
    guarded: list[Case] = list(GUARDED.values())
    return admission.await_answers(
        kube, admission.write(guarded, directory / "guarded"), lambda said: all(said.values())
    )


@pytest.mark.parametrize("name", GUARDED)
def test_what_a_gate_guards_is_refused_without_it(without_gates: Answers, name: str) -> None:
    assert without_gates[GUARDED[name].stem], "it is taken"
