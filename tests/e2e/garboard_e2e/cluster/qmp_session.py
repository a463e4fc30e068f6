"""A session of QMP through subresources.garboard.dev: a websocket whose bytes are QMP's own."""

import json
import time

from ..outcome import Failure
from ..patience import PATIENCE
from .api import Api
from .names import Object
from .stream import OWN_GROUP, connect, path_of, received


class QmpSession:
    """One that is open and negotiated; of the administrator, or of a user that it impersonates."""

    def __init__(self, api: Api, machine: str, level: str, user: str = "") -> None:
        headers = {"Impersonate-User": user} if user else {}
        self.socket = connect(api.address, api.context, path_of(machine, level, group=OWN_GROUP), headers)
        self.rest, self.events, self.number = b"", list[Object](), 0
        if "QMP" not in self.line():
            raise Failure("a session began without a greeting")
        self.execute("qmp_capabilities")

    def line(self) -> Object:
        while b"\n" not in self.rest:
            self.rest += received(self.socket)
        line, _, self.rest = self.rest.partition(b"\n")
        found: Object = json.loads(line)
        return found

    def ask(self, command: str) -> Object:
        self.number += 1
        self.socket.send_binary(json.dumps({"execute": command, "id": self.number}).encode() + b"\n")
        while (found := self.line()).get("id") != self.number:
            self.events.append(found)
        return found

    def execute(self, command: str) -> Object:
        answer = self.ask(command)
        if "error" in answer:
            raise Failure(f"{command}: {answer}")
        found: Object = answer["return"]
        return found

    def refusal(self, command: str) -> str:
        return str(self.ask(command).get("error", {}).get("desc", ""))

    def event(self, name: str) -> bool:
        """Whether it comes."""
        end = time.monotonic() + PATIENCE
        while time.monotonic() < end:
            if any(event.get("event") == name for event in self.events):
                return True
            self.events.append(self.line())
        return False

    def close(self) -> None:
        self.socket.close()
