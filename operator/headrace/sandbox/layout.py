"""Plan of a sandbox's clusters: brokers, ports and racks."""

import base64
import re
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from pydantic import BaseModel, ConfigDict, ValidationError

from headrace.errors import InvalidSpec
from headrace.host import write_whole
from headrace.sandbox.broker import BrokerProcess, SandboxCluster
from headrace.sandbox.broker_config import (
    ClusterSecurity,
    broker_properties,
    rack_properties,
    write_private,
)
from headrace.toolchain import Java

NAME = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")
"""Pattern of a cluster's name. It is the pattern of a DNS label, because a flow uses the name as an
alias."""


@dataclass(frozen=True)
class ClusterPlan:
    """Kafka cluster to start. Every broker is also a KRaft controller."""

    name: str
    brokers: int = 1
    port: int | None = None
    """Port of the first broker. The next brokers have the next ports.

    With None, free ports are chosen.
    """
    heap_mb: int = 256
    """Heap of each broker. With 256 MB, a broker uses about 190 MB of memory after its start."""
    properties: Mapping[str, str] = field(default_factory=dict)
    """Additional broker settings, which override those of ``broker_config``."""
    racks: Sequence[str] = ()
    """Racks that are assigned to the brokers in turn.

    With racks, consumers may fetch from a follower in their rack (KIP-392).
    """
    secure: bool = False
    """True to add a SASL listener over TLS and a listener that requires a client certificate."""

    def __post_init__(self) -> None:
        check_name(self.name)
        if self.brokers < 1:
            raise InvalidSpec(f"cluster {self.name} is to have {self.brokers} brokers: at least 1")
        if self.port is not None and not 1024 <= self.port <= 65536 - self.brokers:
            raise InvalidSpec(
                f"cluster {self.name} cannot have {self.brokers} ports from {self.port} on: "
                "its ports must be between 1024 and 65535"
            )


def check_name(name: str) -> None:
    """Raise ``InvalidSpec`` if ``name`` is not allowed for sandboxes and clusters."""
    if not NAME.fullmatch(name):
        raise InvalidSpec(
            f"{name!r} cannot name a sandbox or a cluster: lower-case letters, digits and '-', at "
            "most 63 of them, a letter or digit at both ends"
        )


SECRETS = "secrets"
"""Folder with the files for clients of secure clusters, laid out as Kubernetes mounts Secrets."""


class ClusterFacts(BaseModel):
    """Settings of a cluster that are fixed before its first start."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str
    cluster_id: str
    heap_mb: int
    ports: tuple[tuple[int, int], ...]
    """Client port and controller port of each broker."""
    secure_ports: tuple[tuple[int, int], ...] = ()
    """Ports of each broker for SASL over TLS and for client certificates.

    Empty if the cluster is not secure.
    """

    def at(self, folder: Path, java: Java, *, ends_with_us: bool) -> SandboxCluster:
        """Return the cluster in the sandbox's ``folder``."""
        brokers = tuple(
            BrokerProcess(
                cluster=self.name,
                node_id=node_id,
                port=port,
                folder=folder / self.name / f"broker-{node_id}",
                java=java,
                heap_mb=self.heap_mb,
                ends_with_us=ends_with_us,
                secure_ports=self.secure_ports[node_id - 1] if self.secure_ports else None,
            )
            for node_id, (port, _) in enumerate(self.ports, start=1)
        )
        return SandboxCluster(self.name, self.cluster_id, brokers)


class Layout(BaseModel):
    """Content of ``sandbox.json``, which does not change while the sandbox exists."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    detached: bool
    java: Java
    clusters: tuple[ClusterFacts, ...]

    @classmethod
    def is_in(cls, folder: Path) -> bool:
        """Return True if ``folder`` contains a sandbox."""
        return (folder / "sandbox.json").is_file()

    @classmethod
    def read(cls, folder: Path) -> "Layout":
        """Return the layout of the sandbox in ``folder``.

        Raise ``InvalidSpec`` if another version of headrace wrote it.
        """
        try:
            return cls.model_validate_json((folder / "sandbox.json").read_bytes())
        except ValidationError as error:
            raise InvalidSpec(
                f"{folder / 'sandbox.json'} was written by another version of headrace: end its "
                f"brokers with that version, or delete {folder} when none of them runs any more"
            ) from error

    @classmethod
    def write(
        cls,
        folder: Path,
        plans: Sequence[ClusterPlan],
        ports: Sequence[int],
        java: Java,
        *,
        detached: bool,
    ) -> "Layout":
        """Write the files of a new sandbox. ``ports`` are in the order of ``wanted_ports``."""
        left = iter(ports)
        clusters = []
        for plan in plans:
            for_clients = [next(left) for _ in range(plan.brokers)]
            for_controllers = [next(left) for _ in range(plan.brokers)]
            secure = [(next(left), next(left)) for _ in range(plan.brokers if plan.secure else 0)]
            facts = ClusterFacts(
                name=plan.name,
                cluster_id=_random_cluster_id(),
                heap_mb=plan.heap_mb,
                ports=tuple(zip(for_clients, for_controllers, strict=True)),
                secure_ports=tuple(secure),
            )
            security = None
            if plan.secure:
                security = ClusterSecurity.make(
                    plan.name, folder / SECRETS, folder / plan.name, secure
                )
            for broker in facts.at(folder, java, ends_with_us=not detached).brokers:
                broker.folder.mkdir(parents=True)
                settings = broker_properties(
                    broker.node_id,
                    facts.ports,
                    broker.data,
                    rack_properties(broker.node_id, plan.racks) | dict(plan.properties),
                    security,
                )
                write_private(broker.folder / "server.properties", settings.encode())
                if security:
                    write_private(broker.scram, "\n".join(security.scram_users()).encode())
            clusters.append(facts)
        layout = cls(detached=detached, java=java, clusters=tuple(clusters))
        write_whole(folder / "sandbox.json", layout.model_dump_json(indent=2).encode())
        return layout


def wanted_ports(plans: Sequence[ClusterPlan]) -> list[int | None]:
    """Return the requested ports of all clusters, with None for any free port.

    Each cluster has its client ports, then its controller ports and, if it is secure, two more
    ports for each broker.
    """
    wanted: list[int | None] = []
    for plan in plans:
        for_clients = [plan.port + n if plan.port else None for n in range(plan.brokers)]
        others = 3 if plan.secure else 1
        wanted += [*for_clients, *[None] * (others * plan.brokers)]
    return wanted


def _random_cluster_id() -> str:
    """Return 16 random bytes in base64, like Kafka's ``Uuid.randomUuid``.

    The id does not begin with '-', because it would look like an option.
    """
    while (text := base64.urlsafe_b64encode(secrets.token_bytes(16)).decode()).startswith("-"):
        pass
    return text.rstrip("=")
