"""Manifest files of a run, and the checks before a run accepts them."""

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from headrace.api import (
    RESET_ANNOTATION,
    InvalidManifest,
    Manifest,
    ManifestMistake,
    MirrorTest,
    ReplicationFlow,
    Resets,
    load,
)
from headrace.api.manifest_errors import Key
from headrace.api.manifests import files_of
from headrace.connect.preflight.preflight import check_client, check_policy, loops
from headrace.errors import InvalidSpec
from headrace.placement import check_assignor

FieldPath = tuple[Key, ...]

_CHECKS: tuple[tuple[FieldPath, Callable[[ReplicationFlow], object]], ...] = (
    (("spec", "tasks", "assignor"), lambda flow: check_assignor(flow.spec.tasks.assignor)),
    (("spec", "replicationPolicy", "type"), check_policy),
    (
        ("metadata", "annotations", RESET_ANNOTATION),
        lambda flow: Resets.from_metadata(flow.metadata),
    ),
    (("spec", "source", "config"), lambda flow: check_client(flow.spec.source)),
    (("spec", "target", "config"), lambda flow: check_client(flow.spec.target)),
)


def refusals(manifest: Manifest) -> list[ManifestMistake]:
    """Return a message with file and line for each mistake. Contacts no broker."""
    checked: list[ReplicationFlow | MirrorTest] = [*manifest.flows, *manifest.tests]
    refused = [
        manifest.mistake(found, path, sentence)
        for found in checked
        for path, sentence in _refused(found)
    ]
    if refused:
        return refused  # with an unknown policy, topics have no names
    between = loops(manifest.flows)
    return [manifest.mistake(flow, field, why) for flow, field, why in between]


def refuse(manifest: Manifest) -> Manifest:
    """Return the manifest. Raise ``InvalidManifest`` if it has mistakes."""
    if mistakes := refusals(manifest):
        raise InvalidManifest(mistakes)
    return manifest


def _refused(found: ReplicationFlow | MirrorTest) -> Iterator[tuple[FieldPath, str]]:
    if isinstance(found, ReplicationFlow):
        for path, check in _CHECKS:
            try:
                check(found)
            except InvalidSpec as wrong:
                yield path, str(wrong)


_Versions = dict[Path, tuple[int, int]]


class ManifestFiles:
    """Manifest files, with the version in which each file was last read."""

    def __init__(self, paths: Sequence[Path]) -> None:
        self._paths = paths
        self._versions: _Versions = {}

    def read(self) -> Manifest:
        """Read the files. Raise ``InvalidSpec`` with every mistake, or if there is no flow."""
        self._versions = self._present()
        manifest = refuse(load(self._paths))
        if not manifest.flows:
            raise InvalidSpec(f"there is no ReplicationFlow in {', '.join(map(str, self._paths))}")
        return manifest

    def changed(self) -> list[Path]:
        """Return the files that were changed, created or deleted since they were read."""
        now = self._present()
        return sorted(
            file
            for file in now.keys() | self._versions.keys()
            if now.get(file) != self._versions.get(file)
        )

    def _present(self) -> _Versions:
        return {file: _version(file) for file in files_of(self._paths)}


def _version(file: Path) -> tuple[int, int]:
    try:
        found = file.stat()
    except OSError:
        return 0, 0
    return found.st_mtime_ns, found.st_size
