"""A machine of an ordinary user: a throw-away account, and the command as that account runs it."""

import contextlib
import os
import pathlib
import shutil
import subprocess
from collections.abc import Iterator, Sequence

from . import names
from .command import Argument, Garboard
from .outcome import Failure
from .patience import PATIENCE
from .places import EXAMPLES
from .processes import kill
from .terminal import Terminal

ACCOUNT, MACHINE = "garboard-check", "user-hello"


@contextlib.contextmanager
def account() -> Iterator[str]:
    """Made, and removed afterwards."""
    subprocess.run(["userdel", ACCOUNT], capture_output=True)
    subprocess.run(["useradd", "--system", "--no-create-home", "--user-group", ACCOUNT], check=True)
    try:
        yield ACCOUNT
    finally:
        subprocess.run(["userdel", ACCOUNT], capture_output=True)


class User(Garboard):
    """The account, with directories of its own below one that every user may enter."""

    working_directory = "/"
    shell: Terminal

    def __init__(self, programs: pathlib.Path, image: str, directory: pathlib.Path) -> None:
        super().__init__(programs, directory, [f"default/{MACHINE}"])
        self.image = image
        for name in ["run", "run/garboard", "home"]:
            os.mkdir(f"{directory}/{name}", 0o700)
            shutil.chown(f"{directory}/{name}", ACCOUNT, ACCOUNT)
        # The account may not be able to read where the programs were built.
        os.mkdir(f"{directory}/bin")
        for name in names.INSTALLED:
            shutil.copy(self.programs / name, f"{directory}/bin/{name}")
        self.garboard = f"{directory}/bin/{names.COMMAND}"
        # Where a user's machines are unless the environment names another place.
        self.runtime, self.state = directory / "run/garboard", directory / "home/.local/state/garboard"
        self.environment = {
            "PATH": "/usr/bin:/bin",
            "HOME": f"{directory}/home",
            "TERM": "dumb",
            "XDG_RUNTIME_DIR": f"{directory}/run",
        }

    def argv(self, *arguments: Argument) -> list[str]:
        as_account = ["setpriv", "--reuid", ACCOUNT, "--regid", ACCOUNT, "--init-groups"]
        return [*as_account, *super().argv(*arguments)]

    def manifest(self, binding: str = "masquerade") -> str:
        text = (EXAMPLES / "vm-hello.yaml").read_text()
        text = text.replace("name: hello", f"name: {MACHINE}").replace("masquerade: {}", f"{binding}: {{}}")
        path = self.directory / "vm.yaml"
        path.write_text(text)
        return str(path)

    def start(self, *arguments: str, around: Sequence[str] = ()) -> str:
        """Runs the machine on a terminal until its shell is there; the address it has."""
        command = ["run", *arguments, "--image", self.image, self.manifest()]
        self.shell = self.terminal(*command, around=around, TERM="dumb")
        address = self.shell.expect(r"garboard-hello: address (\S+)\r", PATIENCE).group(1).decode()
        self.shell.expect("# ", PATIENCE)
        return address

    def detach(self) -> None:
        self.shell.detach(PATIENCE)

    def stop(self) -> None:
        self.run("stop", MACHINE)
        if machines := self.machines():
            raise Failure(f"`garboard stop` returned, and `garboard ps` prints {machines}")
        ended = self.ended(f"default/{MACHINE}")
        if ended["cause"]["cause"] != "stoppedGracefully":
            raise Failure(f"the run should have been stopped gracefully, not {ended}")

    def is_ours(self, thing: str) -> bool:
        """A user's machine has no link and no nft table; the directory of all of them stays."""
        return thing != f"file {self.runtime}" and super().is_ours(thing)

    def expect_clean(self, seconds: float = 30) -> None:
        super().expect_clean(seconds)
        self.wait("the end of the account's processes", lambda: not self.processes(), seconds)

    def stop_everything(self) -> None:
        # Every process of this account is ours.
        kill(self.processes())

    def processes(self, part: str = "") -> list[int]:
        """Processes of the account whose program has this part in its name."""
        listed = subprocess.run(["ps", "-u", ACCOUNT, "-o", "pid=,stat=,args="], capture_output=True, text=True).stdout
        lines = [line.split(None, 2) for line in listed.splitlines()]
        return [int(pid) for pid, state, line in lines if part in line.split()[0] and not state.startswith("Z")]
