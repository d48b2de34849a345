"""Names of topics that are not as others."""

import re
from typing import Final

HEARTBEATS: Final = "heartbeats"
"""Replicated whatever the filter says, or nobody sees who is upstream."""

_INTERNAL = re.compile(r"__.*|\..*|.*[-.]internal")


def is_internal(topic: str) -> bool:
    """Never replicated, whatever a flow says (MirrorMaker 2's isInternalTopic): a copy of another
    cluster's bookkeeping would be taken for one's own."""
    return _INTERNAL.fullmatch(topic) is not None
