"""As many changes at once as an API server takes by default (--max-mutating-requests-inflight): none is refused because
of a connection to a webhook."""

import json
import time

from garboard_e2e.cluster.admission import SOUND
from garboard_e2e.cluster.at_once import Answer, post_at_once
from garboard_e2e.cluster.kube import Kube

AT_ONCE = 200
PATH = "/apis/kubevirt.io/v1/namespaces/default/virtualmachines?dryRun=All"
# After which the API server has given up connections that it did not use.
QUIET = 6


def post_many(kube: Kube) -> list[Answer]:
    """The refusals."""
    kubeconfig = json.loads(kube.kubectl("config", "view", "--raw", "-o", "json", namespace=None))
    sound = json.loads(kube.kubectl("create", "--dry-run=client", "-o", "json", "-f", SOUND, namespace=None))
    bodies = [sound | {"metadata": {"name": f"many-{index}"}} for index in range(AT_ONCE)]
    return [answer for answer in post_at_once(kubeconfig, PATH, bodies) if answer.status != 201]


def expect_none(refusals: list[Answer]) -> None:
    assert not refusals, f"{len(refusals)} were refused: {refusals[0].text[:300]}"


def test_many_changes_at_once_are_all_answered(kube: Kube) -> None:
    expect_none(post_many(kube))


def test_many_changes_are_all_answered_after_others_and_a_pause(kube: Kube) -> None:
    """The others leave the API server with connections that it does not use."""
    expect_none(post_many(kube))
    time.sleep(QUIET)
    expect_none(post_many(kube))
