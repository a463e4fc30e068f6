"""The images that a cluster runs."""

import subprocess

from garboard_e2e.cluster.build import Build
from garboard_e2e.places import REPOSITORY


def test_images_have_what_machines_need(build: Build) -> None:
    """Programs, QEMU's devices, modules, ROMs and firmware, a root that nobody may write to, licences."""
    command = (REPOSITORY / "deploy/images/check", build.images.directory)
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-1000:]
