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
)
from headrace.api.manifest_errors import Key
from headrace.connect.preflight.preflight import check_client, check_policy, loops
from headrace.errors import InvalidSpec
from headrace.placement import check_assignor

Path = tuple[Key, ...]

_CHECKS: tuple[tuple[Path, Callable[[ReplicationFlow], object]], ...] = (
    (("spec", "tasks", "assignor"), lambda flow: check_assignor(flow.spec.tasks.assignor)),
    (("spec", "replicationPolicy", "type"), check_policy),
    (("metadata", "annotations", RESET_ANNOTATION), lambda flow: Resets.asked(flow.metadata)),
    (("spec", "source", "config"), lambda flow: check_client(flow.spec.source)),
    (("spec", "target", "config"), lambda flow: check_client(flow.spec.target)),
)


def refusals(manifest: Manifest) -> list[Mistake]:
    """A sentence, with its file and line, for all that has to be changed; asks no broker."""
    checked: list[ReplicationFlow | MirrorTest] = [*manifest.flows, *manifest.tests]
    refused = [
        manifest.mistake(found, path, sentence)
        for found in checked
        for path, sentence in _refused(found)
    ]
    if refused:
        return refused  # a policy that is not known names nothing
    between = loops(manifest.flows)
    return [manifest.mistake(flow, field, why) for flow, field, why in between]


def refuse(manifest: Manifest) -> Manifest:
    """The manifest; raises ``InvalidManifest`` with those."""
    if mistakes := refusals(manifest):
        raise InvalidManifest(mistakes)
    return manifest


def _refused(found: ReplicationFlow | MirrorTest) -> Iterator[tuple[Path, str]]:
    if isinstance(found, ReplicationFlow):
        for path, check in _CHECKS:
            try:
                check(found)
            except InvalidSpec as wrong:
                yield path, str(wrong)
