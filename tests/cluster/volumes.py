"""A pod's volumes as folders, written and updated as a kubelet does."""

import base64
import os
import shutil
import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from cluster.pod_spec import Unsupported
from cluster.rest import Json

# The API server adds these sources for a ServiceAccount's token. Processes here receive the token
# through KUBECONFIG, because clients look for the files in a fixed path.
ACCOUNT_SOURCES = {"serviceAccountToken", "configMap", "downwardAPI"}


Sources = Mapping[tuple[str, str], Json]
"""Secrets and ConfigMaps of a namespace, by kind (``secret``, ``configMap``) and name."""


class NotThereYet(Exception):
    """Object or key of a volume that does not exist yet, so that the pod has to wait."""


def content(volume: Json, sources: Sources) -> dict[str, bytes]:
    """Return the files of a volume by their path in it.

    ``sources`` are the sources of the volume's namespace. Raises NotThereYet, and Unsupported for
    kinds other than Secrets, ConfigMaps and emptyDir.
    """
    if "emptyDir" in volume:
        return {}
    if "secret" in volume:
        source = volume["secret"]
        return _files("secret", source["secretName"], source, sources)
    if "configMap" in volume:
        source = volume["configMap"]
        return _files("configMap", source["name"], source, sources)
    if "projected" in volume:
        files: dict[str, bytes] = {}
        for projected in volume["projected"]["sources"]:
            if source := projected.get("secret"):
                files |= _files("secret", source["name"], source, sources)
            elif not projected.keys() <= ACCOUNT_SOURCES:
                raise Unsupported(f"volume {volume['name']}: {projected} is not known here")
        return files
    raise Unsupported(f"volume {volume['name']} is of a kind that is not known here: {volume}")


def _files(kind: str, name: str, source: Json, sources: Sources) -> dict[str, bytes]:
    optional = source.get("optional", False)
    if (kind, name) not in sources:
        if optional:
            return {}
        raise NotThereYet(f'{kind} "{name}" not found')
    found: dict[str, Any] = sources[kind, name].get("data", {})
    decode = base64.b64decode if kind == "secret" else str.encode
    data = {key: decode(value) for key, value in found.items()}
    if "items" not in source:
        return data
    files = {}
    for item in source["items"]:
        if item["key"] in data:
            files[item["path"]] = data[item["key"]]
        elif not optional:
            raise NotThereYet(f'references non-existent {kind} key: "{item["key"]}"')
    return files


def write(folder: Path, files: Mapping[str, bytes]) -> None:
    """Write these files to ``folder`` atomically (Kubernetes' AtomicWriter).

    ``name -> ..data/name``, ``..data -> ..<version>``: one rename activates a new version.
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
