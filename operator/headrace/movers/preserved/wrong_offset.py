"""Messages about records at other offsets than the source's."""

from headrace.api import TopicPartition
from headrace.errors import Fatal, HeadraceError, Retriable

REBUILD = "have it copied again: `headrace flow rebuild`"
"""End of a sentence that asks a user to rebuild the copy."""


class WrongOffset(Fatal):
    """A record was written at another offset than on the source, so another client writes there."""

    def __init__(self, at: TopicPartition, offset: int, message: str) -> None:
        """Create the error; ``offset`` is the first that differs from the source."""
        super().__init__(message)
        self.at, self.offset = at, offset


def appended_elsewhere(
    at: TopicPartition, name: str, offset: int, base_offset: int, *, what: str = ""
) -> HeadraceError:
    """Return the error about ``what``, which belongs at ``offset`` of a partition.

    ``name`` is the partition's cluster. By default ``what`` is a record of the source.
    """
    what = what or f"what the source holds at offset {offset}"
    if base_offset < offset:
        # Nothing is appended before a log's end.
        return Retriable(
            f"{name} took {what} for a repetition of what {at} holds at {base_offset}: no log "
            "takes records before its end (possible causes: an earlier owner appended meanwhile, "
            "or an unclean election); the log is read again"
        )
    return WrongOffset(
        at,
        offset,
        f"{what} was appended to {at} on {name} at {base_offset}: from {offset} on offsets are "
        f"not those of the source; another client writes there; stop it, then {REBUILD}",
    )
