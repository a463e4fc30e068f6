"""An OCI image layout written file by file, byte for byte repeatable: what oci-pack and deploy/images/pack share.

Follows the OCI image specification 1.1. Times are zero everywhere.
"""

import contextlib
import gzip
import hashlib
import io
import json
import pathlib
from collections.abc import Callable
from typing import Any, BinaryIO, cast

MEDIA_TYPE = "application/vnd.oci.image"
Json = dict[str, Any]


class HashingWriter(io.RawIOBase):
    """Writes through, keeping length and digest."""

    def __init__(self, out: BinaryIO) -> None:
        self.out, self.length, self.hash = out, 0, hashlib.sha256()

    def writable(self) -> bool:
        return True

    def tell(self) -> int:
        return self.length

    def write(self, data: Any) -> int:
        self.hash.update(data)
        self.length += len(data)
        return self.out.write(data)

    def descriptor(self, media_type: str) -> Json:
        return {"mediaType": media_type, "digest": f"sha256:{self.hash.hexdigest()}", "size": self.length}


class Layout:
    """A directory that becomes the layout of one image."""

    def __init__(self, directory: pathlib.Path) -> None:
        self.directory = directory
        self.blobs = self.directory / "blobs" / "sha256"
        self.blobs.mkdir(parents=True)
        self.layers: list[Json] = []
        self.diff_ids: list[str] = []

    def add_layer(self, write_tar: Callable[[BinaryIO], None], compress: int = 0) -> None:
        """Stores what `write_tar(out)` writes, packed with gzip's level `compress` unless that is 0."""
        unfinished = self.blobs / "layer"
        with open(unfinished, "wb") as out:
            stored = HashingWriter(out)
            packer = contextlib.nullcontext(stored) if not compress else packed(stored, compress)
            with packer as inner:
                tar = HashingWriter(cast(BinaryIO, inner))
                write_tar(cast(BinaryIO, tar))
        unfinished.rename(self.blobs / stored.hash.hexdigest())
        self.layers.append(stored.descriptor(f"{MEDIA_TYPE}.layer.v1.tar{'+gzip' if compress else ''}"))
        self.diff_ids.append(f"sha256:{tar.hash.hexdigest()}")

    def finish(self, config: Json, annotations: Json) -> str:
        """Writes configuration, manifest and index; returns the manifest's digest."""
        manifest = self._store_json(
            "manifest",
            {
                "schemaVersion": 2,
                "mediaType": f"{MEDIA_TYPE}.manifest.v1+json",
                "config": self._store_json(
                    "config",
                    {
                        "architecture": "amd64",
                        "os": "linux",
                        "config": config,
                        "rootfs": {"type": "layers", "diff_ids": self.diff_ids},
                    },
                ),
                "layers": self.layers,
            },
        )
        manifest["platform"] = {"architecture": "amd64", "os": "linux"}
        manifest["annotations"] = annotations
        index = {"schemaVersion": 2, "mediaType": f"{MEDIA_TYPE}.index.v1+json", "manifests": [manifest]}
        (self.directory / "index.json").write_text(json.dumps(index, indent=2, sort_keys=True) + "\n")
        (self.directory / "oci-layout").write_text('{"imageLayoutVersion": "1.0.0"}\n')
        return str(manifest["digest"])

    def _store_json(self, kind: str, value: Json) -> Json:
        content = json.dumps(value, separators=(",", ":"), sort_keys=True).encode()
        digest = hashlib.sha256(content).hexdigest()
        (self.blobs / digest).write_bytes(content)
        return {"mediaType": f"{MEDIA_TYPE}.{kind}.v1+json", "digest": f"sha256:{digest}", "size": len(content)}


def packed(out: HashingWriter, level: int) -> gzip.GzipFile:
    """Packs what is written, the same each time."""
    return gzip.GzipFile(filename="", mode="wb", fileobj=cast(BinaryIO, out), compresslevel=level, mtime=0)
