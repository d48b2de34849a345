"""MirrorTest, which tests a mirror under load and faults, with its status."""

from collections.abc import Iterator
from enum import StrEnum
from itertools import pairwise
from typing import Annotated, Literal
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from pydantic import Field

from headrace.api.cluster import BETWEEN_CLUSTERS, ClusterSpec, breaches_between
from headrace.api.cron import Cron
from headrace.api.meta import API_VERSION, MAX_NAME_LENGTH, ObjectMeta, name_breaches
from headrace.api.mirror_test_status import MirrorTestStatus
from headrace.api.model import (
    A_NAME,
    Count,
    Flag,
    Matching,
    Model,
    Rule,
    RuleViolation,
    Text,
    Whole,
)
from headrace.api.pods import PodTemplate
from headrace.api.spark import SparkSpec
from headrace.api.test_load import (
    BESIDE_AUDIT,
    NOT_BESIDE_AUDIT,
    ONLY_PRESERVED,
    Audit,
    ChaosAction,
    ChaosStep,
    Load,
)

BY_SOURCE = "{source}.{topic}"
"""Names of target topics with MirrorMaker 2's default policy."""


class Partitioning(StrEnum):
    """Guarantee of the mirror about partitions."""

    PRESERVED = "Preserved"
    BY_KEY = "ByKey"
    ANY = "Any"


_PART = r"([\w.-]|\{source\})"
Template = Annotated[
    str,
    Field(max_length=249),
    Matching(
        rf"{_PART}*\{{topic\}}({_PART}|\{{topic\}})*",
        "must be a topic's name with {topic} in it, and perhaps {source} for the source's alias",
    ),
]
TimeZone = Annotated[
    Text,
    Matching(
        r"[A-Za-z0-9_+-]+(/[A-Za-z0-9_+-]+)*",
        "must be the name of a time zone, like Europe/Berlin or Etc/UTC",
    ),
]


class ConcurrencyPolicy(StrEnum):
    """Action of a schedule if a run is due before the previous one has ended, as for a CronJob."""

    ALLOW = "Allow"
    """Start the run while the previous one continues."""
    FORBID = "Forbid"
    """Delay the run until the previous one has ended."""
    REPLACE = "Replace"
    """End the previous run, which gets the verdict Inconclusive."""


class Budgets(Model):
    """Maximum numbers of defects. If one is exceeded, the verdict is Failed."""

    missing: Count = 0
    """Maximum number of messages that never arrive."""
    reordered: Count = 0
    """Maximum number of messages whose first arrival is out of order, by topic, producer and
    key."""
    corrupted: Count = 0
    """Maximum number of messages that arrive changed."""
    alien: Count = 0
    """Maximum number of messages on the target that the source does not have. With a load: messages
    with its name that it did not send."""
    duplicated: Count | None = None
    """Maximum number of duplicates. Default: unlimited with AtLeastOnce, 0 with ExactlyOnce.
    Duplicates are always counted."""
    replayed: Count | None = None
    """Maximum number of messages of earlier runs that arrive again during this run. Default:
    unlimited. They are always counted. A mirror that lagged behind when the load began also causes
    some."""
    unequal_offsets: Count | None = None
    """Maximum number of messages with another offset on the target. Default: 0 for a flow with
    offsets: Preserved. Otherwise offsets are not compared by default. Requires partitioning:
    Preserved."""
    latency_p99_ms: Count | None = None
    """Maximum latency of 99 % of the messages, in milliseconds. Default: unlimited."""
    recovery_seconds: Count | None = None
    """Maximum recovery time after each step of chaos, in seconds. Default: unlimited. Requires
    chaos."""
    undecodable: Count = 0
    """Maximum number of keys and values on the target with a schema id that the registry does not
    know. Applies only with audit.schemas."""
    reread_per_group: Count = 0
    """Maximum number of records that each consumer group reads again after the fail-over. Requires
    rehearsal."""
    skipped: Count = 0
    """Maximum number of records that all consumer groups together miss after the fail-over.
    Requires rehearsal."""


