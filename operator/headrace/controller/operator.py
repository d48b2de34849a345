"""The operator's process: one of its replicas leads, and reconciles."""

import asyncio
import os
import signal
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass

from headrace.controller.access_check import wait_for_flows
from headrace.controller.children import Children
from headrace.controller.cluster_cache import ClusterCache
from headrace.controller.events import EventRecorder
from headrace.controller.flow import FlowReconciler, Settings
from headrace.controller.kopf_watch import quiet_kopf, watch_owned
from headrace.controller.metrics import OperatorMetrics
from headrace.controller.mirror_tests import ChaosRole, Images, MirrorTestReconciler, TestName
from headrace.controller.queue import KeyQueue
from headrace.controller.targets import FlowName
from headrace.controller.writes import FlowWrites
from headrace.k8s import (
    ADMISSION_TIMEOUT_S,
    FLOW,
    MIRROR_TEST,
    Change,
    Client,
    Kind,
    LeaderElection,
    LeadershipLost,
    Object,
    Reflector,
    RequestMetrics,
    connect,
)
from headrace.logs import get_logger
from headrace.telemetry import make_registry
from headrace.telemetry.serving import serve

log = get_logger(__name__)

LEASE = "headrace-operator"
"""Name of the Lease by which one of the replicas leads, unless another is asked for."""


@dataclass(frozen=True)
class OperatorOptions:
    """The options of the command line."""

    identity: str
    """Of this replica: its pod's name."""
    namespace: str | None
    """Whose flows it reconciles; None: all."""
    lease_namespace: str
    """Namespace of the replicas' Lease."""
    lease: str
    """Its name."""
    ip: str | None
    """Where its health and metrics are answered; None: on all addresses."""
    port: int
    """Of its health and metrics."""
    flows: Settings
    tests: Images
    chaos_role: ChaosRole | None = None
    """What the Jobs of ``spec.chaos`` may do; None: there are none."""


async def run_operator(options: OperatorOptions) -> None:
    """Run until TERM or INT. Ends the process when another replica may lead: what a thread still
    does must not write concurrently."""
    quiet_kopf()
    client = await connect("the operator")
    client.write_timeout_s = ADMISSION_TIMEOUT_S
    election = LeaderElection(client, options.lease_namespace, options.lease, options.identity)
    registry = make_registry()
    client.on_request = RequestMetrics(registry)
    metrics = OperatorMetrics(registry, lambda: election.leads)
    try:
        serving = serve(options.ip, options.port, registry, live=list, ready=election.problems)
        async with serving as port:
            log.info("waits to lead", identity=options.identity, pid=os.getpid(), port=port)
            await _run_as_candidate(
                election, lambda: _lead(client, options, metrics), options.identity
            )
    finally:
        await client.close()
    log.info("ended", identity=options.identity)


async def _run_as_candidate(
    election: LeaderElection, lead: Callable[[], Awaitable[None]], identity: str
) -> None:
    running = asyncio.create_task(election.run(lead))
    loop = asyncio.get_running_loop()
    for name in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(name, running.cancel)
    try:
        with suppress(asyncio.CancelledError):
            await running
    except LeadershipLost as error:
        log.error("ends at once", identity=identity, why=str(error))
        os._exit(1)


async def _lead(client: Client, options: OperatorOptions, metrics: OperatorMetrics) -> None:
    """Reconcile until cancelled, or until TERM or INT."""
    queue = KeyQueue[FlowName](on_reconciled=metrics.reconciles(FLOW.name))
    cache = ClusterCache(client, options.namespace, queue.add)
    children = Children(client)
    events = EventRecorder(client, options.identity)
    writes = FlowWrites(client, cache, events)
    reconciler = FlowReconciler(cache, children, writes, options.flows, queue.add)
    tests = MirrorTestReconciler(
        client, events, options.tests, options.chaos_role, options.identity
    )
    tests_queue = KeyQueue[TestName](on_reconciled=metrics.reconciles(MIRROR_TEST.name))

    def test_changed(change: Change) -> None:
        metadata = change.object["metadata"]
        for name in (metadata["name"], *_owners(change.object, MIRROR_TEST)):
            tests_queue.add((metadata["namespace"], name))

    def owned_changed(kind: Kind, object: Object, deleted: bool) -> None:
        namespace = object["metadata"]["namespace"]
        if owners := _owners(object, MIRROR_TEST):
            tests_queue.add((namespace, owners[0]))
        elif children.observe(object, deleted=deleted):
            for owner in _owners(object, FLOW):
                queue.add((namespace, owner))

    await wait_for_flows(client, options.namespace)
    mirror_tests = Reflector(client, MIRROR_TEST, options.namespace, on_change=test_changed)
    metrics.lead(
        cache.flow_objects,
        mirror_tests,
        {FLOW.name: lambda: queue.length, MIRROR_TEST.name: lambda: tests_queue.length},
    )
    try:
        async with asyncio.TaskGroup() as tasks:
            others = [
                tasks.create_task(work)
                for work in (
                    cache.run(),
                    mirror_tests.run(),
                    queue.run(reconciler.reconcile),
                    tests_queue.run(tests.reconcile),
                )
            ]
            await watch_owned(options.namespace, owned_changed)
            for other in others:
                other.cancel()
    finally:
        reconciler.close()


def _owners(object: Object, kind: Kind) -> list[str]:
    """Names of the owners of a kind."""
    owners = object["metadata"].get("ownerReferences") or ()
    return [owner["name"] for owner in owners if owner["kind"] == kind.name]
