"""A network namespace that stands for another host: of its own host's services a guest reaches none."""

import ctypes
import subprocess
import threading
from collections.abc import Callable
from types import TracebackType
from typing import TypeVar

from .outcome import Failure

# setns(2)
CLONE_NEWNET = 0x40000000

Made = TypeVar("Made")


class OtherHost:
    """Joined with this host by a link; `address` is its own, `ours` this host's towards it. Addresses are to be of
    those that are reserved for documentation (RFC 5737), so they are in use nowhere."""

    def __init__(self, link: str, address: str, ours: str) -> None:
        self.link, self.address, self.ours = link, address, ours

    def __enter__(self) -> "OtherHost":
        for command in (
            f"netns add {self.link}",
            f"link add {self.link} type veth peer name eth0 netns {self.link}",
            f"address add {self.ours} peer {self.address} dev {self.link}",
            f"link set {self.link} up",
            f"-n {self.link} address add {self.address} peer {self.ours} dev eth0",
            f"-n {self.link} link set eth0 up",
        ):
            subprocess.run(["ip", *command.split()], check=True)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        subprocess.run(["ip", "netns", "delete", self.link], check=True)

    def made(self, make: Callable[[], Made]) -> Made:
        """What is made there, such as a socket that listens: in a thread of its own, which alone enters the namespace;
        the socket stays there."""
        made: list[Made] = []

        def enter_and_make() -> None:
            with open(f"/run/netns/{self.link}", "rb") as namespace:
                if ctypes.CDLL(None, use_errno=True).setns(namespace.fileno(), CLONE_NEWNET) != 0:
                    raise OSError(ctypes.get_errno(), "setns")
            made.append(make())

        maker = threading.Thread(target=enter_and_make)
        maker.start()
        maker.join()
        if not made:
            raise Failure(f"nothing could be made in the network namespace {self.link}")
        return made[0]
