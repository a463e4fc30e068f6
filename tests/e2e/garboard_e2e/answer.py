"""An API server's answer to a request."""

import contextlib
import dataclasses
import http.client
import json
from typing import Any


@dataclasses.dataclass(frozen=True)
class Answer:
    """As it was received."""

    status: int
    text: str

    @classmethod
    def read(cls, connection: http.client.HTTPConnection) -> "Answer":
        """That of the request that was sent last."""
        answer = connection.getresponse()
        return cls(answer.status, answer.read().decode())

    @property
    def is_granted(self) -> bool:
        return self.status < 300

    @property
    def body(self) -> dict[str, Any]:
        """The object; empty where the answer is none."""
        with contextlib.suppress(json.JSONDecodeError):
            found: dict[str, Any] = json.loads(self.text)
            return found
        return {}

    @property
    def message(self) -> str:
        """Of a refusal the whole message."""
        return str(self.body.get("message", self.text))
