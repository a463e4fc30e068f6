#!/usr/bin/python3 -B
"""The launcher's image with a QEMU that was taken over: tests/hostile/hostile_qemu.py at the place of QEMU, and the interpreter of
this machine with the modules that it imports.

  taken_over.py LAUNCHER.tar ATTACK-JSON OUT.tar

The image keeps its name: it is for one node of a test cluster. The machine has to be a Debian 12, as the image is.
"""

import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile

REPOSITORY = pathlib.Path(__file__).resolve().parents[2]
PYTHON = pathlib.Path("/usr/bin/python3")
QEMU = "usr/bin/qemu-system-x86_64"
LIBRARIES = pathlib.Path("/usr/lib/x86_64-linux-gnu")


def blob(archive, digest):
    return archive.extractfile("blobs/" + digest.replace(":", "/"))


def unpack(archive, root):
    """All layers in `root`; the image's configuration and its name."""
    manifest = json.load(archive.extractfile("index.json"))["manifests"][0]
    name = manifest["annotations"]["io.containerd.image.name"]
    described = json.load(blob(archive, manifest["digest"]))
    for layer in described["layers"]:
        with tarfile.open(fileobj=blob(archive, layer["digest"])) as files:
            files.extractall(root)
    return json.load(blob(archive, described["config"]["digest"]))["config"], name


def imported():
    """The files of every module that the attack imports."""
    code = ("import sys; sys.path.insert(0, sys.argv[1]); import hostile_qemu\n"
            "for module in list(sys.modules.values()): print(getattr(module, '__file__', None) or '')")
    listed = subprocess.run([PYTHON, "-B", "-c", code, REPOSITORY / "tests/hostile"], check=True, capture_output=True, text=True)
    files = [pathlib.Path(line) for line in listed.stdout.splitlines() if line.startswith("/usr/lib/python3")]
    return files + list(pathlib.Path("/usr/lib").glob("python3.*/os.py"))


def libraries(program):
    listed = subprocess.run(["ldd", program], check=True, capture_output=True, text=True).stdout
    return [pathlib.Path(path).resolve() for path in re.findall(r"=> (/\S+) ", listed)], re.findall(r"(\S+) => /", listed)


def add_python(root):
    files = imported()
    shutil.copy(PYTHON.resolve(), root / "usr/bin/python3")
    for file in files:
        target = root / file.relative_to("/")
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(file, target)
    for program in [PYTHON, *(file for file in files if ".so" in file.name)]:
        for found, name in zip(*libraries(program)):
            if not (target := root / LIBRARIES.relative_to("/") / name).exists():
                shutil.copy(found, target)


def main():
    archive, attack, out = sys.argv[1:]
    with tempfile.TemporaryDirectory() as work, tarfile.open(archive) as image:
        root = pathlib.Path(work, "root")
        config, name = unpack(image, root)
        os.rename(root / QEMU, root / (QEMU + ".real"))
        shutil.copy(REPOSITORY / "tests/hostile/hostile_qemu.py", root / QEMU)
        (root / QEMU).chmod(0o755)
        about = {**json.loads(attack), "real": f"/{QEMU}.real"}
        (root / QEMU).with_name("attack.json").write_text(json.dumps(about))
        add_python(root)
        subprocess.run([REPOSITORY / "deploy/images/pack", out, name, "--config", json.dumps(config), "--owned",
                        "107=var/cache/garboard", root], check=True)


main()
