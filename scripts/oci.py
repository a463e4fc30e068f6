"""An OCI image layout written file by file, byte for byte repeatable: what oci-pack and deploy/images/pack share.

Follows the OCI image specification 1.1. Times are zero everywhere.
"""

import gzip
import hashlib
import io
import json
import pathlib

MEDIA_TYPE = "application/vnd.oci.image"


class HashingWriter(io.RawIOBase):
    """Writes through, keeping length and digest."""

    def __init__(self, out):
        self.out, self.length, self.hash = out, 0, hashlib.sha256()

    def writable(self):
        return True

    def tell(self):
        return self.length

    def write(self, data):
        self.hash.update(data)
        self.length += len(data)
        return self.out.write(data)

    def descriptor(self, media_type):
        return {"mediaType": media_type, "digest": f"sha256:{self.hash.hexdigest()}", "size": self.length}


class Layout:
    """A directory that becomes the layout of one image."""

    def __init__(self, directory):
        self.directory = pathlib.Path(directory)
        self.blobs = self.directory / "blobs" / "sha256"
        self.blobs.mkdir(parents=True)
        self.layers, self.diff_ids = [], []

    def add_layer(self, write_tar, compress=0):
        """Stores what `write_tar(out)` writes, packed with gzip's level `compress` unless that is 0."""
        unfinished = self.blobs / "layer"
        with open(unfinished, "wb") as out:
            stored = HashingWriter(out)
            packer = stored
            if compress:
                packer = gzip.GzipFile(filename="", mode="wb", fileobj=stored, compresslevel=compress, mtime=0)
            tar = HashingWriter(packer)
            write_tar(tar)
            if compress:
                packer.close()
        unfinished.rename(self.blobs / stored.hash.hexdigest())
        self.layers.append(stored.descriptor(f"{MEDIA_TYPE}.layer.v1.tar{'+gzip' if compress else ''}"))
        self.diff_ids.append(f"sha256:{tar.hash.hexdigest()}")

    def finish(self, config, annotations):
        """Writes configuration, manifest and index; returns the manifest's digest."""
        manifest = self._store_json("manifest", {
            "schemaVersion": 2, "mediaType": f"{MEDIA_TYPE}.manifest.v1+json",
            "config": self._store_json("config", {
                "architecture": "amd64", "os": "linux", "config": config,
                "rootfs": {"type": "layers", "diff_ids": self.diff_ids},
            }),
            "layers": self.layers,
        })
        manifest["platform"] = {"architecture": "amd64", "os": "linux"}
        manifest["annotations"] = annotations
        index = {"schemaVersion": 2, "mediaType": f"{MEDIA_TYPE}.index.v1+json", "manifests": [manifest]}
        (self.directory / "index.json").write_text(json.dumps(index, indent=2, sort_keys=True) + "\n")
        (self.directory / "oci-layout").write_text('{"imageLayoutVersion": "1.0.0"}\n')
        return manifest["digest"]

    def _store_json(self, kind, value):
        content = json.dumps(value, separators=(",", ":"), sort_keys=True).encode()
        digest = hashlib.sha256(content).hexdigest()
        (self.blobs / digest).write_bytes(content)
        return {"mediaType": f"{MEDIA_TYPE}.{kind}.v1+json", "digest": f"sha256:{digest}", "size": len(content)}
