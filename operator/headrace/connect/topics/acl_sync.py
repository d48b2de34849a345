"""Keeps read rights on copies like those on their sources (``spec.acls``)."""

from collections.abc import Collection
from math import inf

from headrace.api import acls_topic
from headrace.connect.runtime.context import FlowContext
from headrace.connect.topics.added_acls import AddedAcls
from headrace.errors import HeadraceError
from headrace.logs import get_logger
from headrace.replication import TopicAcl, wanted_acls

log = get_logger(__name__)


class AclSync:
    """Polls both clusters every ``acls.intervalSeconds``. One thread calls it.

    It raises nothing: data is copied without, and ``problem`` says why they differ.
    """

    def __init__(self, context: FlowContext) -> None:
        self._context = context
        self._added = AddedAcls(context, acls_topic(context.spec.source.alias))
        self._next_s = 0.0
        self._topics: frozenset[str] = frozenset()
        self.problem = ""

    def poll(self, topics: Collection[str]) -> float:
        """Synchronize if that is due, or if ``topics`` (of the source) has new ones.

        Returns the seconds until it is due again.
        """
        wanted, now_s = self._context.spec.acls, self._context.clock.monotonic()
        if not wanted.enabled:
            self._next_s, self.problem = 0.0, ""
            return inf
        if now_s >= self._next_s or not self._topics.issuperset(topics):
            self._topics = frozenset(topics)
            try:
                self._synchronize()
                self.problem = ""
            except HeadraceError as error:
                if self.problem != str(error):
                    log.warning("ACLs not synchronized", flow=self._context.name, why=str(error))
                self.problem = str(error)
            self._next_s = now_s + wanted.interval_seconds
        return max(0.0, self._next_s - self._context.clock.monotonic())

    def close(self) -> None:
        """Free clients."""
        self._added.close()

    def _synchronize(self) -> None:
        context = self._context
        source = context.clients.acls(context.source_access)
        target = context.clients.acls(context.target_access)
        copies = {topic: context.policy.target_topic(topic) for topic in self._topics}
        wanted = wanted_acls((TopicAcl(**acl) for acl in source.topic_acls()), copies)
        there = {TopicAcl(**acl) for acl in target.topic_acls()}
        # Other flows of the source have topics of their own there.
        ours = {acl for acl in self._added.read() if acl.topic in copies.values()}
        new, gone = wanted - there, ours - wanted
        # What is denied first: between the two nobody may read more than on the source.
        self._added.remember(new - ours)
        for permission in ("Deny", "Allow"):
            target.add_acls([one._asdict() for one in new if one.permission == permission])
        for permission in ("Allow", "Deny"):
            target.remove_acls([one._asdict() for one in gone if one.permission == permission])
        self._added.forget(gone)
        if new or gone:
            log.info("ACLs synchronized", flow=context.name, added=len(new), removed=len(gone))
