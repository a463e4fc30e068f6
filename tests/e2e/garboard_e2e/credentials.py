"""Keys and passwords of `spec.accessCredentials`, and what the hello guest's agent prints of them. Pure."""

import base64
import hashlib
from typing import Any

KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAA ada@quay"
OTHER_KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5BBBB bob@quay"


def by_agent(keys: str, passwords: str, *users: str) -> list[dict[str, Any]]:
    """The credentials whose Secrets have these names."""
    key = {"source": {"secret": {"secretName": keys}}, "propagationMethod": {"qemuGuestAgent": {"users": list(users)}}}
    password = {"source": {"secret": {"secretName": passwords}}, "propagationMethod": {"qemuGuestAgent": {}}}
    return [{"sshPublicKey": key}, {"userPassword": password}]


def secret(name: str, **entries: str) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name}, "stringData": entries}


def encoded(password: str) -> str:
    """As the agent is sent it."""
    return base64.b64encode(password.encode()).decode()


def printed_keys(user: str, *keys: str) -> str:
    return f"garboard-hello: agent keys of {user}, reset true: " + ",".join(f'"{key}"' for key in keys)


def printed_password(user: str, password: str) -> str:
    return f"garboard-hello: agent password of {user}: {hashlib.md5(encoded(password).encode()).hexdigest()}"
