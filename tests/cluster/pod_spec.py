"""Translation of a pod's spec for local processes: commands, environment and paths.

All functions are pure. An image is represented by its entrypoint in the current environment.
"""

import re
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath

from cluster.rest import Json

CLONE = Path(__file__).parents[2]
ENTRYPOINTS = {
    "headrace-spark:": ["bash", str(CLONE / "spark-jobs" / "entrypoint.sh")],
    "": ["headrace"],
}
"""Entrypoints by the beginning of the image's name."""
LOCALLY = {
    "headrace": [sys.executable, "-m", "headrace"],
    "python": [sys.executable],
    "python3": [sys.executable],
    "spark-submit": [str(Path(sys.executable).parent / "spark-submit")],
}
"""Local commands for commands of an image. All others are found on PATH."""


class Unsupported(Exception):
    """Part of a pod's spec that is wrong or that the stand-in does not support."""


def refuse_unknown(pod: Json) -> None:
    """Reject a pod that would run differently than on a node.

    Raises Unsupported.
    """
    spec = pod["spec"]
    containers = spec["containers"]
    mounts = [mount for one in containers for mount in one.get("volumeMounts", [])]
    for what, is_there in {
        f"restartPolicy {spec['restartPolicy']}": spec["restartPolicy"] == "OnFailure",
        "an init container": "initContainers" in spec,
        "a hook (lifecycle)": any("lifecycle" in one for one in containers),
        "envFrom": any("envFrom" in one for one in containers),
        "subPath": any(mount.keys() & {"subPath", "subPathExpr"} for mount in mounts),
    }.items():
        if is_there:
            raise Unsupported(f"{what} is not known here")


FOLDERS = {"/opt/headrace/spark-jobs": str(CLONE / "spark-jobs")}
"""Folders of an image, with their paths on this machine."""


@dataclass(frozen=True)
class Root:
    """Folder that replaces a pod's root file system and contains only its mounts."""

    folder: Path
    mounts: Sequence[PurePosixPath]
    elsewhere: Mapping[str, str] = field(default_factory=lambda: FOLDERS)
    """Local replacements of paths that occur anywhere in a text."""

    def moved(self, text: str) -> str:
        """Return an argument or a variable with its path moved below the folder.

        A path is moved if it contains a mount or is inside one. ``/secrets`` and
        ``--secrets=/secrets`` are moved if there is a mount at ``/secrets/east``.
        """
        for there, here in self.elsewhere.items():
            if there in text:
                return text.replace(there, here)
        option, equals, value = text.rpartition("=") if text.startswith("--") else ("", "", text)
        path = PurePosixPath(value)
        if path == PurePosixPath("/") or not any(
            path.is_relative_to(mount) or mount.is_relative_to(path) for mount in self.mounts
        ):
            return text
        return f"{option}{equals}{self.folder}{value}"


def environment(pod: Json, container: Json, root: Root) -> dict[str, str]:
    """Return the variables that a container's spec sets.

    Raises Unsupported.
    """
    found: dict[str, str] = {}
    for variable in container.get("env", []):
        if source := variable.get("valueFrom"):
            value = _field(pod, source, variable["name"])
        else:
            value = root.moved(expanded(variable.get("value", ""), found))
        found[variable["name"]] = value
    return found


def command_line(container: Json, variables: Mapping[str, str], root: Root) -> list[str]:
    """Return the command and its arguments, translated for this machine."""
    image = container.get("image", "")
    entrypoint = next(found for name, found in ENTRYPOINTS.items() if image.startswith(name))
    command = [*container.get("command", []), *container.get("args", [])]
    here = [root.moved(expanded(part, variables)) for part in command]
    program, *arguments = here if "command" in container else [*entrypoint, *here]
    return [*LOCALLY.get(program, [program]), *arguments]


def probed_here(container: Json, root: Root) -> Json:
    """Return the container with the commands of its probes translated for this machine."""
    probes = {}
    for kind in ("startupProbe", "readinessProbe", "livenessProbe"):
        if (probe := container.get(kind)) and "exec" in probe:
            command = [root.moved(part) for part in probe["exec"]["command"]]
            probes[kind] = probe | {"exec": {"command": command}}
    return container | probes


def expanded(text: str, variables: Mapping[str, str]) -> str:
    """Replace ``$(NAME)`` if it is defined, and ``$$`` by a dollar (expansion.Expand)."""

    def value(match: re.Match[str]) -> str:
        return "$" if match[0] == "$$" else variables.get(match[1], match[0])

    return re.sub(r"\$\$|\$\(([^)]*)\)", value, text)


def _field(pod: Json, source: Json, variable: str) -> str:
    """Return the value of a ``fieldRef`` of the downward API."""
    path = source.get("fieldRef", {}).get("fieldPath", "")
    if keyed := re.fullmatch(r"metadata\.(labels|annotations)\['(.+)'\]", path):
        return str(pod["metadata"].get(keyed[1], {}).get(keyed[2], ""))
    known = {
        "metadata.name": lambda: pod["metadata"]["name"],
        "metadata.namespace": lambda: pod["metadata"]["namespace"],
        "metadata.uid": lambda: pod["metadata"]["uid"],
        "spec.nodeName": lambda: pod["spec"]["nodeName"],
        "spec.serviceAccountName": lambda: pod["spec"]["serviceAccountName"],
        "status.hostIP": lambda: pod["status"]["hostIP"],
        "status.podIP": lambda: pod["status"]["podIP"],
    }
    if path not in known:
        raise Unsupported(f"variable {variable}: {source} is not known here")
    return str(known[path]())
