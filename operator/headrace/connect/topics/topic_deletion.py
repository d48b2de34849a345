"""Deletes copies whose sources were deleted (``spec.topicDeletion``).

A copy is deleted only if all of this holds; each is asked for again just before:

- the flow made it, while ``mode`` was not Disabled, and it is the same topic still;
- the source is the same cluster, answers, and says by name that the topic is not there: one that
  the flow may not describe is no deleted one;
- that was so for ``delaySeconds``, without a break in this connector;
- no task holds a partition of it, no fail-over has made it the original, no loss of it is open;
- no group with members reads it on the target;
- at most ``maxTopics`` are due at once: of more, none is deleted.
"""

from collections.abc import Collection, Mapping, Set

from headrace.api import Condition, ConditionStatus, ConditionType, Reason
from headrace.api.flow import TopicDeletionMode
from headrace.connect.runtime.context import FlowContext
from headrace.connect.runtime.groups_in_use import groups_in_use
from headrace.connect.topics.deleted_topics import described
from headrace.connect.topics.made_topics import MadeTopics
from headrace.errors import HeadraceError
from headrace.kafka import NO_TOPIC_ID
from headrace.logs import get_logger
from headrace.replication import MadeTopic

log = get_logger(__name__)

_SHOWN_S = 3600.0
"""So long the condition names what was deleted."""
_MOST = 10
_LONGEST_MESSAGE = 4096


