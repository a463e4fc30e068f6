"""One API server for all questions, with Garboard's rights and policies in force."""

from collections.abc import Iterator

import pytest

from garboard_e2e import rights
from garboard_e2e.api_server import ApiServer
from garboard_e2e.places import temporary_directory


@pytest.fixture(scope="package")
def server() -> Iterator[ApiServer]:
    with temporary_directory() as directory:
        server = ApiServer(directory, rights.TOKENS)
        try:
            server.start()
            rights.make_objects(server)
            rights.await_policies(server)
            yield server
        finally:
            server.stop()
