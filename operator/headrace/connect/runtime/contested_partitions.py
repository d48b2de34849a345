"""Partitions that another owner also copies, and conditions of a task.

Both owners claim partitions by epochs in the progress topic, and no herder decides between them.
The owner that loses a partition for the second time waits. It takes the partition back when the
other owner no longer stores progress.
"""

import threading
from collections.abc import Callable, Mapping, Set
from dataclasses import dataclass, field
from datetime import UTC, datetime

from headrace.api import (
    HEARTBEATS,
    Condition,
    ConditionStatus,
    ConditionType,
    Reason,
    ReplicationFlowSpec,
    TopicPartition,
    partitions_text,
)
from headrace.datapath import CopiedCounts, ProgressLog, TokenBucket
from headrace.datapath.verify import BatchComparison
from headrace.logs import get_logger
from headrace.replication import Progress
from headrace.timing import Backoff, Clock

_MAX_MESSAGE_LENGTH = 1024
"""Maximum length of one task's message, because a flow shows the messages of all tasks."""


def observation(
    type: ConditionType,
    reason: Reason,
    message: str,
    status: ConditionStatus = ConditionStatus.TRUE,
) -> Condition:
    """Return a condition whose message is shortened to fit next to other tasks' messages."""
    return Condition(type=type, status=status, reason=reason, message=message[:_MAX_MESSAGE_LENGTH])


def not_stored(target: str, since_s: float) -> Condition:
    """Return the condition that ``target`` has not stored progress since a Unix time."""
    since = datetime.fromtimestamp(int(since_s), UTC)
    message = (
        f"{target} has not stored progress since {since:%Y-%m-%dT%H:%M:%SZ}: nothing more is "
        "copied until it does, and what was copied last may be copied again"
    )
    return observation(ConditionType.PROGRESS_NOT_STORED, Reason.NOT_ACKNOWLEDGED, message)


def verification_failed(copied: CopiedCounts) -> tuple[Condition, ...]:
    """Return the condition of a task for which the C helper joined batches wrongly, if any."""
    if not copied.verified.get(BatchComparison.MISJOINED):
        return ()
    message = (
        "the helper for small batches made a batch that has not the records of its source, which "
        "was not sent; this driver copies without it now. Batches that it made before, for any "
        "task of this driver, may be wrong on the target: compare the topics (the driver's log "
        "has the partition and the time), and reset partitions whose copies are wrong"
    )
    return (observation(ConditionType.VERIFICATION_FAILED, Reason.HELPER_FAULTY, message),)


def bandwidth_used_up(flow: ReplicationFlowSpec, bandwidth: TokenBucket) -> tuple[Condition, ...]:
    """Return the condition of a flow whose reads are limited by ``spec.bandwidth``, if any."""
    if (limit := flow.bandwidth) is None or not bandwidth.used_up:
        return ()
    message = (
        f"reads wait for spec.bandwidth ({limit.bytes_per_second} bytes a second for the flow): "
        "this driver's part of it is used up, and lag grows while the source's producers are faster"
    )
    return (observation(ConditionType.BANDWIDTH_USED_UP, Reason.BANDWIDTH_LIMIT, message),)


log = get_logger(__name__)

_AGAIN = 2
"""Number of takeovers by another owner after which a partition is contested. A single takeover may
be caused by a new run that replaces this one."""
_TIMEOUT_S = 1200.0
"""Time in seconds for which takeovers are counted. It is longer than twice ``_LAST_S``, so that two
owners that both wait count each other's takeovers."""
_FIRST_S, _LAST_S = 10.0, 300.0
"""Minimum and maximum time in seconds without stored progress after which a partition is taken
back. The minimum is longer than the interval between commits (1 s) and than an election on the
target."""
_REFRESH_S = 2.0
"""Interval in seconds at which progress of contested partitions is stored again. It is less than
half of ``_FIRST_S``, so that the owner of an idle partition does not seem to have ended."""


@dataclass
class _Contest:
    owner: str = ""
    """Owner that took the partition last, as named in progress."""
    taken_at: list[float] = field(default_factory=list)
    """Monotonic times in seconds at which another owner took the partition."""
    given_way: bool = False