class Rehearsal(Model):
    """A fail-over after the load, with consumers that resume on the target."""

    groups: Annotated[Whole, Field(ge=1, le=100)] = 20
    """Number of consumer groups that read and commit on the source during the load. Each has one
    consumer."""


_NO_FLOW = "is required where there is no flowName"
_FLOW_HAS_CLUSTER = "must be left out beside flowName: the flow has it"
_FLOW_HAS_POLICY = "must be left out beside flowName: the flow's policy has it"
_NO_FLOW_TO_BREAK = "needs flowName: headrace breaks only flows of its own"
_NO_SCHEDULE = "needs a load that ends: leave it out beside load.durationSeconds: 0"
_NO_FLOW_TO_SWITCH = "needs flowName: headrace fails over only flows of its own"
_NO_REHEARSAL_END = "needs a load that ends: the flow is failed over behind it"
_A_PART = "needs load.messages to be a part of; beside durationSeconds use atSeconds"
_NO_SHARE = "needs load.durationSeconds: a number of messages is shared out beforehand"
_NO_END = "needs a load that ends: topics and partitions would be added without end"
_KEYS_MOVE = (
    "needs partitioning: Preserved or Any; more partitions move keys, and the test could not say "
    "which partition is right"
)
_NO_ONE_LOG = "needs partitioning: Preserved: an offset is one of a partition"
_NEEDS_SCHEDULE = "needs schedule: without one it has no effect"
_NEEDS_REPETITION = "needs schedule or load.durationSeconds: 0: without one it has no effect"
_NO_CHAOS = "needs chaos: only a recovery from a fault has a time"
_NO_REHEARSAL = "needs rehearsal: only consumer groups that fail over are judged"
_PASSED_KEPT, _OTHERS_KEPT = 3, 1
_NO_ZONE = "must be a time zone of the IANA database, like Europe/Berlin"
_WITHOUT_END = "!has(self.chaos) || !has(self.load) || !has(self.load.durationSeconds)"


def _is_zone(name: str) -> bool:
    try:
        ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        return False
    return True


