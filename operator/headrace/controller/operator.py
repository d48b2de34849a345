"""The operator's process: one of its replicas leads, and reconciles."""

import asyncio
import os
import signal
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass
from itertools import chain

from headrace.controller.access_check import wait_for_flows
from headrace.controller.children import Children
from headrace.controller.cluster_cache import ClusterCache
from headrace.controller.events import EventRecorder
from headrace.controller.flow import FlowReconciler
from headrace.controller.flow_children import Settings
from headrace.controller.kopf_watch import quiet_kopf, watch_owned
from headrace.controller.metrics import OperatorMetrics
from headrace.controller.mirror_tests import MirrorTestReconciler, TestName, TestSettings
from headrace.controller.queue import SOON_S, KeyQueue
from headrace.controller.rollouts import Rollouts
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
    Unavailable,
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
    namespaces: tuple[str, ...]
    """Whose flows it reconciles; none: those of all."""
    selector: str
    """Labels of the flows and mirror tests that it reconciles; empty: any."""
    lease_namespace: str
    """Namespace of the replicas' Lease."""
    lease: str
    """Its name."""
    ip: str | None
    """Where its health and metrics are answered; None: on all addresses."""
    port: int
    """Of its health and metrics."""
    flows: Settings
    max_concurrent_rollouts: int
    """So many flows may replace their drivers at a time; 0: all."""
    tests: TestSettings | None
    """None: mirror tests are left alone, and no rights on them are needed."""


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
    """Reconcile until cancelled, or until TERM or INT. Raises ``Unavailable`` when what flows own
    is watched no more."""
    queue = KeyQueue[FlowName](on_reconciled=metrics.reconciles(FLOW.name))
    served = options.namespaces or (None,)
    caches = {one: ClusterCache(client, one, queue.add, options.selector) for one in served}
    children = Children(client)
    events = EventRecorder(client, options.identity)
    rollouts = Rollouts(
        options.max_concurrent_rollouts,
        lambda: chain.from_iterable(cache.flow_names() for cache in caches.values()),
        lambda name: queue.add(name, SOON_S),
    )
    reconcilers = {
        one: FlowReconciler(
            cache,
            children,
            FlowWrites(client, cache, events),
            options.flows,
            queue.add,
            rollouts=rollouts,
        )
        for one, cache in caches.items()
    }
    tests = (
        MirrorTestReconciler(client, events, options.tests, options.identity)
        if options.tests
        else None
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

    async def reconcile_flow(name: FlowName) -> float | None:
        return await reconcilers[name[0] if options.namespaces else None].reconcile(name)

    async def reconcile_test(name: TestName) -> float | None:
        # Jobs and ConfigMaps of all tests are watched, also of those that are another operator's.
        others = options.selector and not any(copy.get(name[1], name[0]) for copy in test_copies)
        if tests is None or others:
            return None
        return await tests.reconcile(name)

    with_tests = tests is not None
    await asyncio.gather(*(wait_for_flows(client, one, with_tests=with_tests) for one in served))
    test_copies = [
        Reflector(client, MIRROR_TEST, one, labels=options.selector, on_change=test_changed)
        for one in (served if with_tests else ())
    ]
    metrics.lead(
        lambda: chain.from_iterable(cache.flow_objects() for cache in caches.values()),
        lambda: chain.from_iterable(test_copies),
        {FLOW.name: lambda: queue.length, MIRROR_TEST.name: lambda: tests_queue.length},
    )
    try:
        async with asyncio.TaskGroup() as tasks:
            others = [
                tasks.create_task(work)
                for work in (
                    *(cache.run() for cache in caches.values()),
                    *(copy.run() for copy in test_copies),
                    queue.run(reconcile_flow),
                    tests_queue.run(reconcile_test),
                )
            ]
            ended: Unavailable | None = None
            try:
                await watch_owned(options.namespaces, owned_changed, with_tests=with_tests)
            except Unavailable as error:
                ended = error
            for other in others:
                other.cancel()
        if ended is not None:
            raise ended
    finally:
        for reconciler in reconcilers.values():
            reconciler.close()


def _owners(object: Object, kind: Kind) -> list[str]:
    """Names of the owners of a kind."""
    owners = object["metadata"].get("ownerReferences") or ()
    return [owner["name"] for owner in owners if owner["kind"] == kind.name]
