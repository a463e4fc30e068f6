"""An API server's answer to a request."""

import contextlib
import dataclasses
import http.client
import json
import re
from typing import Any


@dataclasses.dataclass(frozen=True)
class Answer:
    """As it was received."""

    status: int
    text: str
    # As kubectl shows them: the texts of the header `Warning` (RFC 7234 §5.5), `299 - "text"`.
    warnings: tuple[str, ...] = ()

    @classmethod
    def read(cls, connection: http.client.HTTPConnection) -> "Answer":
        """That of the request that was sent last."""
        answer = connection.getresponse()
        headers = ", ".join(answer.headers.get_all("Warning", [])).encode("latin-1").decode(errors="replace")
        quoted = re.findall(r'299 \S+ "((?:[^"\\]|\\.)*)"', headers)
        warnings = tuple(re.sub(r"\\(.)", r"\1", each) for each in quoted)
        return cls(answer.status, answer.read().decode(), warnings)

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

    def shows(self, message: str) -> bool:
        """Whether a client is shown this, as the refusal or as a warning beside it."""
        return message in self.message or message in self.warnings

    @property
    def message(self) -> str:
        """Of a refusal the whole message."""
        return str(self.body.get("message", self.text))
