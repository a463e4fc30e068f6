"""`garboard run` as an ordinary user: a throw-away account, three ways to a network, what confines QEMU without root,
published ports, a supervisor killed under a guest with a connection, and nothing left behind."""

import http.server
import json
import os
import pathlib
import pwd
import socket
import threading
import time
from collections.abc import Iterator, Sequence
from typing import Any

import pytest

from garboard_e2e import names
from garboard_e2e.care import looked_after
from garboard_e2e.guests import HELLO
from garboard_e2e.outcome import Failure, Skipped
from garboard_e2e.patience import PATIENCE
from garboard_e2e.processes import free_port, kill, status_of
from garboard_e2e.terminal import DETACH
from garboard_e2e.user import ACCOUNT, MACHINE, User, account

PASST = "/usr/bin/passt"
GREETING = b"greetings from the guest"
# What the guest serves at port 7777. The client sends first: with passt of Debian 12 a guest that sends first is not
# received until the client has sent something.
SERVE = b"mkdir /www && echo " + GREETING + b" >/www/index.html && httpd -p 7777 -h /www\n"
# As on a host without passt, and as under a kernel that gives users no namespaces: those who are in a chroot get none.
WITHOUT_PASST = ["unshare", "--mount", "sh", "-c", f'mount --bind /dev/null {PASST} && exec "$@"', "sh"]
WITHOUT_NAMESPACES = [
    *("unshare", "--mount", "sh", "-c"),
    'mkdir "$0" && mount --rbind / "$0" && exec /usr/sbin/chroot "$0" "$@"',
]
NO_CAPABILITY = "0" * 16


@pytest.fixture(scope="module")
def an_account() -> Iterator[str]:
    if os.geteuid() != 0:
        raise Failure("this needs root, to make an account and to remove it")
    with account() as name:
        yield name


@pytest.fixture
def user(
    request: pytest.FixtureRequest,
    programs: pathlib.Path,
    hello: pathlib.Path,
    an_account: str,
    directory: pathlib.Path,
) -> Iterator[User]:
    yield from looked_after(request, User(programs, f"{HELLO}={hello}", directory))


def hidden_passt() -> list[str]:
    return WITHOUT_PASST if os.path.exists(PASST) else []


def host_address() -> str:
    """An address of this host that is not its loopback; nothing is sent."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.254", 9))
        except OSError:
            raise Skipped("this host has no network of its own") from None
        address: str = probe.getsockname()[0]
        return address


class Page(http.server.BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(200)
        self.end_headers()
        self.wfile.write(b"You have left the guest's network\n")

    def log_message(self, *_: Any) -> None:
        pass


def reaches_the_outside(user: User) -> None:
    """The guest fetches something from a server at the host's own address."""
    address = host_address()
    with http.server.ThreadingHTTPServer((address, 0), Page) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        user.shell.type(f"wget -q -O - http://{address}:{server.server_port}/; echo 'wget ended with' $?\n".encode())
        user.shell.expect("You have left the guest's network", PATIENCE)
        user.shell.expect("wget ended with 0", PATIENCE)
        server.shutdown()


def greets(port: int) -> None:
    """The guest's greeting through a published port."""
    end = time.monotonic() + PATIENCE
    answer = b""
    while GREETING not in answer:
        assert time.monotonic() < end, f"port {port} does not lead to the guest: {answer!r} came"
        try:
            with socket.create_connection(("127.0.0.1", port), timeout=20) as stream:
                stream.sendall(b"GET / HTTP/1.0\r\n\r\n")
                answer = stream.makefile("rb").read(1000)
        except OSError:
            answer = b""
            time.sleep(0.1)


def is_confined(user: User, namespaces: Sequence[str]) -> None:
    (qemu,) = user.processes(names.QEMU)
    status = status_of(qemu)
    for field, wanted in {"Seccomp": "2", "NoNewPrivs": "1", "CapEff": NO_CAPABILITY, "CapPrm": NO_CAPABILITY}.items():
        assert status[field] == wanted, f"QEMU's {field} is {status[field]}, not {wanted}"
    assert set(status["Uid"].split()) == {str(pwd.getpwnam(ACCOUNT).pw_uid)}, f"QEMU runs as {status['Uid']}"
    for namespace in namespaces:
        theirs, ours = (os.readlink(f"/proc/{process}/ns/{namespace}") for process in (qemu, "self"))
        assert theirs != ours, f"QEMU shares its {namespace} namespace with the host"
    if namespaces:
        assert not os.path.exists(f"/proc/{qemu}/root/etc/passwd"), "QEMU sees the host's files"
    for init in user.processes(names.INIT):
        assert status_of(init)["CapEff"] == NO_CAPABILITY, "PID 1 kept capabilities in its user namespace"


