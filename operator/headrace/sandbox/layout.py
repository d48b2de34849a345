"""What lies in a sandbox's folder: ``sandbox.json`` and a folder for each broker."""

import base64
import secrets
from collections.abc import Sequence
from pathlib import Path

from pydantic import BaseModel, ConfigDict, ValidationError

from headrace.errors import InvalidSpec
from headrace.host import write_whole
from headrace.sandbox.broker import Broker
from headrace.sandbox.cluster import Cluster
from headrace.sandbox.plan import ClusterPlan
from headrace.sandbox.properties import broker_properties, rack_properties
from headrace.sandbox.security import Security, write_private
from headrace.toolchain import Java

SECRETS = "secrets"
"""Folder of what clients of secure clusters need, laid out as Kubernetes mounts Secrets."""


class ClusterFacts(BaseModel):
    """What was decided about a cluster before its first start."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str
    cluster_id: str
    heap_mb: int
    ports: tuple[tuple[int, int], ...]
    """For clients and for controllers, of each broker."""
    secure_ports: tuple[tuple[int, int], ...] = ()
    """For SASL over TLS and for client certificates, of each broker of a secure cluster."""

    def at(self, folder: Path, java: Java, *, ends_with_us: bool) -> Cluster:
        """The cluster, in the sandbox's ``folder``."""
        brokers = tuple(
            Broker(
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
        return Cluster(self.name, self.cluster_id, brokers)


class Layout(BaseModel):
    """``sandbox.json``: what does not change while the sandbox is there."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    detached: bool
    java: Java
    clusters: tuple[ClusterFacts, ...]

    @classmethod
    def is_in(cls, folder: Path) -> bool:
        """Is ``folder`` a sandbox's?"""
        return (folder / "sandbox.json").is_file()

    @classmethod
    def read(cls, folder: Path) -> "Layout":
        """The layout of the sandbox in ``folder``; InvalidSpec when another version wrote it."""
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
        """Lay out a sandbox that was never started; ``ports`` as :func:`wanted_ports` has them."""
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
                security = Security.make(plan.name, folder / SECRETS, folder / plan.name, secure)
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
    """Of each cluster the ports for clients, then those for controllers and, where it is secure,
    two more of each broker; None: any that is free."""
    wanted: list[int | None] = []
    for plan in plans:
        for_clients = [plan.port + n if plan.port else None for n in range(plan.brokers)]
        others = 3 if plan.secure else 1
        wanted += [*for_clients, *[None] * (others * plan.brokers)]
    return wanted


def _random_cluster_id() -> str:
    """16 random bytes in base64, like Kafka's Uuid.randomUuid; a '-' in front looks like a flag."""
    while (text := base64.urlsafe_b64encode(secrets.token_bytes(16)).decode()).startswith("-"):
        pass
    return text.rstrip("=")
