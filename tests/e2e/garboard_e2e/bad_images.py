"""Disk images and OCI images with which something is wrong, made on the spot."""

import gzip
import hashlib
import io
import json
import pathlib
import struct
import subprocess
import tarfile
from collections.abc import Callable
from typing import Any

# A file of a layer, and what is in it.
Member = tuple[tarfile.TarInfo, bytes | None]
Change = Callable[[dict[str, Any], pathlib.Path], None]
SECTOR = b"\x00" * 510 + b"\x55\xaa"


def sha256(content: bytes) -> str:
    return f"sha256:{hashlib.sha256(content).hexdigest()}"


def qcow2(path: pathlib.Path, *options: str, size: str = "16M") -> pathlib.Path:
    """A sound image, made by qemu-img."""
    subprocess.run(["qemu-img", "create", "-q", "-f", "qcow2", *options, str(path), size], check=True)
    return path


def patched(path: pathlib.Path, changes: dict[int, bytes]) -> pathlib.Path:
    """A sound image with bytes of its header replaced: offset → bytes."""
    qcow2(path)
    with open(path, "r+b") as image:
        for offset, content in changes.items():
            image.seek(offset)
            image.write(content)
    return path


def truncated(path: pathlib.Path) -> pathlib.Path:
    """A qcow2 whose download was broken off."""
    qcow2(path)
    with open(path, "r+b") as image:
        image.truncate(100)
    return path


def qcow2_images(directory: pathlib.Path) -> dict[str, pathlib.Path]:
    """Name of the mistake → image."""
    external = directory / "external.qcow2"
    qcow2(external, "-o", f"data_file={directory / 'external.raw'}")
    return {
        "truncated": truncated(directory / "truncated.qcow2"),
        "backing": patched(directory / "backing.qcow2", {8: struct.pack(">QI", 512, 11), 512: b"/etc/shadow"}),
        "data-file": external,
        "future": patched(directory / "future.qcow2", {72: b"\x80"}),
        "encrypted": patched(directory / "encrypted.qcow2", {32: struct.pack(">I", 2)}),
        "corrupt": patched(directory / "corrupt.qcow2", {79: b"\x02"}),
    }


def entry(name: str, content: bytes | None = None, kind: bytes = tarfile.REGTYPE, link: str = "") -> Member:
    """A member of a layer; without content it is as usual for its kind."""
    member = tarfile.TarInfo(name)
    member.type, member.linkname, member.mode, member.uid, member.gid = kind, link, 0o644, 107, 107
    member.size = len(content) if content is not None else 0
    if kind in (tarfile.CHRTYPE, tarfile.BLKTYPE):
        member.devmajor, member.devminor = 1, 1
    return member, content


def layer(*members: Member) -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=tarfile.PAX_FORMAT) as archive:
        for member, content in members:
            archive.addfile(member, io.BytesIO(content) if content is not None else None)
    return out.getvalue()


def layout(parent: pathlib.Path, name: str, layers: list[bytes], change: Change | None = None) -> pathlib.Path:
    """An OCI layout of these layers, lowest first. `change` may falsify the manifest before it is stored."""
    directory = parent / name
    blobs = directory / "blobs/sha256"
    blobs.mkdir(parents=True)

    def store(content: bytes, kind: str) -> dict[str, Any]:
        (blobs / sha256(content).partition(":")[2]).write_bytes(content)
        return {"mediaType": kind, "digest": sha256(content), "size": len(content)}

    manifest: dict[str, Any] = {
        "schemaVersion": 2,
        "mediaType": "application/vnd.oci.image.manifest.v1+json",
        "config": store(b"{}", "application/vnd.oci.image.config.v1+json"),
        "layers": [store(content, "application/vnd.oci.image.layer.v1.tar") for content in layers],
    }
    if change:
        change(manifest, blobs)
    stored = store(json.dumps(manifest).encode(), "application/vnd.oci.image.manifest.v1+json")
    stored["platform"] = {"architecture": "amd64", "os": "linux"}
    index = {"schemaVersion": 2, "mediaType": "application/vnd.oci.image.index.v1+json", "manifests": [stored]}
    (directory / "index.json").write_text(json.dumps(index))
    (directory / "oci-layout").write_text('{"imageLayoutVersion": "1.0.0"}')
    return directory


def change_digest(manifest: dict[str, Any], blobs: pathlib.Path) -> None:
    """The blob keeps its name and gets another content of the same length."""
    path = blobs / manifest["layers"][0]["digest"].partition(":")[2]
    path.write_bytes(bytes(len(path.read_bytes())))


def change_size(manifest: dict[str, Any], _: pathlib.Path) -> None:
    manifest["layers"][0]["size"] += 512


def promise_too_much(manifest: dict[str, Any], _: pathlib.Path) -> None:
    manifest["layers"][0]["size"] = 1 << 60


def without_blob(manifest: dict[str, Any], blobs: pathlib.Path) -> None:
    (blobs / manifest["layers"][0]["digest"].partition(":")[2]).unlink()


def oci_images(directory: pathlib.Path) -> dict[str, pathlib.Path]:
    """Name of the mistake → layout, archive or directory."""
    disk = entry("disk/a.img", SECTOR)
    images = {
        "no-disk": layout(directory, "no-disk", [layer(entry("etc/hostname", b"x"))]),
        "two-disks": layout(directory, "two-disks", [layer(disk, entry("disk/b.img", SECTOR))]),
        "symlink": layout(directory, "symlink", [layer(entry("disk/a.img", kind=tarfile.SYMTYPE, link="/etc/shadow"))]),
        "directory-link": layout(
            directory, "directory-link", [layer(entry("disk", kind=tarfile.SYMTYPE, link="/etc"))]
        ),
        "hardlink": layout(
            directory, "hardlink", [layer(entry("disk/a.img", kind=tarfile.LNKTYPE, link="../../etc/shadow"))]
        ),
        "device": layout(directory, "device", [layer(entry("disk/a.img", kind=tarfile.BLKTYPE))]),
        "escaping": layout(directory, "escaping", [layer(entry("disk/../../../a.img", SECTOR))]),
        "empty-disk": layout(directory, "empty-disk", [layer(entry("disk/a.img", b""))]),
        "whiteout": layout(directory, "whiteout", [layer(disk), layer(entry("disk/.wh.a.img", b""))]),
        "opaque": layout(directory, "opaque", [layer(disk), layer(entry("disk/.wh..wh..opq", b""))]),
        "cut-layer": layout(directory, "cut-layer", [layer(disk)[:700]]),
        "wrong-digest": layout(directory, "wrong-digest", [layer(disk)], change_digest),
        "wrong-size": layout(directory, "wrong-size", [layer(disk)], change_size),
        "promises": layout(directory, "promises", [layer(disk)], promise_too_much),
        "no-blob": layout(directory, "no-blob", [layer(disk)], without_blob),
        "no-layers": layout(directory, "no-layers", []),
        "empty-directory": directory / "empty-directory",
        "packed": directory / "packed.qcow2.gz",
        "empty-file": directory / "empty.img",
    }
    images["empty-directory"].mkdir()
    images["packed"].write_bytes(gzip.compress(SECTOR))
    images["empty-file"].write_bytes(b"")
    (directory / "broken-index").mkdir()
    (directory / "broken-index/index.json").write_text("{ not json")
    images["broken-index"] = directory / "broken-index"
    unpacked = directory / "unpacked-link/disk"
    unpacked.mkdir(parents=True)
    (unpacked / "a.img").symlink_to("/etc/hostname")
    images["unpacked-link"] = directory / "unpacked-link"
    return images
