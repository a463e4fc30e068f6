"""A container registry on loopback (Debian's docker-registry) and pushing an OCI layout to it, over its HTTP API."""

import base64
import email.message
import json
import pathlib
import signal
import subprocess
import time
import urllib.error
import urllib.request
from typing import Any

from .outcome import Failure
from .patience import PATIENCE
from .places import SCRIPTS
from .processes import free_port

# `user` / `word`, as `htpasswd -B` writes it.
USER, PASSWORD = "user", "word"
HTPASSWD = "user:$2y$04$3P.H4lFZdpLaAKqraD.h6.kpz/9BpB2JULWN6sjcOJ8oN/UrAoAAS\n"


class Registry:
    """A registry process; `password` makes it ask for USER and PASSWORD."""

    def __init__(self, directory: pathlib.Path, password: bool = False) -> None:
        program = subprocess.run(
            [SCRIPTS / "fetch-registry"], check=True, capture_output=True, text=True
        ).stdout.strip()
        self.address, self.password = f"127.0.0.1:{free_port()}", password
        directory.mkdir()
        config: dict[str, Any] = {
            "version": 0.1,
            "log": {"level": "warn"},
            "http": {"addr": self.address},
            "storage": {"filesystem": {"rootdirectory": str(directory / "storage")}},
        }
        if password:
            (directory / "htpasswd").write_text(HTPASSWD)
            config["auth"] = {"htpasswd": {"realm": "check", "path": str(directory / "htpasswd")}}
        # YAML reads JSON.
        (directory / "config.yml").write_text(json.dumps(config))
        self.process = subprocess.Popen(
            [program, "serve", directory / "config.yml"], stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL
        )
        self.wait()

    def wait(self) -> None:
        end = time.monotonic() + PATIENCE
        while True:
            try:
                self.ask("GET", f"http://{self.address}/v2/")
                return
            except urllib.error.URLError as problem:
                if self.process.poll() is not None or time.monotonic() > end:
                    self.stop()
                    raise Failure("the registry did not start") from problem
                time.sleep(0.05)

    def ask(self, method: str, url: str, body: bytes | None = None, kind: str | None = None) -> email.message.Message:
        request = urllib.request.Request(url, data=body, method=method)
        if self.password:
            request.add_header("Authorization", "Basic " + base64.b64encode(f"{USER}:{PASSWORD}".encode()).decode())
        if kind:
            request.add_header("Content-Type", kind)
        with urllib.request.urlopen(request, timeout=PATIENCE) as answer:
            headers: email.message.Message = answer.headers
            return headers

    def push(self, layout: pathlib.Path, name: str) -> str:
        """Everything of a layout with one image, as `name:1`; returns the reference."""
        repository = f"http://{self.address}/v2/{name}"
        manifest_at = json.loads((layout / "index.json").read_text())["manifests"][0]
        manifest = blob(layout, manifest_at).read_bytes()
        parts = json.loads(manifest)
        for part in [parts["config"], *parts["layers"]]:
            place = self.ask("POST", f"{repository}/blobs/uploads/", b"")["Location"]
            place += f"{'&' if '?' in place else '?'}digest={part['digest']}"
            self.ask("PUT", place, blob(layout, part).read_bytes(), "application/octet-stream")
        self.ask("PUT", f"{repository}/manifests/1", manifest, manifest_at["mediaType"])
        return f"{self.address}/{name}:1"

    def stop(self) -> None:
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
            try:
                self.process.wait(10)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()

    def __enter__(self) -> "Registry":
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()


def blob(layout: pathlib.Path, descriptor: dict[str, str]) -> pathlib.Path:
    return layout / "blobs" / descriptor["digest"].replace(":", "/")
