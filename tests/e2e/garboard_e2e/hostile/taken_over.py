"""The launcher's image with a QEMU that was taken over: qemu.py in QEMU's place, and the interpreter of this machine
with the modules that it imports. The image keeps its name: it is for one node of a test cluster. The machine has to be
a Debian 12, as the image is."""

import json
import os
import pathlib
import re
import shutil
import subprocess
import tarfile
import tempfile
from typing import IO, Any

from ..outcome import Failure
from ..places import REPOSITORY

HERE = pathlib.Path(__file__).parent
ATTACKER = HERE / "qemu.py"
PYTHON = pathlib.Path("/usr/bin/python3")
QEMU = "usr/bin/qemu-system-x86_64"
LIBRARIES = pathlib.Path("/usr/lib/x86_64-linux-gnu")
# Prints the file of each module that the attacker imports.
IMPORTS = """
import sys
sys.path.insert(0, sys.argv[1])
import qemu
for module in list(sys.modules.values()):
    print(getattr(module, "__file__", None) or "")
"""


def written(archive: pathlib.Path, attack: dict[str, Any], out: pathlib.Path) -> pathlib.Path:
    """The archive `out` of the image in `archive` with the attack in it."""
    with tempfile.TemporaryDirectory() as work, tarfile.open(archive) as image:
        root = pathlib.Path(work, "root")
        config, name = unpack(image, root)
        qemu = root / QEMU
        os.rename(qemu, f"{qemu}.real")
        shutil.copy(ATTACKER, qemu)
        qemu.chmod(0o755)
        qemu.with_name("attack.json").write_text(json.dumps(attack | {"real": f"/{QEMU}.real"}))
        add_python(root)
        options = ["--config", json.dumps(config), "--owned", "107=var/cache/garboard"]
        pack = [str(each) for each in (REPOSITORY / "deploy/images/pack", out, name, *options, root)]
        subprocess.run(pack, check=True)
    return out


def member(archive: tarfile.TarFile, name: str) -> IO[bytes]:
    found = archive.extractfile(name)
    if found is None:
        raise Failure(f"{archive.name!r} has no file {name}")
    return found


def blob(archive: tarfile.TarFile, digest: str) -> IO[bytes]:
    return member(archive, "blobs/" + digest.replace(":", "/"))


def unpack(archive: tarfile.TarFile, root: pathlib.Path) -> tuple[Any, str]:
    """All layers in `root`; the image's configuration and its name."""
    manifest = json.load(member(archive, "index.json"))["manifests"][0]
    name = manifest["annotations"]["io.containerd.image.name"]
    described = json.load(blob(archive, manifest["digest"]))
    for layer in described["layers"]:
        with tarfile.open(fileobj=blob(archive, layer["digest"])) as files:
            files.extractall(root)
    return json.load(blob(archive, described["config"]["digest"]))["config"], name


def imported() -> list[pathlib.Path]:
    """The files of every module that the attack imports."""
    command = [str(PYTHON), "-B", "-c", IMPORTS, str(HERE)]
    listed = subprocess.run(command, check=True, capture_output=True, text=True).stdout.splitlines()
    files = [pathlib.Path(line) for line in listed if line.startswith("/usr/lib/python3")]
    return files + list(pathlib.Path("/usr/lib").glob("python3.*/os.py"))


def libraries(program: pathlib.Path) -> dict[str, pathlib.Path]:
    """What a program is linked with, by the name that it asks for."""
    listed = subprocess.run(["ldd", program], check=True, capture_output=True, text=True).stdout
    return {name: pathlib.Path(path).resolve() for name, path in re.findall(r"(\S+) => (/\S+) ", listed)}


def add_python(root: pathlib.Path) -> None:
    files = imported()
    shutil.copy(PYTHON.resolve(), root / "usr/bin/python3")
    for file in files:
        target = root / file.relative_to("/")
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(file, target)
    for program in [PYTHON, *(file for file in files if ".so" in file.name)]:
        for name, found in libraries(program).items():
            if not (target := root / LIBRARIES.relative_to("/") / name).exists():
                shutil.copy(found, target)
