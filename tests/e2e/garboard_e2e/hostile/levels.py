"""What each level of QMP reaches, asked of a supervisor."""

import dataclasses
import json
import subprocess
from collections.abc import Sequence
from typing import Any

from ..outcome import Failure

PATIENCE = 60
FILE = "/run/garboard/order/vmi.json"
WRITTEN = "/run/garboard/init/x"
Question = tuple[str, dict[str, Any]]
LAUNCH_SOCKET = {"type": "unix", "data": {"path": "/run/garboard/init/launch.sock"}}
OF_SOCKET = {"type": "socket", "data": {"addr": LAUNCH_SOCKET, "server": False}}
OF_FILE = {"type": "file", "data": {"out": "/run/garboard/supervisor/x"}}
ANYWHERE = {"type": "inet", "data": {"host": "0.0.0.0", "port": "10809"}}
# Opens files, sockets or devices by name, or leads to what does.
BY_NAME: list[Question] = [
    ("blockdev-add", {"driver": "file", "node-name": "theirs", "filename": FILE, "read-only": True}),
    ("chardev-add", {"id": "theirs", "backend": OF_FILE}),
    ("chardev-add", {"id": "theirs", "backend": OF_SOCKET}),
    ("object-add", {"qom-type": "memory-backend-file", "id": "theirs", "size": 4096, "mem-path": FILE}),
    ("netdev_add", {"type": "user", "id": "theirs"}),
    ("human-monitor-command", {"command-line": "info version"}),
    ("migrate", {"uri": "exec:true"}),
    ("nbd-server-start", {"addr": ANYWHERE}),
]
# Would name a file that QEMU writes.
WRITES: list[Question] = [
    ("screendump", {"filename": WRITTEN}),
    ("memsave", {"val": 0, "size": 1, "filename": WRITTEN}),
    ("pmemsave", {"val": 0, "size": 1, "filename": WRITTEN}),
    ("dump-guest-memory", {"paging": False, "protocol": f"file:{WRITTEN}"}),
    ("getfd", {"fdname": "x"}),
]
HARMLESS: list[Question] = [("query-status", {})]
CHANGES: list[Question] = [("stop", {}), ("cont", {}), ("set_link", {"name": "nic-default", "up": True})]

# How the broker refuses.
BROKER = ("--allow-", "no client of the broker may send it", "leave `filename` out")


@dataclasses.dataclass
class Expected:
    """What a level answers to each of these."""

    level: str
    questions: list[Question]
    is_allowed: bool


LEVELS = [
    Expected("readOnly", HARMLESS, True),
    Expected("readOnly", CHANGES + BY_NAME + WRITES, False),
    Expected("readWrite", CHANGES, True),
    Expected("readWrite", BY_NAME + WRITES, False),
    Expected("dangerous", WRITES, False),
]


def ask(command: Sequence[str], level: str, questions: list[Question]) -> list[str | None]:
    """The refusal of each, or None. `command` connects its standard input and output to the control socket; the
    connection is one client's."""
    lines: list[dict[str, Any]] = [{"ask": "qmp", "access": level}, {"execute": "qmp_capabilities"}]
    lines += [
        {"execute": name, "arguments": arguments, "id": number} for number, (name, arguments) in enumerate(questions)
    ]
    text = "".join(json.dumps(line) + "\n" for line in lines)
    answers: dict[int, str | None] = {}
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as client:
        if client.stdin is None or client.stdout is None:
            raise Failure("no pipe")
        client.stdin.write(text)
        client.stdin.flush()
        while len(answers) < len(questions) and (line := client.stdout.readline()):
            answer = json.loads(line)
            if "id" in answer:
                answers[answer["id"]] = answer.get("error", {}).get("desc")
        client.stdin.close()
        client.wait(PATIENCE)
    return [answers.get(number, "nothing was answered") for number in range(len(questions))]


def findings(command: Sequence[str]) -> list[str]:
    """What is allowed and should not be, or the other way round; with the count of what was asked."""
    found = []
    for expected in LEVELS:
        for (name, _), refusal in zip(
            expected.questions, ask(command, expected.level, expected.questions), strict=True
        ):
            # Refused by the broker, not by a QEMU that was asked.
            is_refused = any(text in (refusal or "") for text in BROKER)
            if (refusal is not None) if expected.is_allowed else not is_refused:
                found.append(f"{expected.level}: {name}: {refusal or 'done'}")
    return found
