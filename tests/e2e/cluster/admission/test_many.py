"""As many changes at once as an API server takes by default (--max-mutating-requests-inflight): none is refused because
of a connection to a webhook."""

import time

import pytest

from garboard_e2e.answer import Answer
from garboard_e2e.cluster import admission
from garboard_e2e.cluster.api import Api, Post
from garboard_e2e.cluster.kube import Kube

AT_ONCE = 200
# After which the API server has given up connections that it did not use.
QUIET = 6


@pytest.fixture(scope="module")
def posts(kube: Kube) -> list[Post]:
    sound = admission.sound(kube)
    names = [f"many-{number}" for number in range(AT_ONCE)]
    return [Post(sound.path, sound.body | {"metadata": sound.body["metadata"] | {"name": name}}) for name in names]


def expect_none_refused(answers: list[Answer]) -> None:
    refused = [answer.text for answer in answers if not answer.is_granted]
    assert not refused, f"{len(refused)} were refused: {refused[0][:300]}"


def test_many_changes_at_once_are_all_answered(api: Api, posts: list[Post]) -> None:
    expect_none_refused(api.post_at_once(posts))


def test_many_changes_are_all_answered_after_others_and_a_pause(api: Api, posts: list[Post]) -> None:
    """The others leave the API server with connections that it does not use."""
    expect_none_refused(api.post_at_once(posts))
    time.sleep(QUIET)
    expect_none_refused(api.post_at_once(posts))
