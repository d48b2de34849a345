"""What ``headrace run`` refuses although each field is well formed; ``validate`` asks the same."""

from collections.abc import Callable, Iterator

from headrace.api import (
    RESET_ANNOTATION,
    InvalidManifest,
    Manifest,
    MirrorTest,
    Mistake,
    ReplicationFlow,
    Resets,
    unbuilt,
)
from headrace.api.mistakes import Key
from headrace.connect.preflight import check_client
from headrace.errors import InvalidSpec
from headrace.placement import check_assignor

Path = tuple[Key, ...]

_CHECKS: tuple[tuple[Path, Callable[[ReplicationFlow], object]], ...] = (
    (("spec", "tasks", "assignor"), lambda flow: check_assignor(flow.spec.tasks.assignor)),
    (("metadata", "annotations", RESET_ANNOTATION), lambda flow: Resets.asked(flow.metadata)),
    (("spec", "source", "config"), lambda flow: check_client(flow.spec.source)),
    (("spec", "target", "config"), lambda flow: check_client(flow.spec.target)),
)


def refusals(manifest: Manifest) -> list[Mistake]:
    """A sentence, with its file and line, for all that has to be changed; asks no broker."""
    checked: list[ReplicationFlow | MirrorTest] = [*manifest.flows, *manifest.tests]
    return [
        manifest.mistake(found, path, sentence)
        for found in checked
        for path, sentence in _refused(found)
    ]


def refuse(manifest: Manifest) -> Manifest:
    """The manifest; raises ``InvalidManifest`` with those."""
    if mistakes := refusals(manifest):
        raise InvalidManifest(mistakes)
    return manifest


def _refused(found: ReplicationFlow | MirrorTest) -> Iterator[tuple[Path, str]]:
    asked = unbuilt(found)
    yield from zip(asked.places, asked.refused, strict=True)
    if isinstance(found, ReplicationFlow):
        for path, check in _CHECKS:
            try:
                check(found)
            except InvalidSpec as wrong:
                yield path, str(wrong)
