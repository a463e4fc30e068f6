"""A guest that was taken over: its agent answers with escapes for terminals, long texts, long lists and nonsense, and
refuses keys with them."""

import json
from collections.abc import Iterator
from typing import Any

import pytest

from garboard_e2e.cluster.kube import Kube
from garboard_e2e.cluster.names import INSTALLED_IN, SIDECAR
from garboard_e2e.cluster.objects import machine
from garboard_e2e.credentials import KEY, by_agent, secret
from garboard_e2e.hostile.account import Account

NAME, CONDITION = "lying", "AccessCredentialsSynchronized"
# Escaped, a text of 256 characters, which is what is taken of each, is longer.
LONGEST_TEXT, LONGEST_ANSWER = 2048, 512 * 1024
# Of the twenty thousand that its long texts have.
MANY = "x" * LONGEST_TEXT


@pytest.fixture(scope="module")
def lying(kube: Kube) -> Iterator[str]:
    kube.apply(secret("lying-keys", ada=KEY), secret("lying-passwords", root="correct-horse-battery"))
    credentials = by_agent("lying-keys", "lying-passwords", "root")
    kube.apply(machine(NAME, "Always", tests="agent-lies", accessCredentials=credentials))
    kube.runs(NAME)
    kube.becomes("vmi", NAME, "AgentConnected")
    yield NAME
    kube.remove(NAME)


def texts(value: Any) -> Iterator[str]:
    """Every text of an object."""
    if isinstance(value, dict):
        for key, part in value.items():
            yield key
            yield from texts(part)
    elif isinstance(value, list):
        for part in value:
            yield from texts(part)
    elif isinstance(value, str):
        yield value


def expect_harmless(where: str, value: Any) -> None:
    for text in texts(value):
        assert text.isprintable() and len(text) < LONGEST_TEXT, f"{where}: {text[:300]!r}"


def test_what_its_agent_reports_is_short_and_printable(alice: Account, lying: str, answering: str) -> None:
    for question, status in (("guestosinfo", 200), ("userlist", 200), ("filesystemlist", 500)):
        answer = alice.asks("GET", alice.path(lying, question))
        assert answer.status == status and len(answer.text) < LONGEST_ANSWER, f"{question}: {str(answer)[:500]}"
        expect_harmless(question, answer.body or answer.text)
        if question == "userlist":
            users = answer.body["items"]
            assert len(users) == 128 and "\\u{1b}[31m" in users[0]["userName"], f"{len(users)} users: {users[0]}"
    alice.types(answering)


def test_what_it_refuses_a_key_with_is_short_and_printable(kube: Kube, lying: str) -> None:
    condition = kube.becomes("vmi", lying, CONDITION, "False")
    assert "\\u{1b}[31m" in condition["message"], condition
    expect_harmless("the instance", kube.get("vmi", lying))


def test_what_it_says_forges_no_line_of_a_log(kube: Kube, lying: str) -> None:
    agent = kube.agent_of(str(kube.pod(lying)["spec"]["nodeName"]))["metadata"]["name"]
    of_agent = kube.kubectl("logs", agent, "-c", "node", namespace=INSTALLED_IN)
    for log in (kube.kubectl("logs", kube.pod_name(lying), "-c", SIDECAR), of_agent):
        lines = log.split("\n")[:-1]
        assert lines, "there is no log"
        for line in lines:
            found = json.loads(line)
            assert isinstance(found, dict) and found.get("message") != "forged", f"a forged line: {line[:300]}"
            assert line.isprintable() and MANY not in line, f"{len(line)} characters: {line[:300]!r}"
