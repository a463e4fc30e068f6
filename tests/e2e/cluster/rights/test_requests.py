"""Who asks for a start or a stop in the status of a VirtualMachine writes nothing else there."""

import pytest

from garboard_e2e.api_server import ApiServer
from garboard_e2e.rights import CONTROLLER, EDITOR, VIEWER, asks, granted, refused

START = {"action": "Start"}
ONE_START = {"stateChangeRequests": [START]}
ONLY = "only stateChangeRequests"
# RBAC's answer.
NO_RIGHT = "cannot patch resource"
ROWS = {
    "editor: asks for a start": granted(asks(EDITOR, ONE_START)),
    "editor: asks for a restart": granted(
        asks(EDITOR, {"stateChangeRequests": [{"action": "Stop", "uid": "u"}, START]})
    ),
    "editor: nothing else of the status": refused(ONLY, asks(EDITOR, {"ready": False})),
    "editor: adds nothing to the status": refused(ONLY, asks(EDITOR, {"created": True})),
    "editor: takes nothing from the status": refused(ONLY, asks(EDITOR, {"ready": None})),
    "editor: nothing beside a start": refused(ONLY, asks(EDITOR, ONE_START | {"storedMachine": {}})),
    "editor: not through an older version": refused(ONLY, asks(EDITOR, {"ready": False}, "v1alpha3")),
    "editor: no flood of requests": refused("at most two requests", asks(EDITOR, {"stateChangeRequests": [START] * 3})),
    "viewer: asks for no start": refused(NO_RIGHT, asks(VIEWER, ONE_START)),
    "controller: the whole status": granted(asks(CONTROLLER, {"ready": False, "created": True})),
}


@pytest.mark.parametrize("name", ROWS)
def test_a_request_is_all_that_users_write_in_a_status(server: ApiServer, name: str) -> None:
    ROWS[name].holds(server)
