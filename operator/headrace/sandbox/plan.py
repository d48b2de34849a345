"""What a sandbox is to consist of."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from headrace.errors import InvalidSpec

NAME = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")
"""A DNS label, as a flow's alias has to be one."""


@dataclass(frozen=True)
class ClusterPlan:
    """A Kafka cluster to start: every broker is a controller too (KRaft)."""

    name: str
    brokers: int = 1
    port: int | None = None
    """The first broker's port, the next one's is one higher; None picks free ones."""
    heap_mb: int = 256
    """Heap of each broker; with it a broker takes about 190 MB of memory after its start."""
    properties: Mapping[str, str] = field(default_factory=dict)
    """Broker settings on top of those of ``properties.py``."""
    racks: Sequence[str] = ()
    """Of the brokers, in turn; consumers may then fetch from a follower in their rack (KIP-392)."""
    secure: bool = False
    """Also a listener for SASL over TLS, and one that asks for a client certificate."""

    def __post_init__(self) -> None:
        check_name(self.name)
        if self.brokers < 1:
            raise InvalidSpec(f"cluster {self.name} is to have {self.brokers} brokers: at least 1")
        if self.port is not None and not 1024 <= self.port <= 65536 - self.brokers:
            raise InvalidSpec(
                f"cluster {self.name} cannot have {self.brokers} ports from {self.port} on: "
                "ports for it lie between 1024 and 65535"
            )


def check_name(name: str) -> None:
    """Raise InvalidSpec unless ``name`` can name a sandbox or a cluster."""
    if not NAME.fullmatch(name):
        raise InvalidSpec(
            f"{name!r} cannot name a sandbox or a cluster: lower-case letters, digits and '-', at "
            "most 63 of them, a letter or digit at both ends"
        )
