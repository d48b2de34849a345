"""Check that the records to copy fit on the target's disks."""

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from headrace.api import TopicPartition
from headrace.api.flow import Location
from headrace.api.offsets import StartMode
from headrace.connect.preflight.permissions import CheckResult, Finding
from headrace.connect.preflight.topic_settings import TopicSettings
from headrace.connect.runtime.both_clusters import target_partition
from headrace.connect.runtime.context import FlowContext
from headrace.errors import HeadraceError
from headrace.kafka import BrokerDisk, Operation, RightsAdmin

Sizes = Mapping[TopicPartition, int]


class DiskNeed(NamedTuple):
    """Estimate of the bytes that a flow will write."""

    to_copy_bytes: int
    """Size of the records to copy, counted once."""
    by_broker_bytes: Mapping[int, int]
    """Bytes that each broker of the target will store."""


def check_disk(
    context: FlowContext,
    topics: Mapping[str, int],
    admins: Mapping[Location, RightsAdmin],
    settings: TopicSettings,
) -> Iterator[Finding]:
    """Yield a finding about the free disk of the target.

    If a permission for the estimate is missing, yield nothing, because the permission checks report
    it.

    Args:
        context: The flow.
        topics: Topics of the source with their number of partitions.
        admins: Clients of both clusters.
        settings: Settings of copies that exist.
    """
    if context.spec.start_from.mode is StartMode.LATEST:
        return  # existing records are not copied
    if any(Operation.DESCRIBE not in admin.cluster_rights() for admin in admins.values()):
        return
    copies = {context.policy.target_topic(topic): count for topic, count in topics.items()}
    try:
        source = admins[Location.SOURCE].broker_disks(topics)
        target = admins[Location.TARGET].broker_disks(copies)
    except HeadraceError as error:
        yield _finding(CheckResult.WARNING, f"not estimated: {error}")
        return
    sizes = {
        target_partition(context, at): max(disk.sizes_bytes.get(at, 0) for disk in source.values())
        for at in {at for disk in source.values() for at in disk.sizes_bytes}
    }
    need = disk_need(sizes, _limits(settings), target, context.spec.target.replication_factor or 1)
    yield judge_disk(need, target, context.spec.target.replication_factor)


def _limits(settings: TopicSettings) -> dict[str, int]:
    """Return the maximum size of a partition in bytes, for each copy with ``retention.bytes``."""
    limits = {}
    for topic, config in settings.target.items():
        known = config.in_effect
        kept = int(known.get("retention.bytes", "-1"))
        if kept >= 0 and "delete" in known.get("cleanup.policy", "delete"):
            limits[topic] = kept + int(known.get("segment.bytes", "0"))
    return limits


def disk_need(
    sizes: Sizes, limits: Mapping[str, int], disks: Mapping[int, BrokerDisk], replicas: int
) -> DiskNeed:
    """Return the disk space that copies of these sizes need beyond what the target holds.

    Partitions that do not exist yet are spread evenly over the brokers.

    Args:
        sizes: Sizes on the source, by partition of the target.
        limits: Maximum size of a partition of a target topic.
        disks: Disks of the target's brokers.
        replicas: Number of replicas of a new partition.
    """
    to_copy = 0
    by_broker = Counter[int](dict.fromkeys(disks, 0))
    for at, size in sizes.items():
        wanted = min(size, limits.get(at.topic, size))
        held = {
            node: disk.sizes_bytes[at] for node, disk in disks.items() if at in disk.sizes_bytes
        }
        missing = {node: max(0, wanted - there) for node, there in held.items()}
        if not held:
            missing = dict.fromkeys(disks, wanted * min(replicas, len(disks)) // len(disks))
        by_broker.update(missing)
        to_copy += min(missing.values()) if held else wanted
    return DiskNeed(to_copy, by_broker)


def judge_disk(
    need: DiskNeed, disks: Mapping[int, BrokerDisk], replication_factor: int | None
) -> Finding:
    """Return the finding that compares an estimate with the free disk of each broker."""
    free = {node: disk.free_bytes for node, disk in disks.items() if disk.free_bytes is not None}
    full = [node for node in sorted(free) if need.by_broker_bytes[node] > free[node]]
    message = f"about {_text(need.to_copy_bytes)} to copy"
    if not replication_factor:
        message += ", counted with one replica, because spec.target.replicationFactor is not set"
    if unknown := sorted(disks.keys() - free.keys()):
        numbers = ", ".join(map(str, unknown))
        message += f"; brokers do not report their free disk before Kafka 3.3: {numbers}"
    if not full:
        return _finding(CheckResult.OK, message)
    each = ", ".join(
        f"broker {node} needs {_text(need.by_broker_bytes[node])} and has {_text(free[node])} free"
        for node in full
    )
    remedy = "enlarge the disks, copy fewer topics, or limit retention.bytes of the copies"
    return _finding(CheckResult.WARNING, f"{message}; {each}: {remedy}")


def _finding(outcome: CheckResult, message: str) -> Finding:
    return Finding(Location.TARGET, "cluster", "free disk", outcome, message)


def _text(size_bytes: int) -> str:
    unit, divisor = ("GB", 1e9) if size_bytes >= 1e9 else ("MB", 1e6)
    return f"{size_bytes / divisor:.1f} {unit}"
