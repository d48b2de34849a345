"""``server.properties`` of a broker."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from headrace.sandbox.ports import HOST


def broker_properties(
    node_id: int,
    ports: Sequence[tuple[int, int]],
    data: Path,
    extra: Mapping[str, str],
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
    return "".join(f"{key}={value}\n" for key, value in (settings | dict(extra)).items())
