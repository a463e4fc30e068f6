"""USB redirection through the API server: `virtualmachineinstances/usbredir`. Its bytes are between a client and QEMU.
The clients are played. virtctl is real; it starts no usbredirect, which needs a USB device."""

import contextlib
import socket
import subprocess
from collections.abc import Iterator

import pytest

from garboard_e2e.answer import Answer
from garboard_e2e.cluster.api import Api
from garboard_e2e.cluster.kube import Kube
from garboard_e2e.cluster.objects import machine
from garboard_e2e.cluster.person import Tool
from garboard_e2e.cluster.stream import ByteStream, Refused
from garboard_e2e.cluster.virtctl import virtctl as client
from garboard_e2e.outcome import Failure
from garboard_e2e.patience import PATIENCE
from garboard_e2e.usbredir import Socket, greet, greeted

NAME, SLOTS = "redirected", 4


@pytest.fixture(scope="module")
def api(kube: Kube) -> Api:
    return Api.of(kube)


@pytest.fixture(scope="module")
def redirected(kube: Kube) -> str:
    """A machine with slots."""
    made = machine(NAME)
    made["spec"]["template"]["spec"]["domain"]["devices"]["clientPassthrough"] = {}
    kube.start(made)
    return NAME


@contextlib.contextmanager
def slot(kube: Kube, api: Api) -> Iterator[ByteStream]:
    """A slot of the machine, which QEMU has greeted. One whose client has just left is free a moment later."""

    def attempt() -> ByteStream | None:
        with contextlib.suppress(Refused):
            return ByteStream(api, NAME, "usbredir")
        return None

    stream = kube.ask_until("a free slot", attempt)
    try:
        greeted(stream)
        greet(stream)
        yield stream
    finally:
        stream.close()


def refusal(api: Api, name: str) -> Answer:
    with pytest.raises(Refused) as refused:
        ByteStream(api, name, "usbredir").close()
    return refused.value.answer


def test_each_client_has_a_slot_until_it_leaves_and_one_more_is_refused(kube: Kube, api: Api, redirected: str) -> None:
    with contextlib.ExitStack() as stack:
        streams = [stack.enter_context(slot(kube, api)) for _ in range(SLOTS)]
        for _ in range(2):
            refused = refusal(api, redirected)
            assert refused.status == 503 and "All USB devices are in use" in refused.message, refused
            streams.pop(1).close()
            streams.append(stack.enter_context(slot(kube, api)))
        assert refusal(api, redirected).status == 503


def test_a_machine_without_slots_refuses(api: Api, pair: dict[str, str]) -> None:
    refused = refusal(api, "left")
    assert refused.status == 409 and "Not configured with USB Redirection" in refused.message, refused


@contextlib.contextmanager
def redirection(virtctl: Tool, name: str) -> Iterator[tuple[Socket, subprocess.Popen[str]]]:
    """What usbredirect would be connected to by virtctl, and virtctl."""
    begun = virtctl.begin("usbredir", "--no-launch", name, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    try:
        if begun.stdout is None or "User can connect" not in (line := begun.stdout.readline()):
            raise Failure(f"virtctl ended with {begun.wait()}: {line}")
        host, _, port = line.strip().rpartition(" ")[2].rpartition(":")
        opened = Socket(socket.create_connection((host.strip("[]"), int(port)), PATIENCE))
        try:
            yield opened, begun
        finally:
            opened.close()
    finally:
        begun.terminate()
        begun.wait()


def test_virtctl_redirects(kube: Kube, api: Api, redirected: str) -> None:
    virtctl = client(kube)
    with redirection(virtctl, redirected) as (line, begun):
        greeted(line)
        greet(line)
        line.close()
        # It ends when the program that it serves has left.
        begun.wait(PATIENCE)
    with contextlib.ExitStack() as stack:
        for _ in range(SLOTS):
            stack.enter_context(slot(kube, api))
        refused = virtctl.call("usbredir", "--no-launch", redirected)
        assert refused.returncode != 0 and "All USB devices are in use" in refused.stderr, refused.stderr


def test_slots_are_free_again_under_the_next_supervisor(kube: Kube, api: Api, redirected: str) -> None:
    uid = kube.runs(redirected)
    with contextlib.ExitStack() as stack:
        streams = [stack.enter_context(slot(kube, api)) for _ in range(SLOTS)]
        kube.kill(redirected, "garboard-launcher")
        for stream in streams:
            with pytest.raises(Failure):
                stream.read(1)
        for _ in range(SLOTS):
            stack.enter_context(slot(kube, api))
    assert kube.runs(redirected) == uid
