"""Ancestry of copies: the topics and flows that a copy descends from, and rings of flows.

Each flow stores the ancestry of its copies on its target, in its progress topic, with separate
keys. These records are in partition 0. A flow whose source is this target therefore reads one
partition only.

A *hop* is the copy of one topic by one flow. A *line* is a path of hops that leads upstream from a
topic, with the nearest hop first. A flow reads the lines of a hop from its source: each begins with
a hop that writes the source topic. A line contains no topic twice. Therefore a hop that ends
disappears from all lines.

**The rule.** A flow refuses a topic in two cases:

1. *Ring.* A line contains the target topic of the hop, by cluster id and name. The hop and the line
   up to that topic form a ring, in which records go round. A hop is not refused if a younger hop of
   its ring is refused. All flows agree on the order of hops (``Hop.rank``). Therefore exactly one
   set of refused hops results, and it contains a hop of each ring.
2. *Growing name.* A line contains a hop of the same flow whose source topic has a shorter name. The
   present name contains that name, the policy makes the name longer again, and the flow selects the
   name of the next round. The flow would create a new topic in each round. The topic that the flow
   copied first is not refused.

If the flows form no ring, neither case occurs. Hops of a flow count while the flow runs
(``AncestryTable.active``). A flow with a record filter stores no ancestry, because the filter may
end a ring.
"""

import json
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass, replace
from math import inf
from typing import Any, NamedTuple, TypeVar

from pydantic import TypeAdapter

ENDED_MS = 600_000
"""Time in ms without a renewed record after which a flow counts as ended. It is longer than most
failures of all drivers of a flow, after which the flow resumes."""
GRACE_S = 30.0
"""Time in seconds for which a stopped flow still counts as running, because a source connector also
stops when it moves to another driver."""
_MAX_LINES, _MAX_LINE_LENGTH = 64, 64
"""Limits of a record's size. Real graphs of flows have few lines with few hops."""
_PREFIX = b'{"ancestry_of_flow":'
_VERSION = 1

T = TypeVar("T")


@dataclass(frozen=True)
class ClusterTopic:
    """A topic of a cluster."""

    cluster_id: str
    topic: str


@dataclass(frozen=True)
class Hop:
    """Copy of one topic by one flow."""

    flow: str
    source: ClusterTopic
    target: ClusterTopic
    source_alias: str
    """Alias of the source in the flow, for messages."""
    target_alias: str
    since_ms: int
    """Unix time in ms since which the flow selects the topic without having been stopped."""
    refused: bool = False
    """True if the flow does not copy the topic, because of the rule in the module's docstring."""

    @property
    def rank(self) -> tuple[object, ...]:
        """Sort key by age. Younger hops have a higher rank."""
        here, there = self.source, self.target
        return (
            self.since_ms,
            self.flow,
            here.cluster_id,
            here.topic,
            there.cluster_id,
            there.topic,
        )

    @property
    def of_flow(self) -> tuple[str, str, str]:
        """Identity of the flow. Names of flows are not unique."""
        return self.flow, self.source.cluster_id, self.target.cluster_id

    @property
    def text(self) -> str:
        """Description, for example ``orders of east to orders of west``."""
        there = f"{self.target.topic} of {self.target_alias}"
        return f"{self.source.topic} of {self.source_alias} to {there}"


Line = tuple[Hop, ...]


@dataclass(frozen=True)
class Descent:
    """A hop of a flow, and the lines that lead to its source topic."""

    hop: Hop
    lines: tuple[Line, ...] = ()
    version: int = _VERSION

    @property
    def through(self) -> list[Line]:
        """Lines that lead to the target topic."""
        return [(self.hop, *line) for line in self.lines or ((),)]


@dataclass(frozen=True)
class AncestryKey:
    """Key of a hop of a flow, or of the flow itself."""

    ancestry_of_flow: str
    source_cluster_id: str
    topic: str = ""
    """Source topic of the hop. Empty in the key of the flow itself."""

    def encode(self) -> bytes:
        """Return canonical JSON, because compaction compares bytes."""
        return _encode(self)


@dataclass(frozen=True)
class FlowRenewal:
    """Record of a flow that its source connector renews. Its timestamp is the time of renewal."""

    stopped: bool
    version: int = _VERSION


_KEYS: TypeAdapter[AncestryKey] = TypeAdapter(AncestryKey)
_DESCENTS: TypeAdapter[Descent] = TypeAdapter(Descent)
_RUNNING: TypeAdapter[FlowRenewal] = TypeAdapter(FlowRenewal)


def _encode(fields: Any) -> bytes:
    return json.dumps(asdict(fields), sort_keys=True, separators=(",", ":")).encode()


def encode(value: Descent | FlowRenewal) -> bytes:
    """Return the value of a record."""
    return _encode(value)


def is_ancestry(key: bytes) -> bool:
    """Return True for the key of an ancestry record."""
    return key.startswith(_PREFIX)


