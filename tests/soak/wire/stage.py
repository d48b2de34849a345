"""Two clusters that the drivers reach through proxies, a foreign cluster, and three flows."""

import shutil
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from soak.wire.damage import WireSide
from soak.wire.proxy import FramingProxy
from soak.wire.side_load import group_of
from support.flows import ANSWER_S, FlowRun, manifest, spec
from support.records import numbered, produce

from headrace.api import progress_topic
from headrace.control import control
from headrace.errors import HeadraceError
from headrace.kafka import Admin
from headrace.sandbox import BrokerProcess, ClusterPlan, Sandbox, SandboxCluster
from headrace.sandbox.processes import HOST, held_ports

BROKERS, PARTITIONS = 2, 2
FOREIGN_RECORDS = 50
_READY_S = 180.0


class CopyMode(NamedTuple):
    """A flow, which has one topic."""

    flow: str
    fields: dict[str, Any]

    @property
    def topic(self) -> str:
        return f"soak-{self.flow}"

    @property
    def preserved(self) -> bool:
        return "offsets" in self.fields


MODES = (
    CopyMode("at-least-once", {}),
    CopyMode("exactly-once", {"delivery": {"mode": "ExactlyOnce"}}),
    CopyMode("preserved", {"offsets": {"mode": "Preserved"}}),
)
TOPICS = {mode.topic: PARTITIONS for mode in MODES}


@dataclass(frozen=True)
class WireStage:
    """Clusters, proxies and processes."""

    source: SandboxCluster
    target: SandboxCluster
    foreign: SandboxCluster
    sides: Sequence[WireSide]
    run: FlowRun


def copy_of(source: SandboxCluster, topic: str) -> str:
    """Return the name of a topic's copy."""
    return f"{source.name}.{topic}"


@contextmanager
def wire_staged(folder: Path, say: Callable[[str], None]) -> Iterator[WireStage]:
    """Yield clusters, proxies, topics and flows, which end with the block."""
    plans = [ClusterPlan("east", BROKERS), ClusterPlan("west", BROKERS), ClusterPlan("x")]
    say(f"{2 * BROKERS + 1} brokers start")
    with ExitStack() as stack:
        sandbox = Sandbox.start("wire", plans, home=folder / "sandboxes")
        source, target, foreign = stack.enter_context(sandbox).clusters
        ports = iter(stack.enter_context(held_ports([None] * (4 * BROKERS))))
        sides = [_side(cluster, foreign, ports) for cluster in (source, target)]
        for cluster in sandbox.clusters:
            for broker in cluster.brokers:
                broker.kill()
            cluster.start()
        _make_topics(source, target, foreign)
        flows = [_manifest(mode, source, target, sides) for mode in MODES]
        try:
            with FlowRun(folder, flows) as run:
                say("headrace run starts")
                stage = WireStage(source, target, foreign, sides, run)
                deadline = time.monotonic() + _READY_S
                while not all(is_ready(status_of(mode.flow)) for mode in MODES):
                    assert time.monotonic() < deadline, f"not Ready: {run.output[-2000:]}"
                    time.sleep(0.5)
                yield stage
        finally:
            for cluster in sandbox.clusters:
                for broker in cluster.brokers:
                    shutil.copy(broker.log, folder / f"{broker.cluster}-{broker.node_id}.log")


def status_of(flow: str) -> dict[str, Any]:
    """Return the status of a flow, or an empty one if the run did not answer."""
    try:
        return control.request(flow, "status", ANSWER_S)
    except (HeadraceError, OSError):
        return {}


def is_ready(status: Mapping[str, Any]) -> bool:
    """Return whether the condition Ready is true."""
    conditions = status.get("conditions", [])
    return any((one["type"], one["status"]) == ("Ready", "True") for one in conditions)


def _side(cluster: SandboxCluster, foreign: SandboxCluster, ports: Iterator[int]) -> WireSide:
    """Give each broker of a cluster, and the foreign one in its place, a listener for a proxy."""
    side = WireSide(cluster.name, [], {}, {})
    for broker in cluster.brokers:
        proxy = FramingProxy(str(broker))
        side.proxies.append(proxy)
        side.true_ports[proxy.name] = next(ports)
        side.foreign_ports[proxy.name] = next(ports)
        _add_listener(broker, "WIRE", side.true_ports[proxy.name], proxy.port)
        listener = f"{cluster.name}_{broker.node_id}".upper()
        _add_listener(foreign.broker(1), listener, side.foreign_ports[proxy.name], proxy.port)
        proxy.serve(side.true_ports[proxy.name])
    return side


def _add_listener(broker: BrokerProcess, name: str, port: int, advertised: int) -> None:
    """Add a listener to the settings of a broker, for its next start."""
    file = broker.folder / "server.properties"
    settings = dict(line.split("=", 1) for line in file.read_text().splitlines())
    settings["listeners"] += f",{name}://{HOST}:{port}"
    settings["advertised.listeners"] += f",{name}://{HOST}:{advertised}"
    settings["listener.security.protocol.map"] += f",{name}:PLAINTEXT"
    file.write_text("".join(f"{key}={value}\n" for key, value in settings.items()))


def _make_topics(source: SandboxCluster, target: SandboxCluster, foreign: SandboxCluster) -> None:
    """Create the topics and, on the foreign cluster, all topics of both sides with records."""
    for topic, partitions in TOPICS.items():
        copy = copy_of(source, topic)
        for cluster, names in ((source, [topic]), (target, [copy]), (foreign, [topic, copy])):
            for name in names:
                Admin(spec(cluster)).create_topic(name, partitions)
        for name in (topic, copy):
            produce(spec(foreign), name, numbered(FOREIGN_RECORDS, partitions))
    config = {"cleanup.policy": "compact"}
    Admin(spec(foreign)).create_topic(progress_topic(source.name), 8, config=config)


def _manifest(
    mode: CopyMode, source: SandboxCluster, target: SandboxCluster, sides: Sequence[WireSide]
) -> dict[str, Any]:
    more = {
        "tasks": {"max": 2},
        "groups": {"include": [group_of(mode.topic)]},
        "checkpoints": {"intervalSeconds": 2, "applyToGroups": True},
        **mode.fields,
    }
    flow = manifest(mode.flow, source, target, mode.topic, **more)
    for name, side in zip(("source", "target"), sides, strict=True):
        servers = ",".join(f"{HOST}:{proxy.port}" for proxy in side.proxies)
        flow["spec"][name]["bootstrapServers"] = servers
    return flow
