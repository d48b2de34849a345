"""What is assigned, and to whom: the identities that every room knows."""

import re
from typing import NamedTuple

DriverName = str

_STATEFUL = frozenset({"SourceTask"})


class TaskId(NamedTuple):
    """A connector or a task of a flow: the unit that is assigned.

    A tuple, as a million of them are hashed and compared within a second.
    """

    flow: str
    type: str
    """``SourceConnector``, ``SourceTask`` ... as in ReplicationTask."""
    index: int  # type: ignore[assignment]  # hides tuple.index, which means nothing here

    @property
    def name(self) -> str:
        """The name of its ReplicationTask: ``orders-source-task-3``."""
        words = re.sub(r"(?<=[a-z])(?=[A-Z])", "-", self.type).lower()
        return f"{self.flow}-{words}-{self.index}"

    @property
    def is_connector(self) -> bool:
        """Whether it is a connector; Connect deals those apart from tasks."""
        return self.type.endswith("Connector")

    @property
    def is_stateful(self) -> bool:
        """Whether it keeps positions, so that a standby can keep itself restored for it."""
        return self.type in _STATEFUL
