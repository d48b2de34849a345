"""A pod's volumes as folders, laid out and rewritten as a kubelet does it."""

import base64
import os
import shutil
import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from cluster.pod_spec import Unsupported
from cluster.rest import Json

# What the API server adds for a ServiceAccount's token. It reaches processes here by KUBECONFIG, as
# the place where clients look for the files is fixed.
ACCOUNT_SOURCES = {"serviceAccountToken", "configMap", "downwardAPI"}


class NotThereYet(Exception):
    """A Secret or a key that a volume needs does not exist: the pod has to wait."""


def content(volume: Json, secrets: Mapping[str, Json]) -> dict[str, bytes]:
    """The files of a volume by their path in it; ``secrets`` are those of its namespace.

    Raises NotThereYet, and Unsupported for other kinds than Secrets and emptyDir.
    """
    if "emptyDir" in volume:
        return {}
    if "secret" in volume:
        source = volume["secret"]
        return _secret(source["secretName"], source, secrets)
    if "projected" in volume:
        files: dict[str, bytes] = {}
        for projected in volume["projected"]["sources"]:
            if source := projected.get("secret"):
                files |= _secret(source["name"], source, secrets)
            elif not projected.keys() <= ACCOUNT_SOURCES:
                raise Unsupported(f"volume {volume['name']}: {projected} is not known here")
        return files
    raise Unsupported(f"volume {volume['name']} is of a kind that is not known here: {volume}")


def _secret(name: str, source: Json, secrets: Mapping[str, Json]) -> dict[str, bytes]:
    optional = source.get("optional", False)
    if name not in secrets:
        if optional:
            return {}
        raise NotThereYet(f'secret "{name}" not found')
    data: dict[str, Any] = secrets[name].get("data", {})
    if "items" not in source:
        return {key: base64.b64decode(value) for key, value in data.items()}
    files = {}
    for item in source["items"]:
        if item["key"] in data:
            files[item["path"]] = base64.b64decode(data[item["key"]])
        elif not optional:
            raise NotThereYet(f'references non-existent secret key: "{item["key"]}"')
    return files


def write(folder: Path, files: Mapping[str, bytes]) -> None:
    """Make ``folder`` hold these files, all of them in one moment (Kubernetes' AtomicWriter).

    ``name -> ..data/name``, ``..data -> ..<version>``: one rename puts a new version in place.
    """
    folder.mkdir(parents=True, exist_ok=True)
    data = folder / "..data"
    old = data.readlink() if data.is_symlink() else None
    version = folder / f"..{uuid.uuid4().hex}"
    version.mkdir()
    for path, file_content in files.items():
        (version / path).parent.mkdir(parents=True, exist_ok=True)
        (version / path).write_bytes(file_content)
    scratch = folder / "..data_tmp"
    scratch.symlink_to(version.name)
    scratch.replace(data)
    wanted = {path.partition("/")[0] for path in files}
    for name in wanted:
        if not os.path.lexists(folder / name):
            (folder / name).symlink_to(f"..data/{name}")
    for entry in folder.iterdir():
        if not entry.name.startswith("..") and entry.name not in wanted:
            entry.unlink()
    if old:
        shutil.rmtree(folder / old)
