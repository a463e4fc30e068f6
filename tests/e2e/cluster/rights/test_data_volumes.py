"""The account of DataVolumes, as which the controller makes them and which may do nothing else. What CDI asks before it
clones out of a namespace is the right to create datavolumes/source or pods there."""

import pytest

from garboard_e2e.api_server import ApiServer, Caller, Request
from garboard_e2e.rights import (
    AGENT_ACCOUNT,
    CONTROLLER_AS_DATA_VOLUMES,
    DATA_VOLUMES,
    DATA_VOLUMES_ACCOUNT,
    Right,
    refused,
)

KIND = "datavolumes.cdi.kubevirt.io"


def test_the_controller_makes_data_volumes_as_their_account(server: ApiServer) -> None:
    """By its own token, and its right to act as that account."""
    assert Right(CONTROLLER_AS_DATA_VOLUMES, "create", KIND, "default").is_given(server)


def test_the_controller_makes_no_pods_as_that_account(server: ApiServer) -> None:
    assert not Right(CONTROLLER_AS_DATA_VOLUMES, "create", "pods", "default").is_given(server)


def by_the_controller(user: str, *groups: str) -> Request:
    """Something harmless, asked in the place of another."""
    path = "/apis/kubevirt.io/v1/namespaces/default/kubevirts"
    return Request(Caller(user, groups, token="controller"), "GET", path)


ACTING = {
    "garboard-node": by_the_controller(AGENT_ACCOUNT),
    "default, garboard-datavolumes": by_the_controller("system:serviceaccount:default:garboard-datavolumes"),
    "garboard, default": by_the_controller("system:serviceaccount:garboard:default"),
    "a user": by_the_controller("administrator"),
    "a group": by_the_controller(DATA_VOLUMES_ACCOUNT, "system:masters"),
}


@pytest.mark.parametrize("name", ACTING)
def test_the_controller_does_not_act_as(server: ApiServer, name: str) -> None:
    refused("cannot impersonate", ACTING[name]).holds(server)


NAMESPACES = ("default", "garboard", "kube-system")
MADE = ("pods", "persistentvolumeclaims", "secrets", "virtualmachines.kubevirt.io", "events")
READ = ("pods", "persistentvolumeclaims", "secrets", KIND)
NOT_GIVEN = {
    **{f"no source in {place}": Right(DATA_VOLUMES, "create", KIND, place, "source") for place in NAMESPACES},
    **{
        f"makes no {resource} in {place}": Right(DATA_VOLUMES, "create", resource, place)
        for place in NAMESPACES
        for resource in MADE
    },
    **{
        f"reads no {resource} in {place}": Right(DATA_VOLUMES, "get", resource, place)
        for place in NAMESPACES
        for resource in READ
    },
    **{f"no {verb}": Right(DATA_VOLUMES, verb, KIND, "default") for verb in ("update", "patch", "delete")},
}


@pytest.mark.parametrize("name", NOT_GIVEN)
def test_the_account_of_data_volumes_may_do_nothing_else(server: ApiServer, name: str) -> None:
    assert not NOT_GIVEN[name].is_given(server)
