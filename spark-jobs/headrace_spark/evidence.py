"""What a verdict is made of, and what a rule may object."""

from dataclasses import dataclass

from headrace.api import Verdict
from headrace.mirror_test import (
    Counts,
    Example,
    Fault,
    Kind,
    LoadManifest,
    Measured,
    Rehearsed,
    Run,
)


@dataclass(frozen=True)
class Evidence:
    """All that a verdict is made of."""

    run: Run
    manifest: LoadManifest
    counts: Counts
    examples: dict[Kind, tuple[Example, ...]]
    open_sentinels: tuple[str, ...]
    """Partitions of the source whose end sentinel is not on the target, as ``topic-partition``."""
    contradictions: tuple[str, ...]
    """Streams of which the source does not hold what was acknowledged, in words."""
    measured: Measured | None
    """``None``: the probe gave no result."""
    faults: tuple[Fault, ...]
    rehearsed: Rehearsed | None = None


@dataclass(frozen=True)
class Objection:
    """Why it is not simply Passed; a verdict of Passed makes it a mere warning."""

    verdict: Verdict
    sentence: str
