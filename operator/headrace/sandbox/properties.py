"""``server.properties`` of a broker."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from headrace.sandbox.ports import HOST
from headrace.sandbox.security import USERNAME, Security

_LOGIN_MODULES = {
    "plain": "org.apache.kafka.common.security.plain.PlainLoginModule",
    "scram-sha-256": "org.apache.kafka.common.security.scram.ScramLoginModule",
    "scram-sha-512": "org.apache.kafka.common.security.scram.ScramLoginModule",
}


def broker_properties(
    node_id: int,
    ports: Sequence[tuple[int, int]],
    data: Path,
    extra: Mapping[str, str],
    security: Security | None = None,
) -> str:
    """Settings of node ``node_id`` (from 1); ``ports``: each node's for clients and controllers."""
    client, controller = ports[node_id - 1]
    copies = min(3, len(ports))
    in_sync = max(1, copies - 1)
    settings: dict[str, object] = {
        "process.roles": "broker,controller",
        "node.id": node_id,
        "controller.quorum.voters": ",".join(
            f"{voter}@{HOST}:{port}" for voter, (_, port) in enumerate(ports, start=1)
        ),
        "controller.listener.names": "CONTROLLER",
        "listeners": f"PLAINTEXT://{HOST}:{client},CONTROLLER://{HOST}:{controller}",
        "advertised.listeners": f"PLAINTEXT://{HOST}:{client}",
        "inter.broker.listener.name": "PLAINTEXT",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
        "log.dirs": data,
        # Topics are created on purpose; one that springs up hides a wrong name.
        "auto.create.topics.enable": "false",
        "default.replication.factor": copies,
        "min.insync.replicas": in_sync,
        # Internal topics, whose default of three copies a single broker could not make; small, as
        # each partition costs files and start-up time.
        "offsets.topic.replication.factor": copies,
        "offsets.topic.num.partitions": 4,
        "transaction.state.log.replication.factor": copies,
        "transaction.state.log.min.isr": in_sync,
        "transaction.state.log.num.partitions": 2,
        "share.coordinator.state.topic.replication.factor": copies,
        "share.coordinator.state.topic.min.isr": in_sync,
        "group.initial.rebalance.delay.ms": 0,
        # The default of 128 MB is half of our heap.
        "log.cleaner.dedupe.buffer.size": 4 * 2**20,
        "log.cleaner.threads": 1,
        "num.network.threads": 2,
        "num.io.threads": 4,
    }
    if len(ports) > 1:
        # A killed broker's leaderships move when its session ends: 3 s instead of 9. (One that was
        # killed and comes back waits for that as well. A single broker keeps the 9 s all the same:
        # on a busy machine it would lose its own session, and nobody could take over.)
        settings |= {"broker.session.timeout.ms": 3000, "broker.heartbeat.interval.ms": 500}
    if security:
        settings |= _secure(settings, node_id, security)
    return "".join(f"{key}={value}\n" for key, value in (settings | dict(extra)).items())


def rack_properties(node_id: int, racks: Sequence[str]) -> dict[str, str]:
    """Settings of node ``node_id`` (from 1) of a cluster in ``racks``, if it has some."""
    if not racks:
        return {}
    return {
        "broker.rack": racks[(node_id - 1) % len(racks)],
        "replica.selector.class": "org.apache.kafka.common.replica.RackAwareReplicaSelector",
    }


def _secure(settings: Mapping[str, object], node_id: int, security: Security) -> dict[str, object]:
    """Two listeners more; brokers and controllers talk to each other in plain text as before."""
    sasl, tls = security.ports[node_id - 1]
    more = f",SASL_SSL://{HOST}:{sasl},SSL://{HOST}:{tls}"
    secure: dict[str, object] = {
        "listeners": f"{settings['listeners']}{more}",
        "advertised.listeners": f"{settings['advertised.listeners']}{more}",
        "listener.security.protocol.map": (
            f"{settings['listener.security.protocol.map']},SASL_SSL:SASL_SSL,SSL:SSL"
        ),
        "listener.name.ssl.ssl.client.auth": "required",
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": security.key_store,
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": security.trust_store,
        "sasl.enabled.mechanisms": ",".join(_LOGIN_MODULES).upper(),
    }
    for mechanism, module in _LOGIN_MODULES.items():
        user = f' user_{USERNAME}="{security.password}"' if mechanism == "plain" else ""
        key = f"listener.name.sasl_ssl.{mechanism}.sasl.jaas.config"
        secure[key] = f"{module} required{user};"
    return secure
