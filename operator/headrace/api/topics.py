"""Names of the topics that headrace and MirrorMaker 2 keep for themselves.

MirrorMaker's clients, policies and filters recognize all of them as internal
(``DefaultReplicationPolicy.isMM2InternalTopic``).
"""

import re
from typing import Final

HEARTBEATS: Final = "heartbeats"
"""Replicated whatever the filter says, or nobody sees who is upstream."""
JOURNAL: Final = "mm2-headrace-tests.internal"
"""The jobs of mirror tests exchange their results in this topic of the source."""

_OURS, _EARLIER = "mm2-headrace-", "headrace-"
_INTERNAL = re.compile(
    r"__.*|\..*"  # Kafka's own
    r"|mm2.*[-.]internal"
    r"|mm2-offset-syncs(?P<syncs>[-._]+).*(?P=syncs)internal"  # with another separator
    r"|.*(?P<checkpoints>[-._]+)checkpoints(?P=checkpoints)internal"
    r"|headrace-(tests|(progress|acls|denials|topics)\..*)\.internal"
)


def progress_topic(source_alias: str) -> str:
    """Return the topic of the target that stores the offsets of flows from this source."""
    return f"{_OURS}progress.{source_alias}.internal"


def acls_topic(source_alias: str) -> str:
    """Return the topic of the target that lists the ACLs which flows from this source added."""
    return f"{_OURS}acls.{source_alias}.internal"


def denials_topic(source_alias: str) -> str:
    """Return the topic of the target that lists the writes which a fail-over denied."""
    return f"{_OURS}denials.{source_alias}.internal"


def made_topics_topic(source_alias: str) -> str:
    """Return the topic of the target that lists the copies which flows from this source made."""
    return f"{_OURS}topics.{source_alias}.internal"


def earlier_name(topic: str) -> str:
    """Return the name that one of headrace's own topics had before v1beta1."""
    return _EARLIER + topic.removeprefix(_OURS)


def offset_syncs_topic(other_alias: str, separator: str) -> str:
    """Return MirrorMaker 2's topic of offset syncs; ``separator`` is the policy's."""
    return separator.join(("mm2-offset-syncs", other_alias, "internal"))


def checkpoints_topic(source_alias: str, separator: str) -> str:
    """Return MirrorMaker 2's topic of checkpoints; ``separator`` is the policy's."""
    return separator.join((source_alias, "checkpoints", "internal"))


def connect_offsets_topic(source_alias: str) -> str:
    """Return the topic of MirrorMaker 2's offsets in dedicated mode, for every separator."""
    return f"mm2-offsets.{source_alias}.internal"


def is_internal(topic: str) -> bool:
    """Return True for a topic that is never replicated, whatever a flow says.

    A copy of another cluster's bookkeeping would be mistaken for the cluster's own. Names that
    headrace used earlier are internal as well.
    """
    return _INTERNAL.fullmatch(topic) is not None