class Contested:
    """Partitions that another owner took although this unit's herder has assigned them here.

    All instances of the unit on this driver share the object, because each instance ends when it
    loses a partition. Thread-safe: ``review`` runs in a pool.
    """

    def __init__(
        self,
        progress: ProgressLog,
        stored: Callable[[TopicPartition], Progress | None],
        clock: Clock,
    ) -> None:
        self._progress, self._stored, self._clock = progress, stored, clock
        self._contests: dict[TopicPartition, _Contest] = {}
        self._held: set[TopicPartition] = set()
        self._backoff = Backoff(_FIRST_S, _LAST_S)
        self._silence_s = 0.0
        """Time without stored progress after which any partition is taken back. All partitions have
        the same time, because taking one back ends the other owner's instance with all its
        partitions."""
        self._next_refresh_s = 0.0
        self._lock = threading.RLock()
        self.taken = 0
        """Number of times that another owner took a partition. Heartbeats do not count."""

    # Calls of the unit

    def hold(self, partitions: Set[TopicPartition]) -> None:
        """Record that this unit copies these partitions from now on."""
        with self._lock:
            self._held |= partitions
            for at in partitions & self._contests.keys():
                self._contests[at].given_way = False

    def keep(self, partitions: Set[TopicPartition]) -> None:
        """Forget all other partitions, because the herder has assigned them to another unit."""
        with self._lock:
            self._held &= partitions
            self._contests = {at: one for at, one in self._contests.items() if at in partitions}

    def review(self, partitions: Set[TopicPartition], owner: str) -> Set[TopicPartition]:
        """Return the partitions that may be restored now, according to progress.

        ``owner`` is this unit's name in progress. Progress is read to its end only if this unit has
        copied or contested one of the partitions before.

        Raises:
            HeadraceError: Progress could not be read.
        """
        with self._lock:
            known = partitions & (self._held | self._contests.keys())
        if not known:
            return partitions
        self._progress.read_to_end()
        stored = {at: self._stored(at) for at in known}
        others = {at: one.owner for at, one in stored.items() if one and one.owner != owner}
        with self._lock:
            self._take(others)
            for at in known & self._contests.keys():
                if at in others:
                    self._contests[at].owner = others[at]
                else:
                    self._contests[at].given_way = False
            return partitions - self.waiting

    def _take(self, others: dict[TopicPartition, str]) -> None:
        now = self._clock.monotonic()
        taken = self._held & others.keys()
        if not any(self._recent(one, now) for one in self._contests.values()):
            self._backoff.reset()
        give_way = set()
        for at in taken:
            contest = self._contests.setdefault(at, _Contest())
            contest.taken_at = [*self._recent(contest, now), now]
            # All flows of a source copy its heartbeats to the same topic, and one copy is
            # sufficient.
            contest.given_way = at.topic == HEARTBEATS or len(contest.taken_at) >= _AGAIN
            if contest.given_way:
                give_way.add(at)
        self._held -= taken
        self.taken += sum(at.topic != HEARTBEATS for at in taken)
        if give_way:
            self._silence_s = self._backoff.next_s()
            at = min(give_way)
            say = log.info if all(one.topic == HEARTBEATS for one in give_way) else log.warning
            say(
                "given way to another owner",
                partitions=len(give_way),
                first=str(at),
                owner=others[at],
                until_idle_s=round(self._silence_s),
            )

    def _recent(self, contest: _Contest, now: float) -> list[float]:
        return [at for at in contest.taken_at if now - at < _TIMEOUT_S]

    # Results

    @property
    def given_way(self) -> frozenset[TopicPartition]:
        """Partitions that another owner keeps."""
        with self._lock:
            return frozenset(at for at, one in self._contests.items() if one.given_way)

    @property
    def heartbeats_left(self) -> frozenset[TopicPartition]:
        """Heartbeat partitions that another flow copies. They do not count as lag of this flow."""
        return frozenset(at for at in self.given_way if at.topic == HEARTBEATS)

    @property
    def waiting(self) -> frozenset[TopicPartition]:
        """Partitions whose other owner still stores progress."""
        now = self._clock.monotonic()
        with self._lock:
            return frozenset(
                at
                for at, one in self._contests.items()
                if one.given_way and now - self._progress.stored_at(one.owner) < self._silence_s
            )

    def to_refresh(self) -> frozenset[TopicPartition]:
        """Return partitions whose progress must be stored although nothing was copied.

        Otherwise the other owner would conclude that an idle partition has no owner. The result
        is empty until ``_REFRESH_S`` has passed.
        """
        now = self._clock.monotonic()
        with self._lock:
            held = frozenset(self._held & self._contests.keys())
            if not held or now < self._next_refresh_s:
                return frozenset()
            self._next_refresh_s = now + _REFRESH_S
            return held

    @property
    def conditions(self) -> tuple[Condition, ...]:
        """Condition ``PartitionContested`` while there is a contested partition.

        Heartbeats are never contested: all flows of a source copy them, and one copy is sufficient.
        """
        now = self._clock.monotonic()
        with self._lock:
            again = {
                at: one
                for at, one in self._contests.items()
                if at.topic != HEARTBEATS
                and len(one.taken_at) >= _AGAIN
                and (one.given_way or now - one.taken_at[-1] < _LAST_S)
            }
            silence_s = self._silence_s
        if not again:
            return ()
        theirs = {at: one.owner for at, one in again.items() if one.given_way}
        ours = {at: one.owner for at, one in again.items() if not one.given_way}
        found = []
        if theirs:
            found.append(
                f"{partitions_text(theirs.keys())}: not copied by this task, {_owners(theirs)} "
                f"took it again and has it until it stores nothing for {silence_s:.0f} s"
            )
        if ours:
            found.append(
                f"{partitions_text(ours.keys())}: copied by this task, {_owners(ours)} took it "
                "again and again"
            )
        return (
            observation(
                ConditionType.PARTITION_CONTESTED,
                Reason.TAKEN_AGAIN,
                "; ".join([_REMEDY, *found]),
            ),
        )


_REMEDY = (
    "another flow, or another run of this flow, copies the same topics to the same target: stop "
    "one of them, or narrow spec.topics of one"
)


def _owners(contested: Mapping[TopicPartition, str]) -> str:
    return ", ".join(sorted(set(contested.values())))