class TopicDeletion:
    """One thread calls it. It raises nothing: data is copied all the same, and the condition says
    what keeps it from deleting."""

    def __init__(self, context: FlowContext) -> None:
        self._context = context
        self._topics = MadeTopics(context)
        self._made: set[str] = set()
        """Copies that were made just now, until they are remembered."""
        self._absent_since: dict[str, float] = {}
        """When the source of a copy was missed first, monotonic."""
        self._deleted: dict[str, float] = {}
        """Copies, and when they were deleted, monotonic."""
        self.conditions: tuple[Condition, ...] = ()

    def made(self, topics: Collection[str]) -> None:
        """The flow has just made the copies of these topics of the source."""
        if self._mode is not TopicDeletionMode.DISABLED:
            self._made.update(topics)

    def poll(self, there: Collection[str], held: Set[str]) -> None:
        """``there``: the topics of the source, as it answered just now; ``held``: those of which a
        task has partitions."""
        if self._mode is TopicDeletionMode.DISABLED:
            self._absent_since, self._deleted, self.conditions = {}, {}, ()
            return
        try:
            self._remember()
            self._follow(there, held)
        except HeadraceError as error:
            self._report(Reason.DELETION_REFUSED, f"no copy is deleted: {error}")

    def close(self) -> None:
        """Free clients."""
        self._topics.close()

    @property
    def _mode(self) -> TopicDeletionMode:
        return self._context.spec.topic_deletion.mode

    def _remember(self) -> None:
        if not self._made:
            return
        context, names = self._context, {}
        for topic in self._made:
            names[context.policy.target_topic(topic)] = topic
        self._topics.read()  # makes the topic
        found = context.target.describe(names)
        id = context.source_cluster_id
        self._topics.remember(
            {name: MadeTopic(one.topic_id, id, names[name]) for name, one in found.items()}
        )
        self._made.difference_update(names[name] for name in found)

    def _follow(self, there: Collection[str], held: Set[str]) -> None:
        context, now_s = self._context, self._context.clock.monotonic()
        wanted = context.spec.topic_deletion
        absent = {
            name: one
            for name, one in self._topics.read().items()
            if one.source_cluster_id == context.source_cluster_id
            and context.topics.matches(one.source)
            and context.policy.target_topic(one.source) == name
            and one.source not in there
        }
        if absent:
            sources = {one.source for one in absent.values()}
            known = described(context, sources)
            absent = self._as_made({n: one for n, one in absent.items() if one.source not in known})
        since = self._absent_since
        self._absent_since = {name: since.get(name, now_s) for name in absent}
        due = {
            name: one
            for name, one in absent.items()
            if now_s - self._absent_since[name] >= wanted.delay_seconds and one.source not in held
        }
        kept = self._kept(due)
        deletable = sorted(due.keys() - kept.keys())
        if len(deletable) > wanted.max_topics:
            self._report(
                Reason.DELETION_REFUSED,
                f"{len(deletable)} copies have no source any more, and spec.topicDeletion."
                f"maxTopics is {wanted.max_topics}: none is deleted ({_listed(deletable)}). Raise "
                "it for as long as it takes, or delete them yourself",
            )
            return
        if self._mode is TopicDeletionMode.ENABLED:
            for name in deletable:
                self._delete(name)
            deletable = []
        self._show(deletable, kept, sorted(absent.keys() - due.keys()))

    def _as_made(self, absent: Mapping[str, MadeTopic]) -> dict[str, MadeTopic]:
        """Those that are there and are what the flow made; the others are forgotten."""
        there = self._context.target.describe(absent)
        same = {
            name: one
            for name, one in absent.items()
            if name in there and there[name].topic_id == one.topic_id != NO_TOPIC_ID
        }
        self._topics.forget(absent.keys() - same.keys())
        return same

    def _kept(self, due: Mapping[str, MadeTopic]) -> dict[str, str]:
        """Why these are not deleted."""
        if not due:
            return {}
        context = self._context
        context.progress.read_to_end()
        kept = {}
        for key, one in context.progress.stored(context.source_cluster_id).items():
            if key.target_topic not in due:
                continue
            if one.switch is not None:
                kept[key.target_topic] = "it was failed over"
            elif one.loss is not None and one.loss.unresolved:
                kept[key.target_topic] = "records of its source were lost"
        for group, topics in groups_in_use(context.target).items():
            for name in due.keys() & topics:
                kept[name] = f"group {group} reads it"
        return kept

    def _delete(self, name: str) -> None:
        self._context.target.delete_topic(name)
        log.warning("copy deleted, as its source was", flow=self._context.name, topic=name)
        self._deleted[name] = self._context.clock.monotonic()
        self._absent_since.pop(name, None)
        self._topics.forget([name])

    def _show(self, would: list[str], kept: Mapping[str, str], waiting: list[str]) -> None:
        now_s = self._context.clock.monotonic()
        self._deleted = {n: at for n, at in self._deleted.items() if now_s - at < _SHOWN_S}
        parts = []
        if kept:
            why = "; ".join(f"{name}: {reason}" for name, reason in sorted(kept.items()))
            parts.append((Reason.DELETION_REFUSED, f"kept: {why}"))
        if would:
            parts.append((Reason.DELETION_DRY_RUN, f"would be deleted: {_listed(would)}"))
        if waiting:
            after_s = self._context.spec.topic_deletion.delay_seconds
            each = f"their sources are deleted, and they are {after_s} s later: {_listed(waiting)}"
            parts.append((Reason.DELETION_PENDING, each))
        if self._deleted:
            parts.append((Reason.COPIES_DELETED, f"deleted: {_listed(sorted(self._deleted))}"))
        if parts:
            self._report(parts[0][0], "; ".join(text for _, text in parts))
        else:
            self.conditions = ()

    def _report(self, reason: Reason, message: str) -> None:
        if not self.conditions or self.conditions[0].message != message:
            log.warning("topic deletion", flow=self._context.name, reason=str(reason), why=message)
        self.conditions = (
            Condition(
                type=ConditionType.TOPIC_DELETION,
                status=ConditionStatus.TRUE,
                reason=reason,
                message=message[:_LONGEST_MESSAGE],
            ),
        )


def _listed(names: list[str]) -> str:
    more = len(names) - _MOST
    return ", ".join(names[:_MOST]) + (f" and {more} more" if more > 0 else "")
