"""A catch-up, measured from outside: ends of the target's partitions, and /proc."""

import time
from contextlib import suppress

import psutil
from bench.mirror.figures import CatchUp, Sample, catch_up
from bench.mirror.subjects import Subject, running
from bench.mirror.workloads import PARTITIONS, Workload

from headrace.api import ClusterAccess, ClusterSpec, TopicPartition
from headrace.errors import GaveUp, HeadraceError
from headrace.kafka import Admin, Position
from headrace.sandbox import Sandbox

_POLL_S = 0.05
_SETTLED_S = 1.0
"""Seconds without growth after which a copy with all records has ended."""
_STALLED_S = 60.0


def access(sandbox: Sandbox, name: str) -> ClusterAccess:
    """Return the access to the cluster of that name."""
    servers = sandbox.cluster(name).bootstrap_servers
    return ClusterAccess(ClusterSpec(alias=name, bootstrap_servers=servers))


def measured(subject: Subject, sandbox: Sandbox, alias: str, workload: Workload) -> CatchUp:
    """Copy the topic once; raises ``GaveUp`` when it does not end."""
    admin = Admin(access(sandbox, "west"))
    topic = f"{alias}.{workload.name}"
    samples: list[Sample] = []
    with running(subject, sandbox, alias, workload.name, workload.codec) as process:
        grown_s = time.monotonic()
        while True:
            now = time.monotonic()
            records = records_in(admin, topic)
            if not samples or records > samples[-1].records:
                samples.append(Sample(now, records, *used(process)))
                grown_s = now
            if samples[-1].records >= workload.records and now - grown_s > _SETTLED_S:
                break
            if now - grown_s > _STALLED_S:
                found = f"{samples[-1].records:,} of {workload.records:,} records"
                raise GaveUp(f"{subject.name} stalled at {found} of {workload.name}")
            time.sleep(_POLL_S)
    with suppress(HeadraceError):
        admin.delete_topic(topic)
    return catch_up(samples, workload.records, workload.value_bytes)


def records_in(admin: Admin, topic: str) -> int:
    """Return the number of records in a topic, or 0 if it does not exist.

    Markers of the fence count, one a partition: a hundred-thousandth of a workload.
    """
    if topic not in admin.topics():
        return 0
    ats = [TopicPartition(topic, number) for number in range(PARTITIONS)]
    try:
        return sum(admin.offsets(ats, Position.LATEST).values())
    except HeadraceError:
        return 0  # just created


def used(process: psutil.Process) -> tuple[float, int]:
    """Return CPU seconds and resident bytes of a process and its children."""
    cpu_s, rss_bytes = 0.0, 0
    for one in (process, *process.children(recursive=True)):
        with suppress(psutil.NoSuchProcess):
            times = one.cpu_times()
            cpu_s += times.user + times.system
            rss_bytes += one.memory_info().rss
    return cpu_s, rss_bytes