class AncestryTable:
    """Ancestry in one progress topic. Not thread-safe."""

    def __init__(self) -> None:
        self.descents: dict[AncestryKey, Descent] = {}
        self._running: dict[AncestryKey, tuple[int, FlowRenewal]] = {}
        self._seen_s: dict[AncestryKey, float] = {}
        """Monotonic time in seconds at which each flow was last known to run."""

    def read(self, key: bytes, value: bytes | None, time_ms: int, now_s: float = -inf) -> None:
        """Read a record.

        ``now_s`` is the monotonic time if the record is known to be new. The flow then runs,
        whatever its clock says.

        Raises:
            ValueError: The record is of another kind, or of a later version.
        """
        decoded = _KEYS.validate_json(key, strict=True)
        if decoded.topic:
            self.descents.pop(decoded, None)
            if value is not None:
                self.descents[decoded] = _known(_DESCENTS.validate_json(value, strict=True))
            return
        self._running.pop(decoded, None)
        if value is not None:
            running = _known(_RUNNING.validate_json(value, strict=True))
            self._running[decoded] = time_ms, running
            if not running.stopped:
                self._seen_s[decoded] = max(now_s, self._seen_s.get(decoded, -inf))

    def active(self, now_ms: int, now_s: float) -> list[Descent]:
        """Return the hops of all flows that run.

        A flow that was seen running also counts for ``GRACE_S`` after that.
        """
        for key, (time_ms, running) in self._running.items():
            if not running.stopped and now_ms - time_ms < ENDED_MS:
                self._seen_s[key] = now_s
        runs = {key for key, seen_s in self._seen_s.items() if now_s - seen_s < GRACE_S}
        return [one for key, one in self.descents.items() if replace(key, topic="") in runs]

    def of_flow(self, flow: AncestryKey, now_ms: int) -> dict[str, Descent]:
        """Return the stored hops of a flow by source topic. Does not change ``active``.

        Hops of a flow that was stopped are left out, because they become the youngest again.
        """
        time_ms, running = self._running.get(flow, (0, FlowRenewal(stopped=True)))
        if now_ms - time_ms >= (GRACE_S * 1000 if running.stopped else ENDED_MS):
            return {}
        return {
            key.topic: one for key, one in self.descents.items() if replace(key, topic="") == flow
        }


def _known(record: Any) -> Any:
    if record.version != _VERSION:
        raise ValueError(f"ancestry of version {record.version}, this headrace reads {_VERSION}")
    return record


class Ring(NamedTuple):
    """Reason why a topic is refused."""

    hop: Hop
    """The refused hop."""
    line: Line
    """Hops that lead to the refused hop, the nearest first. The ring begins with the last of
    them."""

    @property
    def sentence(self) -> str:
        """Sentence about the ring, with advice."""
        first, *between = reversed(self.line)
        grows = first.of_flow == self.hop.of_flow
        steps = [f"{'this flow' if grows else f'flow {first.flow}'} copies {first.text}"]
        steps += [f"flow {one.flow} copies that to {_target(one)}" for one in between]
        what = "a new topic would be created in each round" if grows else "records would go round"
        return (
            f"{self.hop.source.topic} is not copied, because {what}: {', '.join(steps)}, and this "
            f"flow would copy that to {_target(self.hop)}; exclude the topic in spec.topics of one "
            "of these flows, or stop one of them (spec.state: Stopped). A flow whose drivers were "
            f"killed counts for {ENDED_MS // 60_000} minutes"
        )


def _target(hop: Hop) -> str:
    return f"{hop.target.topic} of {hop.target_alias}"


class JudgedHop(NamedTuple):
    """A hop with its lines, and the ring because of which the hop is refused.

    ``ring`` is None if the hop is not refused.
    """

    descent: Descent
    ring: Ring | None


def judge_hop(hop: Hop, upstream: Iterable[Descent], selects: Callable[[str], bool]) -> JudgedHop:
    """Decide whether a hop is refused by the rule in the module's docstring.

    Args:
        hop: Hop to judge. Its ``refused`` is ignored.
        upstream: Hops of all flows that write to the source cluster, each with its lines.
        selects: Returns True if the flow copies a source topic of that name.
    """
    lines, rings = set[Line](), list[Ring]()
    for one in upstream:
        if one.hop.target != hop.source:
            continue
        for through in one.through:
            back = next((n for n, at in enumerate(through) if at.source == hop.target), None)
            round_trip = () if back is None else through[: back + 1]
            if round_trip and not any(at.refused and at.rank > hop.rank for at in round_trip):
                rings.append(Ring(hop, round_trip))
            line = through[: _MAX_LINE_LENGTH if back is None else back]
            if line:
                lines.add(line)
            rings += _growing(hop, line, selects)
    kept = sorted(lines, key=lambda line: (len(line), [at.rank for at in line]))[:_MAX_LINES]
    ring = min(rings, key=lambda ring: (len(ring.line), ring.sentence), default=None)
    return JudgedHop(Descent(replace(hop, refused=ring is not None), tuple(kept)), ring)


def _growing(hop: Hop, line: Line, selects: Callable[[str], bool]) -> list[Ring]:
    name = hop.source.topic
    if name == hop.target.topic or name not in hop.target.topic:
        return []
    for n, at in enumerate(line):
        if at.refused:
            break
        before = at.source.topic
        grew = before != name and before in name
        if at.of_flow == hop.of_flow and grew and selects(name.replace(before, name, 1)):
            return [Ring(hop, line[: n + 1])]
    return []
