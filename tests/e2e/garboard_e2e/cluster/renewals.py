"""Certificates of webhooks, looked at beside whatever else is asked of a cluster."""

import base64
import concurrent.futures
import contextlib
import http.client
import json
import threading
from collections.abc import Iterator

from ..patience import wait_until
from .api import Api, Post, get, post
from .names import INSTALLED_IN, Object

SECRET = f"/api/v1/namespaces/{INSTALLED_IN}/secrets/garboard-webhook"
# Between two looks, in seconds.
PAUSE = 0.2
# So many of each kind: the first, and two that followed.
ENOUGH = 3


class Renewals:
    """What was seen so far."""

    def __init__(self, sound: Post) -> None:
        """`sound` is what the webhooks are asked about, and have to take."""
        self.sound = sound
        self.serving: list[str] = []
        self.authorities: list[str] = []
        self.refusals: list[str] = []
        self.over = threading.Event()

    def watch(self, api: Api) -> None:
        """Until it is `over`."""
        with contextlib.closing(api.connect()) as connection:
            while not self.over.is_set():
                self.look(connection)
                self.over.wait(PAUSE)

    def look(self, connection: http.client.HTTPSConnection) -> None:
        data: Object = json.loads(get(connection, SECRET).text)["data"]
        for seen, name in ((self.serving, "tls.crt"), (self.authorities, "authorities.crt")):
            if (found := base64.b64decode(data[name]).decode()) not in seen:
                seen.append(found)
        answer = post(connection, self.sound)
        if not answer.is_taken:
            self.refusals.append(answer.message)

    def are_enough(self) -> bool:
        return len(self.serving) >= ENOUGH and len(self.authorities) >= ENOUGH

    def __str__(self) -> str:
        return f"{len(self.serving)} serving certificates and {len(self.authorities)} sets of authorities"


class Watch:
    """Renewals, and the thread that looks at them."""

    def __init__(self, renewals: Renewals, looking: concurrent.futures.Future[None]) -> None:
        self.renewals, self.looking = renewals, looking

    def await_enough(self) -> Renewals:
        """Waits for them."""
        seen = self.renewals
        wait_until("renewals", lambda: self.looking.done() or seen.are_enough(), circumstances=lambda: str(seen))
        if self.looking.done():
            self.looking.result()
        return seen


@contextlib.contextmanager
def watched(api: Api, sound: Post) -> Iterator[Watch]:
    """While it is entered."""
    renewals = Renewals(sound)
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        looking = pool.submit(renewals.watch, api)
        try:
            yield Watch(renewals, looking)
        finally:
            renewals.over.set()
