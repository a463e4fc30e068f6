#!/usr/bin/env python3
"""What each level of QMP reaches, asked of a supervisor through `kubectl exec`.

  levels.py COMMAND…

COMMAND connects its standard input and output to the control socket. Prints what was answered, one line each; ends with 1
when something was allowed that should not be, or the other way round.
"""

import json
import subprocess
import sys

PATIENCE = 60
FILE = "/run/garboard/order/vmi.json"
# Opens files, sockets or devices by name, or leads to what does.
BY_NAME = [
    ("blockdev-add", {"driver": "file", "node-name": "theirs", "filename": FILE, "read-only": True}),
    ("chardev-add", {"id": "theirs", "backend": {"type": "file", "data": {"out": "/run/garboard/supervisor/x"}}}),
    ("chardev-add", {"id": "theirs", "backend": {"type": "socket", "data": {
        "addr": {"type": "unix", "data": {"path": "/run/garboard/init/launch.sock"}}, "server": False}}}),
    ("object-add", {"qom-type": "memory-backend-file", "id": "theirs", "size": 4096, "mem-path": FILE}),
    ("netdev_add", {"type": "user", "id": "theirs"}),
    ("human-monitor-command", {"command-line": "info version"}),
    ("migrate", {"uri": "exec:true"}),
    ("nbd-server-start", {"addr": {"type": "inet", "data": {"host": "0.0.0.0", "port": "10809"}}}),
]
# Would name a file that QEMU writes.
WRITES = [
    ("screendump", {"filename": "/run/garboard/init/x"}),
    ("memsave", {"val": 0, "size": 1, "filename": "/run/garboard/init/x"}),
    ("pmemsave", {"val": 0, "size": 1, "filename": "/run/garboard/init/x"}),
    ("dump-guest-memory", {"paging": False, "protocol": "file:/run/garboard/init/x"}),
    ("getfd", {"fdname": "x"}),
]
HARMLESS = [("query-status", {})]
CHANGES = [("stop", {}), ("cont", {}), ("set_link", {"name": "nic-default", "up": True})]

# How the broker refuses.
BROKER = ("--allow-", "no client of the broker may send it", "leave `filename` out")

failed = []


def ask(command, level, questions):
    """What is answered to each; the connection is one client's."""
    lines = [{"ask": "qmp", "access": level}, {"execute": "qmp_capabilities"}]
    lines += [{"execute": name, "arguments": arguments, "id": number} for number, (name, arguments) in enumerate(questions)]
    text = "".join(json.dumps(line) + "\n" for line in lines)
    client = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    client.stdin.write(text)
    client.stdin.flush()
    answers = {}
    while len(answers) < len(questions) and (line := client.stdout.readline()):
        said = json.loads(line)
        if "id" in said:
            answers[said["id"]] = said.get("error", {}).get("desc")
    client.stdin.close()
    client.wait(PATIENCE)
    return [answers.get(number, "nothing was answered") for number in range(len(questions))]


def expect(command, level, questions, allowed):
    for (name, _), refusal in zip(questions, ask(command, level, questions)):
        # Refused by the broker, not by a QEMU that was asked.
        fine = refusal is None if allowed else any(words in (refusal or "") for words in BROKER)
        print(("ok      " if fine else "FAILED  ") + f"{level}: {name}: {refusal or 'done'}"[:200], flush=True)
        if not fine:
            failed.append(name)


def main():
    command = sys.argv[1:]
    expect(command, "readOnly", HARMLESS, True)
    expect(command, "readOnly", CHANGES + BY_NAME + WRITES, False)
    expect(command, "readWrite", CHANGES, True)
    expect(command, "readWrite", BY_NAME + WRITES, False)
    expect(command, "dangerous", WRITES, False)
    return 1 if failed else 0


sys.exit(main())