class MirrorTestSpec(Model):
    """Mirror, load and allowed defects."""

    flow_name: Annotated[str, Field(max_length=MAX_NAME_LENGTH), A_NAME] | None = None
    """Name of the flow to test. For a mirror that is not a flow of headrace, set source and target
    instead."""
    source: ClusterSpec | None = None
    """Cluster that a mirror other than a flow of headrace reads."""
    target: ClusterSpec | None = None
    """Cluster that a mirror other than a flow of headrace writes to."""
    target_topic: Template = BY_SOURCE
    """Pattern of target topics of a mirror other than a flow of headrace: {topic} is the source
    topic, {source} the alias of the source."""
    partitioning: Partitioning = Partitioning.PRESERVED
    """Guarantee of the mirror about partitions: as on the source (Preserved), one for all messages
    of a key (ByKey), or none (Any)."""
    load: Load = Load()
    """Messages that are sent while the mirror runs."""
    audit: Audit | None = None
    """Comparison of records that applications wrote, instead of a load."""
    budgets: Budgets = Budgets()
    """Maximum numbers of defects."""
    settle_seconds: Count = 120
    """Maximum seconds to wait for all messages on the target after the last one was sent. The test
    waits as long, but at least a minute, for the target topics before the first message."""
    chaos: Annotated[tuple[ChaosStep, ...], Field(max_length=100)] = ()
    """Faults to inject, in this order."""
    rehearsal: Rehearsal | None = None
    """Fail-over after the load: consumer groups resume on the target, then the fail-over is
    undone."""
    schedule: Cron | None = None
    """Cron schedule of repeated runs. If several runs were missed, only the latest is started late.
    The name of the test may have at most 43 characters. Kubernetes only."""
    time_zone: TimeZone | None = None
    """Time zone of the schedule, as a name of the IANA database. Default: UTC. Kubernetes only."""
    starting_deadline_seconds: Count | None = None
    """Maximum delay of a scheduled run in seconds. A run with a longer delay is skipped. Default:
    unlimited. Kubernetes only."""
    concurrency_policy: ConcurrencyPolicy = ConcurrencyPolicy.FORBID
    """Action if a scheduled run is due before the previous one has ended: it waits (Forbid), starts
    in addition (Allow), or ends it without a result (Replace). Kubernetes only.
    """
    suspend: Flag = False
    """Whether to start no further scheduled runs or windows of an endless load. Kubernetes only."""
    successful_tests_history_limit: Count = _PASSED_KEPT
    """Number of runs or windows to keep that passed. Requires schedule or load.durationSeconds:
    0."""
    failed_tests_history_limit: Count = _OTHERS_KEPT
    """Number of runs or windows to keep that did not pass. Requires schedule or
    load.durationSeconds: 0."""
    ttl_seconds_after_finished: Count | None = None
    """Seconds for which the test is kept after its end. If absent, it is kept until a user deletes
    it. Editable at any time. Kubernetes only."""
    spark: SparkSpec = SparkSpec()
    """Spark jobs of the test. Kubernetes only."""
    pod_template: PodTemplate = PodTemplate()
    """Settings of all pods of the test. Kubernetes only."""

    rules = (
        *(
            Rule(
                f"has(self.flowName) || has(self.{cluster})",
                _NO_FLOW,
                at=cluster,
                reason="FieldValueRequired",
            )
            for cluster in ("source", "target")
        ),
        *(
            Rule(
                f"!has(self.flowName) || !has(self.{cluster})",
                _FLOW_HAS_CLUSTER,
                at=cluster,
                reason="FieldValueForbidden",
            )
            for cluster in ("source", "target")
        ),
        Rule(
            f"!has(self.flowName) || self.?targetTopic.orValue('{BY_SOURCE}') == '{BY_SOURCE}'",
            _FLOW_HAS_POLICY,
            at="targetTopic",
            reason="FieldValueForbidden",
        ),
        *BETWEEN_CLUSTERS,
        *BESIDE_AUDIT,
        Rule(
            "!has(self.budgets) || !has(self.budgets.unequalOffsets)"
            " || !has(self.partitioning) || self.partitioning == 'Preserved'",
            _NO_ONE_LOG,
            at="budgets.unequalOffsets",
        ),
        Rule(
            "has(self.flowName) || !has(self.chaos)"
            " || self.chaos.all(step, has(step.cluster) || has(step.command)"
            " || step.action == 'AddTopic' || has(step.partitions)"
            " || has(step.selector) || has(step.deployment))",
            _NO_FLOW_TO_BREAK,
            at="chaos",
            reason="FieldValueForbidden",
        ),
        Rule(
            "!has(self.rehearsal) || has(self.flowName)",
            _NO_FLOW_TO_SWITCH,
            at="rehearsal",
            reason="FieldValueForbidden",
        ),
        Rule(
            "!has(self.rehearsal) || !has(self.load) || !has(self.load.durationSeconds)"
            " || self.load.durationSeconds > 0",
            _NO_REHEARSAL_END,
            at="rehearsal",
        ),
        *(
            Rule(
                f"!has(self.chaos) || self.chaos.filter(step, has(step.{moment}))"
                f".map(step, step.{moment}).isSorted()",
                f"must be in the order of time: an {moment} is before one above it",
                at="chaos",
            )
            for moment in ("atPercent", "atSeconds")
        ),
        Rule(
            f"{_WITHOUT_END} || !self.chaos.exists(step, has(step.atPercent))",
            f"atPercent {_A_PART}",
            at="chaos",
        ),
        Rule(
            f"{_WITHOUT_END} || self.chaos.all(step, step.?atSeconds.orValue(0) <="
            " (self.load.durationSeconds == 0 ? self.load.?windowSeconds.orValue(600)"
            " : self.load.durationSeconds))",
            "atSeconds must not be after the end of the load, at load.durationSeconds, or of a "
            "window",
            at="chaos",
        ),
        Rule(
            "!has(self.chaos) || (has(self.load) && has(self.load.durationSeconds))"
            " || self.chaos.all(step, step.action != 'AddTopic')",
            f"AddTopic {_NO_SHARE}",
            at="chaos",
        ),
        Rule(
            "!has(self.chaos) || self.?partitioning.orValue('Preserved') != 'ByKey'"
            " || self.chaos.all(step, !has(step.partitions))",
            f"AddPartitions {_KEYS_MOVE}",
            at="chaos",
        ),
        Rule(
            f"{_WITHOUT_END} || self.load.durationSeconds > 0"
            " || self.chaos.all(step, step.action != 'AddTopic' && !has(step.partitions))",
            f"AddTopic or AddPartitions {_NO_END}",
            at="chaos",
        ),
        Rule(
            "!has(self.schedule) || !has(self.load) || !has(self.load.durationSeconds)"
            " || self.load.durationSeconds > 0",
            _NO_SCHEDULE,
            at="schedule",
        ),
        *(
            Rule(f"!has(self.{field}) || has(self.schedule)", _NEEDS_SCHEDULE, at=field)
            for field in ("timeZone", "startingDeadlineSeconds")
        ),
        Rule(
            "has(self.schedule) || self.?concurrencyPolicy.orValue('Forbid') == 'Forbid'",
            _NEEDS_SCHEDULE,
            at="concurrencyPolicy",
        ),
        Rule(
            "!self.?suspend.orValue(false) || has(self.schedule)"
            " || self.?load.durationSeconds.orValue(1) == 0",
            _NEEDS_REPETITION,
            at="suspend",
        ),
        *(
            Rule(
                f"self.?{field}.orValue({usual}) == {usual} || has(self.schedule)"
                " || self.?load.durationSeconds.orValue(1) == 0",
                _NEEDS_REPETITION,
                at=field,
            )
            for field, usual in (
                ("successfulTestsHistoryLimit", _PASSED_KEPT),
                ("failedTestsHistoryLimit", _OTHERS_KEPT),
            )
        ),
        Rule(
            "has(self.audit) || !has(self.budgets) || !has(self.budgets.recoverySeconds)"
            " || size(self.?chaos.orValue([])) > 0",
            _NO_CHAOS,
            at="budgets.recoverySeconds",
        ),
        *(
            Rule(
                f"self.?budgets.{field}.orValue(0) == 0 || has(self.rehearsal)",
                _NO_REHEARSAL,
                at=f"budgets.{field}",
            )
            for field in ("rereadPerGroup", "skipped")
        ),
    )

    @property
    def repeats(self) -> bool:
        """True if the test only starts other runs, by schedule or window."""
        return self.schedule is not None or self.load.is_endless

    def _breaches(self) -> Iterator[RuleViolation]:
        clusters = {"source": self.source, "target": self.target}
        if self.flow_name is None:
            for field, cluster in clusters.items():
                if cluster is None:
                    yield RuleViolation((field,), _NO_FLOW)
            if any(step.action.needs_flow for step in self.chaos):
                yield RuleViolation(("chaos",), _NO_FLOW_TO_BREAK)
        else:
            for field, cluster in clusters.items():
                if cluster is not None:
                    yield RuleViolation((field,), _FLOW_HAS_CLUSTER)
            if self.target_topic != BY_SOURCE:
                yield RuleViolation(("targetTopic",), _FLOW_HAS_POLICY)
        if self.source and self.target:
            yield from breaches_between(self.source, self.target)
        if self.schedule and self.load.is_endless:
            yield RuleViolation(("schedule",), _NO_SCHEDULE)
        yield from self._budget_breaches()
        yield from self._audit_breaches()
        yield from self._schedule_breaches()
        yield from self._rehearsal_breaches()
        yield from self._chaos_breaches()

    def _budget_breaches(self) -> Iterator[RuleViolation]:
        """Yield a breach for each budget that the test cannot judge."""
        budgets = self.budgets
        if budgets.unequal_offsets is not None and self.partitioning is not Partitioning.PRESERVED:
            yield RuleViolation(("budgets", "unequalOffsets"), _NO_ONE_LOG)
        if budgets.recovery_seconds is not None and not (self.chaos or self.audit):
            yield RuleViolation(("budgets", "recoverySeconds"), _NO_CHAOS)
        of_groups = {"rereadPerGroup": budgets.reread_per_group, "skipped": budgets.skipped}
        for field, budget in of_groups.items():
            if budget and not self.rehearsal:
                yield RuleViolation(("budgets", field), _NO_REHEARSAL)

    def _audit_breaches(self) -> Iterator[RuleViolation]:
        if self.audit is None:
            return
        if self.audit.topics is None and self.flow_name is None:
            yield RuleViolation(("audit", "topics"), _NO_FLOW)
        if self.audit.is_incremental and self.partitioning is not Partitioning.PRESERVED:
            yield RuleViolation(("audit", "startFrom", "mode"), ONLY_PRESERVED)
        # Defaults may be filled in, so only values that differ from them were chosen by a user.
        chosen = {
            ("load",): self.load != Load(),
            ("chaos",): bool(self.chaos),
            ("rehearsal",): self.rehearsal is not None,
            ("budgets", "replayed"): self.budgets.replayed is not None,
            ("budgets", "unequalOffsets"): self.budgets.unequal_offsets is not None,
            ("budgets", "latencyP99Ms"): self.budgets.latency_p99_ms is not None,
            ("budgets", "recoverySeconds"): self.budgets.recovery_seconds is not None,
        }
        for path, given in chosen.items():
            if given:
                yield RuleViolation(path, NOT_BESIDE_AUDIT)

    def _schedule_breaches(self) -> Iterator[RuleViolation]:
        if self.schedule is None:
            without_effect = {
                "timeZone": self.time_zone is not None,
                "startingDeadlineSeconds": self.starting_deadline_seconds is not None,
                "concurrencyPolicy": self.concurrency_policy is not ConcurrencyPolicy.FORBID,
            }
            for field, given in without_effect.items():
                if given:
                    yield RuleViolation((field,), _NEEDS_SCHEDULE)
        if not self.repeats:
            without_effect = {
                "suspend": self.suspend,
                "successfulTestsHistoryLimit": self.successful_tests_history_limit != _PASSED_KEPT,
                "failedTestsHistoryLimit": self.failed_tests_history_limit != _OTHERS_KEPT,
            }
            for field, given in without_effect.items():
                if given:
                    yield RuleViolation((field,), _NEEDS_REPETITION)
        if self.time_zone is not None and not _is_zone(self.time_zone):
            yield RuleViolation(("timeZone",), _NO_ZONE)

    def _rehearsal_breaches(self) -> Iterator[RuleViolation]:
        if self.rehearsal and self.flow_name is None:
            yield RuleViolation(("rehearsal",), _NO_FLOW_TO_SWITCH)
        if self.rehearsal and self.load.is_endless:
            yield RuleViolation(("rehearsal",), _NO_REHEARSAL_END)

    def _chaos_breaches(self) -> Iterator[RuleViolation]:
        steps = list(enumerate(self.chaos))
        percents = [(i, step.at_percent) for i, step in steps if step.at_percent is not None]
        seconds = [(i, step.at_seconds) for i, step in steps if step.at_seconds is not None]
        for field, moments in (("atPercent", percents), ("atSeconds", seconds)):
            for (_, before), (index, moment) in pairwise(moments):
                if moment < before:
                    yield RuleViolation(
                        ("chaos", index, field), f"must not be before {before}, above it"
                    )
        if self.load.messages is None:
            for index, _ in percents:
                yield RuleViolation(("chaos", index, "atPercent"), _A_PART)
        load = self.load
        what, end = "the load", load.duration_seconds
        if load.is_endless:
            what, end = "a window", load.window_seconds
        for index, moment in seconds:
            if end is not None and moment > end:
                words = f"must not be after the end of {what}, at {end}"
                yield RuleViolation(("chaos", index, "atSeconds"), words)
        for index, step in steps:
            if step.action is ChaosAction.ADD_TOPIC and load.duration_seconds is None:
                yield RuleViolation(("chaos", index, "action"), _NO_SHARE)
            if step.action.is_of_load and load.is_endless:
                yield RuleViolation(("chaos", index, "action"), _NO_END)
            if step.partitions is not None and self.partitioning is Partitioning.BY_KEY:
                yield RuleViolation(("chaos", index, "action"), _KEYS_MOVE)


