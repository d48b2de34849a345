"""Incremental fetch sessions (KIP-227): a request names what changed, a response what has news.

The rules are those of Kafka's ``FetchSessionHandler``.
"""

from collections.abc import Hashable, Mapping
from typing import Generic, TypeVar
from uuid import UUID

from kio.schema.errors import ErrorCode

from headrace.kafka.wire.fetch import FetchPosition, FetchResponse, Forgotten, Session

K = TypeVar("K", bound=Hashable)
_OPEN = 0
"""The epoch that asks for a new session. A broker without room for one answers without an id."""
_LAST_EPOCH = (1 << 31) - 1


class FetchSession(Generic[K]):
    """Fetch session with one broker.

    There is one request at a time: call ``begin``, then ``answered`` or ``lost``.
    """

    def __init__(self) -> None:
        self._id, self._epoch = 0, _OPEN
        self._named = False
        self._known: Mapping[K, FetchPosition] = {}
        """Partitions that the broker has been sent, unless ``_epoch`` is ``_OPEN``."""

    def begin(self, wanted: Mapping[K, FetchPosition]) -> tuple[list[FetchPosition], Session]:
        """Return the changes that the next request must contain so that ``wanted`` is fetched.

        A partition whose topic was created again has another id: it is removed and added again.
        """
        known, self._known = self._known, wanted
        if self._epoch == _OPEN:
            self._named = any(one.topic_id is None for one in wanted.values())
            return list(wanted.values()), Session(self._id, _OPEN, named=self._named)
        changed = [
            one
            for key, one in wanted.items()
            # Offsets differ most often, and comparing ids of topics takes a call.
            if (old := known.get(key)) is not one
            and (old is None or old.offset != one.offset or old != one)
        ]
        self._named = self._named or any(one.topic_id is None for one in changed)
        topics: dict[tuple[UUID | None, str], list[int]] = {}
        for key, old in known.items():
            if (new := wanted.get(key)) is None or (
                new.topic_id is not old.topic_id and new.topic_id != old.topic_id
            ):
                topics.setdefault((old.topic_id, old.topic), []).append(old.partition)
        forgotten = tuple(Forgotten(*topic, indexes) for topic, indexes in topics.items())
        return changed, Session(self._id, self._epoch, forgotten, self._named)

    def answered(self, response: FetchResponse) -> bool:
        """Return whether the response's partitions count.

        After an error of the session the next request is a full one.
        """
        if response.error is not ErrorCode.none:
            if response.error is ErrorCode.fetch_session_id_not_found:
                self._id = 0
            self._epoch = _OPEN
            return False
        self._id = response.session_id
        if not self._id:
            self._epoch = _OPEN
        else:
            self._epoch = 1 if self._epoch == _LAST_EPOCH else self._epoch + 1
        return True

    def lost(self) -> None:
        """There was no answer: the next request closes the session, and opens another one."""
        self._epoch = _OPEN
