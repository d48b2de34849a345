"""Messages about records that came to other offsets than the source's."""

from headrace.api import TopicPartition
from headrace.errors import Fatal, HeadraceError, Retriable

REBUILD = "have it copied again: `headrace flow rebuild`"
"""What a sentence ends with where a person has to do that."""


class WrongOffset(Fatal):
    """What was written lies at another offset than on the source: somebody else writes there."""

    def __init__(self, at: TopicPartition, offset: int, message: str) -> None:
        """``offset``: the first that is not as on the source."""
        super().__init__(message)
        self.at, self.offset = at, offset


def appended_elsewhere(
    at: TopicPartition, name: str, offset: int, base_offset: int, *, what: str = ""
) -> HeadraceError:
    """``what`` belongs to that offset, in a partition of the cluster ``name``; by default records
    of the source."""
    what = what or f"what the source holds at offset {offset}"
    if base_offset < offset:
        # Nothing is appended before a log's end.
        return Retriable(
            f"{name} took {what} for a repetition of what {at} holds at {base_offset}: an earlier "
            "owner appended meanwhile, or an unclean election has lost records, which is found out "
            "now"
        )
    return WrongOffset(
        at,
        offset,
        f"{what} was appended to {at} on {name} at {base_offset}: from {offset} on offsets are "
        f"not those of the source; another client writes there; stop it, then {REBUILD}",
    )
