"""What a pod's spec asks of a node, answered for local processes: commands, environment, paths.

Pure. An image is its entrypoint here, of this very environment.
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
"""By how the image's name begins."""
LOCALLY = {
    "headrace": [sys.executable, "-m", "headrace"],
    "python": [sys.executable],
    "python3": [sys.executable],
    "spark-submit": [str(Path(sys.executable).parent / "spark-submit")],
}
"""What these commands of an image are on this machine; others are looked for on PATH."""


class Unsupported(Exception):
    """A part of a pod's spec that the stand-in does not know, or one that is wrong."""


def refuse_unknown(pod: Json) -> None:
    """Raises Unsupported for what would be run in another way than by a node."""
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
"""Folders of an image, and where they lie here."""


@dataclass(frozen=True)
class Root:
    """A folder in the place of a pod's root file system, which holds its mounts and no more."""

    folder: Path
    mounts: Sequence[PurePosixPath]
    elsewhere: Mapping[str, str] = field(default_factory=lambda: FOLDERS)
    """What is called otherwise here, wherever a text has it."""

    def moved(self, text: str) -> str:
        """An argument or a variable: a path with mounts in it, or in a mount, below the folder.

        ``/secrets`` and ``--secrets=/secrets`` are such, with a mount at ``/secrets/east``.
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
    """The variables that a container's spec sets. Raises Unsupported."""
    found: dict[str, str] = {}
    for variable in container.get("env", []):
        if source := variable.get("valueFrom"):
            value = _field(pod, source, variable["name"])
        else:
            value = root.moved(expanded(variable.get("value", ""), found))
        found[variable["name"]] = value
    return found


def command_line(container: Json, variables: Mapping[str, str], root: Root) -> list[str]:
    """Command and arguments as they are run here."""
    image = container.get("image", "")
    entrypoint = next(found for name, found in ENTRYPOINTS.items() if image.startswith(name))
    command = [*container.get("command", []), *container.get("args", [])]
    here = [root.moved(expanded(part, variables)) for part in command]
    program, *arguments = here if "command" in container else [*entrypoint, *here]
    return [*LOCALLY.get(program, [program]), *arguments]


def probed_here(container: Json, root: Root) -> Json:
    """The container with the commands of its probes as they are run here."""
    probes = {}
    for kind in ("startupProbe", "readinessProbe", "livenessProbe"):
        if (probe := container.get(kind)) and "exec" in probe:
            command = [root.moved(part) for part in probe["exec"]["command"]]
            probes[kind] = probe | {"exec": {"command": command}}
    return container | probes


def expanded(text: str, variables: Mapping[str, str]) -> str:
    """``$(NAME)`` replaced where it is known; ``$$`` is a dollar (Kubernetes' expansion.Expand)."""

    def value(match: re.Match[str]) -> str:
        return "$" if match[0] == "$$" else variables.get(match[1], match[0])

    return re.sub(r"\$\$|\$\(([^)]*)\)", value, text)


def _field(pod: Json, source: Json, variable: str) -> str:
    """The downward API: a ``fieldRef``."""
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
