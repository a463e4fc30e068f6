#!/usr/bin/env python3
"""A kubectl that is played: it leads to a played API server, at the socket GARBOARD_PLAYED_API. Stands alone."""

import http.client
import json
import os
import signal
import socket
import sys
import urllib.parse

SOCKET = os.environ["GARBOARD_PLAYED_API"]


class Connection(http.client.HTTPConnection):
    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.connect(SOCKET)


def get(arguments: list[str], namespace: str) -> str:
    connection = Connection("localhost")
    query = urllib.parse.urlencode({"arguments": json.dumps(arguments), "namespace": namespace})
    connection.request("GET", f"/played-kubectl?{query}")
    return connection.getresponse().read().decode()


def main(rest: list[str]) -> None:
    namespace = "tenant"
    while rest and rest[0].startswith("--"):
        if rest[0].startswith("--namespace="):
            namespace = rest[0].partition("=")[2]
        rest = rest[1:]
    match rest:
        case ["proxy", *options]:
            place = next(each.partition("=")[2] for each in options if each.startswith("--unix-socket="))
            os.symlink(SOCKET, place)
            print(f"Starting to serve on {place}", flush=True)
            signal.pause()
        case ["get", *arguments]:
            print(get(arguments, namespace))
        case ["auth", "whoami", *_]:
            print(json.dumps({"status": {"userInfo": {"username": "ada"}}}))
        case ["config", "current-context"]:
            print("lab")
        case ["config", "view", *_]:
            print("tenant")
        case _:
            sys.exit(f"error: this kubectl only plays what the dashboard uses, not {rest}")


if __name__ == "__main__":
    main(sys.argv[1:])
