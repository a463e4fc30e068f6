"""Questions to a cluster without pause, beside whatever happens to it."""

import concurrent.futures
import contextlib
import http.client
import threading
import time
from collections.abc import Callable, Iterator

from ..answer import Answer
from .api import Api, Post, get, post

# From one question to the next of its kind, in seconds.
PERIOD = 0.05
# What the aggregated API answers by itself: API servers forward it, and keep no answer.
AGGREGATED = "/apis/subresources.kubevirt.io/v1"
Question = Callable[[http.client.HTTPSConnection], Answer]


class Asked:
    """What was answered so far."""

    def __init__(self) -> None:
        self.taken = 0
        # Of each, the seconds after the first question and the answer.
        self.refusals: list[str] = []
        self.over = threading.Event()

    def ask(self, api: Api, question: Question) -> None:
        """Until it is `over`."""
        began = time.monotonic()
        with contextlib.closing(api.connect()) as connection:
            while not self.over.wait(PERIOD):
                asked = time.monotonic() - began
                answer = question(connection)
                if answer.is_granted:
                    self.taken += 1
                else:
                    self.refusals.append(f"after {asked:.2f} s: {answer.message}")

    def expect_no_refusal(self) -> None:
        assert not self.refusals, f"{len(self.refusals)} of {len(self.refusals) + self.taken} were refused: {self}"

    def __str__(self) -> str:
        return "\n".join(self.refusals[:10])


@contextlib.contextmanager
def asked(api: Api, question: Question) -> Iterator[Asked]:
    """While it is entered."""
    found = Asked()
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        asking = pool.submit(found.ask, api, question)
        try:
            yield found
        finally:
            found.over.set()
        asking.result()


def made(manifest: Post) -> Question:
    """A manifest that the webhooks judge."""
    return lambda connection: post(connection, manifest)


def aggregated(connection: http.client.HTTPSConnection) -> Answer:
    """What a controller answers by the aggregated API."""
    return get(connection, AGGREGATED)