def commands_work(user: User) -> None:
    addresses = user.machines()[0]["status"]["interfaces"][0]["addresses"]
    assert addresses[:1] == ["10.0.2.2"], f"`garboard ps` prints the addresses {addresses}"
    user.run("pause", MACHINE)
    status = user.json("qmp", MACHINE, "query-status")["status"]
    assert status == "paused", "`garboard pause` did not stop the vCPUs"
    user.run("unpause", MACHINE)
    assert "the guest runs" in user.run("logs", MACHINE), "`garboard logs` does not show the run"
    console = user.terminal("console", MACHINE, TERM="dumb")
    console.type(b"\n")
    console.expect("# ", PATIENCE)
    console.type(DETACH)
    console.end(PATIENCE)


def supervisor_may_die(user: User, port: int) -> None:
    (qemu,), killed = user.processes(names.QEMU), user.processes(names.SUPERVISOR)
    kill(killed)
    user.wait("a supervisor after the killed one", lambda: set(user.processes(names.SUPERVISOR)) - set(killed))
    user.wait("its status", lambda: (user.machines()[0].get("status") or {}).get("phase") == "Running")
    user.run("qmp", MACHINE, "query-status")
    assert user.processes(names.QEMU) == [qemu], "the guest's QEMU went with its supervisor"
    greets(port)


def test_passt_shell_outside_published_port_confinement_commands_a_supervisor_killed(user: User) -> None:
    if not os.path.exists(PASST):
        raise Skipped("passt is not installed")
    port = free_port()
    address = user.start("-p", f"127.0.0.1:{port}:7777")
    assert address == "10.0.2.2", f"the guest has the address {address}, not that of masquerade"
    assert len(user.processes("passt")) == 1, "passt does not run"
    reaches_the_outside(user)
    user.shell.type(SERVE)
    greets(port)
    user.detach()
    is_confined(user, ["user", "mnt", "pid", "ipc", "uts"])
    commands_work(user)
    supervisor_may_die(user, port)
    user.stop()


def test_qemu_s_own_network_where_there_is_no_passt_outside_published_port_a_supervisor_killed(user: User) -> None:
    port = free_port()
    user.start("-p", f"127.0.0.1:{port}:7777", around=hidden_passt())
    assert not user.processes("passt"), "passt runs although it is hidden"
    reaches_the_outside(user)
    user.shell.type(SERVE)
    greets(port)
    user.detach()
    is_confined(user, ["user", "mnt", "pid", "ipc", "uts"])
    supervisor_may_die(user, port)
    user.stop()


def test_a_kernel_without_namespaces_for_users_is_reported_in_one_line_and_the_machine_runs(user: User) -> None:
    user.start(around=[*WITHOUT_NAMESPACES, f"{user.directory}/root"])
    screen = user.shell.screen()
    assert "may not make namespaces" in screen, f"it is not reported that the machine has no namespaces:\n{screen}"
    user.detach()
    is_confined(user, [])
    user.stop()


def refused(user: User, arguments: Sequence[str], texts: Sequence[str], code: int, around: Sequence[str] = ()) -> None:
    output = user.run("run", "--detach", "--image", user.image, *arguments, code=code, around=around)
    missing = [text for text in texts if text not in output]
    assert not missing, f"the refusal does not name {missing}: {output}"


def test_a_stop_finds_pid_1_which_lets_no_other_user_look_inside_it(user: User) -> None:
    """With shim and supervisor dead there is only what the kernel shows every user of a process."""
    user.start()
    user.detach()
    for program in (names.SHIM, names.SUPERVISOR):
        kill(user.processes(program))
    user.wait("their ends", lambda: not user.processes(names.SHIM) and not user.processes(names.SUPERVISOR))
    user.stop()


def test_what_cannot_be_had_is_refused_in_one_line(user: User) -> None:
    refused(user, [user.manifest("passtBinding")], ["passtBinding", "passt", "masquerade"], 2, hidden_passt())
    refused(user, [user.manifest("bridge")], ["interfaces[0]", "root"], 2)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        refused(user, ["-p", f"127.0.0.1:{port}:22", user.manifest()], [f"{port}", "in use"], 1)


def test_doctor_says_what_is_different_for_a_user(user: User) -> None:
    output = user.run("doctor", "-o", "json")
    checks = {check["id"]: check for check in json.loads(output)["checks"]}
    assert "user namespace of its own" in checks["user"]["detail"], checks["user"]
    assert "CAP_NET_ADMIN" in checks["tun"]["detail"], checks["tun"]
    setting = pathlib.Path("/sys/kernel/mm/transparent_hugepage/shmem_enabled").read_text().split("[")[1].split("]")[0]
    assert f"shmem_enabled is {setting}" in checks["shared-huge-pages"]["detail"], checks["shared-huge-pages"]
    hidden = user.run("doctor", "-o", "json", around=hidden_passt())
    (passt,) = [check for check in json.loads(hidden)["checks"] if check["id"] == "passt"]
    assert "apt install passt" in passt.get("remedy", ""), f"without passt doctor prints {passt}"