MAX_SCHEDULED_NAME_LENGTH = MAX_NAME_LENGTH - 9
"""Maximum length of the name of a test with a schedule. Names of runs append ``-`` and the minute,
which has 8 digits until 2160."""
_SHORTER_NAME = (
    f"needs a metadata.name of at most {MAX_SCHEDULED_NAME_LENGTH} characters: "
    "runs are named after it and the time"
)


# No optional values are compared, because the API server estimates the cost as unlimited.
_UNCHANGED = " && ".join(
    f"has(self.spec.{info.alias}) == has(oldSelf.spec.{info.alias})"
    f" && (!has(self.spec.{info.alias}) || self.spec.{info.alias} == oldSelf.spec.{info.alias})"
    for name, info in MirrorTestSpec.model_fields.items()
    if name != "ttl_seconds_after_finished"
)


class MirrorTest(Model):
    """Test of a mirror: it sends a load, injects faults and compares the clusters."""

    api_version: Literal["headrace.dev/v1beta1"] = API_VERSION
    """Version of the API."""
    kind: Literal["MirrorTest"] = "MirrorTest"
    """Kind of the object."""
    metadata: ObjectMeta
    """Name, namespace, labels."""
    spec: MirrorTestSpec
    """Mirror, load and allowed defects."""
    status: MirrorTestStatus | None = None
    """Result of the test, written by headrace."""

    rules = (
        # A test has begun when its first Job sets startTime, and then keeps its spec. A test with
        # a schedule only starts other tests.
        Rule(
            "has(oldSelf.spec.schedule) || !oldSelf.?status.startTime.hasValue()"
            f" || ({_UNCHANGED})",
            "is immutable once the test has begun: make another test instead (only "
            "ttlSecondsAfterFinished may change)",
            at="spec",
        ),
        Rule(
            f"!has(self.spec.schedule) || size(self.metadata.name) <= {MAX_SCHEDULED_NAME_LENGTH}",
            _SHORTER_NAME,
            at="spec.schedule",
        ),
        Rule(
            "!has(self.spec.load) || !has(self.spec.load.durationSeconds)"
            " || self.spec.load.durationSeconds > 0"
            f" || size(self.metadata.name) <= {MAX_SCHEDULED_NAME_LENGTH}",
            f"a load without end {_SHORTER_NAME}",
            at="spec.load",
        ),
    )

    def _breaches(self) -> Iterator[RuleViolation]:
        yield from name_breaches(self.metadata)
        if self.spec.repeats and len(self.metadata.name) > MAX_SCHEDULED_NAME_LENGTH:
            field = ("schedule",) if self.spec.schedule else ("load", "durationSeconds")
            yield RuleViolation(("spec", *field), _SHORTER_NAME)
