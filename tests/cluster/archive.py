"""Images without a registry, as docker-archives of one layer with a few files."""

import io
import json
import platform
import tarfile
from collections.abc import Mapping, Sequence
from hashlib import sha256
from pathlib import Path
from typing import Any

ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}
"""Names of processors in images, by the name that ``uname`` prints."""
BEGINNING = "1970-01-01T00:00:00Z"


def write_archive(
    path: Path, name: str, files: Mapping[str, Path | bytes], entrypoint: Sequence[str]
) -> Path:
    """Write an image of executable ``files``, given by their paths in it, and return ``path``."""
    layer = io.BytesIO()
    with tarfile.open(fileobj=layer, mode="w") as tar:
        for inside, content in files.items():
            _add(tar, inside, content if isinstance(content, bytes) else content.read_bytes())
    config = {
        "architecture": ARCHITECTURES.get(platform.machine(), platform.machine()),
        "os": "linux",
        "created": BEGINNING,
        "config": {"Entrypoint": list(entrypoint)},
        "history": [{"created": BEGINNING}],
        "rootfs": {"type": "layers", "diff_ids": [f"sha256:{_digest(layer.getvalue())}"]},
    }
    config_json = _json(config)
    config_name = f"{_digest(config_json)}.json"
    manifest = [{"Config": config_name, "RepoTags": [name], "Layers": ["layer.tar"]}]
    with tarfile.open(path, "w") as tar:
        _add(tar, "manifest.json", _json(manifest))
        _add(tar, config_name, config_json)
        _add(tar, "layer.tar", layer.getvalue())
    return path


def read_archive(path: Path) -> dict[str, str]:
    """Return the id of each image of a docker-archive, by its name in containerd."""
    with tarfile.open(path) as tar:
        manifest = tar.extractfile("manifest.json")
        assert manifest
        images = json.load(manifest)
    return {
        full_name(name): f"sha256:{Path(image['Config']).stem}"
        for image in images
        for name in image["RepoTags"]
    }


def full_name(name: str) -> str:
    """Return an image's name with its registry, which users leave out if it is Docker's."""
    first, slash, _ = name.partition("/")
    if slash and (first == "localhost" or "." in first or ":" in first):
        return name
    return f"docker.io/{name}" if slash else f"docker.io/library/{name}"


def _add(tar: tarfile.TarFile, name: str, content: bytes) -> None:
    file = tarfile.TarInfo(name.lstrip("/"))
    file.size, file.mode = len(content), 0o755
    tar.addfile(file, io.BytesIO(content))


def _json(value: Any) -> bytes:
    return json.dumps(value).encode()


def _digest(content: bytes) -> str:
    return sha256(content).hexdigest()
