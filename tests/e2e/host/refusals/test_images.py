"""Images that are damaged, or that reach for what is not theirs."""

import pathlib

import pytest

from garboard_e2e import bad_images
from garboard_e2e.refusals import IMAGE, INSTANCE, Bad, Bench, instance

QCOW2 = {
    "truncated": ("truncated", "cut off", "copy or download"),
    "backing": ("`/etc/shadow`", "backing file", "qemu-img convert"),
    "data-file": ("external", "qemu-img convert"),
    "future": ("unknown qcow2 features", "released QEMU"),
    "encrypted": ("encrypted", "decrypt"),
    "corrupt": ("marked corrupt", "qemu-img check"),
}
OCI = {
    "no-disk": ("no file under /disk", "add one"),
    "two-disks": (r"a\.img, b\.img", "`path`"),
    "symlink": (r"/disk/a\.img", "link", "file itself"),
    "directory-link": ("/disk",),
    "hardlink": ("disk/a.img|no file under /disk",),
    "device": (r"/disk/a\.img", "device"),
    "escaping": ("disk",),
    "empty-disk": ("empty", "put a"),
    "whiteout": ("no file under /disk",),
    "opaque": ("no file under /disk",),
    "cut-layer": ("layer|archive", "again|build|ends|cut"),
    "wrong-digest": ("sha256:", "copy the image again"),
    "wrong-size": ("sha256:", "bytes", "copy the image again"),
    "promises": ("layer", "bytes"),
    "no-blob": ("sha256|blobs", "No such file|missing|has no"),
    "no-layers": ("layer|no file under",),
    "empty-directory": ("empty-directory", "no file under /disk|disk"),
    "packed": ("packed with gzip", "gunzip"),
    "empty-file": ("is empty", "put a"),
    "broken-index": ("broken-index", "cannot be read", "again"),
    "unpacked-link": (r"disk/a\.img", "link"),
}


@pytest.fixture(scope="module")
def images_directory(bench: Bench) -> pathlib.Path:
    made = bench.directory / "images"
    made.mkdir()
    return made


@pytest.fixture(scope="module")
def qcow2_images(images_directory: pathlib.Path) -> dict[str, pathlib.Path]:
    return bad_images.qcow2_images(images_directory)


@pytest.fixture(scope="module")
def oci_images(images_directory: pathlib.Path) -> dict[str, pathlib.Path]:
    return bad_images.oci_images(images_directory)


@pytest.fixture(scope="module")
def good(images_directory: pathlib.Path) -> pathlib.Path:
    layer = bad_images.layer(bad_images.entry("disk/a.img", bad_images.SECTOR))
    return bad_images.layout(images_directory, "good", [layer])


def with_image(image: pathlib.Path) -> tuple[str, str]:
    return "--image", f"{IMAGE}={image}"


@pytest.mark.parametrize("mistake", QCOW2)
def test_a_qcow2(bench: Bench, qcow2_images: dict[str, pathlib.Path], mistake: str) -> None:
    bench.refuses(Bad(QCOW2[mistake], INSTANCE, options=with_image(qcow2_images[mistake])))


@pytest.mark.parametrize("mistake", OCI)
def test_an_image(bench: Bench, oci_images: dict[str, pathlib.Path], mistake: str) -> None:
    bench.refuses(Bad(OCI[mistake], INSTANCE, options=with_image(oci_images[mistake])))


def test_an_image_that_is_not_there(bench: Bench) -> None:
    image = with_image(pathlib.Path("/nowhere.img"))
    bench.refuses(Bad(("/nowhere.img", "there is no", "check the name"), INSTANCE, options=image))


def test_a_disk_path_that_leads_out(bench: Bench, good: pathlib.Path) -> None:
    outside = instance(spec__volumes__0__containerDisk__path="../../etc/shadow")
    bench.refuses(Bad((r"volumes\[0\]", r"path"), outside, options=with_image(good)))


def test_a_disk_path_that_is_not_there(bench: Bench, good: pathlib.Path) -> None:
    absent = instance(spec__volumes__0__containerDisk__path="/disk/b.img")
    bench.refuses(Bad((r"volumes\[0\]", r"/disk/b\.img"), absent, options=with_image(good)))


def test_a_kernel_that_is_not_there(bench: Bench, good: pathlib.Path) -> None:
    container = {"image": IMAGE, "kernelPath": "/boot/vmlinuz"}
    kernel = instance(spec__domain__firmware={"kernelBoot": {"container": container}})
    bench.refuses(Bad(("/boot/vmlinuz",), kernel, options=with_image(good)))


def test_a_reference_that_is_none(bench: Bench) -> None:
    reference = instance(spec__volumes__0__containerDisk__image="Not A Reference")
    bench.refuses(Bad((r"volumes\[0\]", "registry/name:tag"), reference))
