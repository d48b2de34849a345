"""The manifest files of a run: read when it starts, and again when somebody asks for it."""

from collections.abc import Sequence
from pathlib import Path

from headrace.api import Manifest, load
from headrace.api.manifests import files_of
from headrace.errors import InvalidSpec
from headrace.standalone.refusals import refuse

_Versions = dict[Path, tuple[int, int]]


class ManifestFiles:
    """Knows which version of each file was read last."""

    def __init__(self, paths: Sequence[Path]) -> None:
        self._paths = paths
        self._versions: _Versions = {}

    def read(self) -> Manifest:
        """What they hold; raises ``InvalidSpec`` with every mistake, for lack of a flow, too."""
        self._versions = self._present()
        manifest = refuse(load(self._paths))
        if not manifest.flows:
            raise InvalidSpec(f"there is no ReplicationFlow in {', '.join(map(str, self._paths))}")
        return manifest

    def changed(self) -> list[Path]:
        """The files that are not those that were read last: changed, new or gone."""
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
