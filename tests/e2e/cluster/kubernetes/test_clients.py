"""Clients that people write: one of KubeVirt's client-go, and one of the official Python client that sends YAML."""

import pathlib
from collections.abc import Callable

from garboard_e2e.cluster.clients import Client
from garboard_e2e.cluster.kube import Kube
from garboard_e2e.cluster.names import Object
from garboard_e2e.cluster.objects import machine

Note = Callable[[str], None]


def guest(name: str) -> Object:
    """What both play: the hello guest with a page and an agent, and slots for USB devices."""
    made = machine(name, "Manual", tests="httpd,agent")
    made["spec"]["template"]["spec"]["domain"]["devices"]["clientPassthrough"] = {}
    return made


def test_client_go_lists_watches_creates_asks_and_streams(kube: Kube, tmp_path: pathlib.Path, note: Note) -> None:
    # It makes another one, and deletes it.
    kube.will_go("by-go-2")
    note(Client.of_go().play(guest("by-go"), tmp_path, kube.environment))
    kube.shows("by-go", "Stopped")


def test_the_python_client_sends_yaml(kube: Kube, tmp_path: pathlib.Path, note: Note) -> None:
    note(Client.of_python().play(guest("by-python"), tmp_path, kube.environment))
    kube.shows("by-python", "Stopped")
