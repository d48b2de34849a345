"""Process of the operator. One replica leads and reconciles."""

import asyncio
import os
import signal
from collections.abc import Awaitable, Callable
from contextlib import aclosing, suppress
from dataclasses import dataclass
from itertools import chain, count

from headrace.api import FLOW_LABEL
from headrace.controller.children import CHILDREN, Children
from headrace.controller.cluster_cache import ClusterCache
from headrace.controller.events import EventRecorder
from headrace.controller.flow_children import FlowSettings, Rollouts
from headrace.controller.flow_reconciler import FlowReconciler
from headrace.controller.flow_writer import FlowWrites
from headrace.controller.kopf_watch import quiet_kopf, watch_owned
from headrace.controller.metrics import OperatorMetrics
from headrace.controller.mirror_tests import MirrorTestReconciler, TestName, TestSettings
from headrace.controller.queue import SOON_S, KeyQueue
from headrace.controller.target_topics import FlowName
from headrace.errors import GaveUp, HeadraceError
from headrace.k8s import (
    ADMISSION_TIMEOUT_S,
    CONFIG_MAP,
    FLOW,
    JOB,
    LEASE,
    MIRROR_TEST,
    POD,
    TASK,
    Client,
    Kind,
    LeaderElection,
    LeadershipLost,
    Object,
    Reflector,
    RequestMetrics,
    Unavailable,
    WatchEvent,
    connect,
)
from headrace.k8s.leases import LeaseView, read_lease
from headrace.logs import get_logger
from headrace.telemetry import make_registry
from headrace.telemetry.serving import serve

log = get_logger(__name__)

WATCHED = (FLOW, TASK, *CHILDREN, POD, LEASE)
WATCHED_OF_TESTS = (MIRROR_TEST, JOB, CONFIG_MAP)
_RETRY_S = 3.0
_PASSING_ROUNDS = 5
"""Rounds in which temporary errors are retried: 15 s, the start time of an API server."""


async def wait_for_flows(
    client: Client, namespace: str | None, *, with_tests: bool, retry_s: float = _RETRY_S
) -> None:
    """Wait until flows can be watched, and log missing definitions and permissions.

    Watches of other kinds retry by themselves. Temporary errors, such as HTTP 429, are retried for
    a few rounds and logged as warnings.
    """
    logged: list[str] = []
    for rounds in count(1):
        errors = await access_errors(client, namespace, with_tests=with_tests)
        messages = list(map(str, errors.values()))
        passing = [error for error in errors.values() if isinstance(error, Unavailable)]
        if messages and messages != logged:
            say = log.warning if len(passing) == len(errors) else log.error
            say(
                "cannot list all kinds of objects; it tries again",
                why="; ".join(messages),
            )
        if logged and not messages:
            log.info("lists all kinds of objects")
        logged = messages
        if FLOW not in errors and (not passing or rounds >= _PASSING_ROUNDS):
            return
        await asyncio.sleep(retry_s)


async def access_errors(
    client: Client, namespace: str | None, *, with_tests: bool
) -> dict[Kind, HeadraceError]:
    """Return the kinds that cannot be listed and watched, with the errors."""
    kinds = (*WATCHED, *(WATCHED_OF_TESTS if with_tests else ()))
    errors = await asyncio.gather(*(_access_error(client, namespace, kind) for kind in kinds))
    return {kind: error for kind, error in zip(kinds, errors, strict=True) if error is not None}


async def _access_error(client: Client, namespace: str | None, kind: Kind) -> HeadraceError | None:
    """Return the error of listing and watching a kind, or None."""
    try:
        await client.list(kind, namespace, labels=FLOW_LABEL, metadata_only=True)
        async with aclosing(client.watch(kind, namespace, "", labels=FLOW_LABEL)) as events:
            await anext(events)
    except HeadraceError as error:
        return error
    return None


OPERATOR_LEASE = "headrace-operator"
"""Default name of the Lease for the leader election."""


@dataclass(frozen=True)
class OperatorOptions:
    """Options of ``headrace operator``."""

    identity: str
    """Identity of this replica, which is the name of its pod."""
    namespaces: tuple[str, ...]
    """Namespaces whose flows are reconciled. Empty means all."""
    selector: str
    """Label selector of the flows and mirror tests to reconcile. Empty means all."""
    lease_namespace: str
    """Namespace of the Lease."""
    lease: str
    """Name of the Lease."""
    ip: str | None
    """Address of health checks and metrics, or None for all addresses."""
    port: int
    """Port of health checks and metrics."""
    flows: FlowSettings
    max_concurrent_rollouts: int
    """Maximum number of flows that replace their drivers at the same time. Zero means all."""
    tests: TestSettings | None
    """Settings of mirror tests.

    If None, tests are ignored and no permissions on them are needed.
    """


async def run_operator(options: OperatorOptions) -> None:
    """Run the operator until the process receives TERM or INT.

    The process exits when another replica may lead, because its threads must not write
    concurrently.
    """
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
    """Reconcile until cancelled, or until the process receives TERM or INT.

    Raise ``Unavailable`` if the children of flows are no longer watched.
    """
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

    def test_changed(change: WatchEvent) -> None:
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
        # Jobs and ConfigMaps of all tests are watched, even if another operator reconciles the
        # test.
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
    """Return the names of an object's owners of a kind."""
    owners = object["metadata"].get("ownerReferences") or ()
    return [owner["name"] for owner in owners if owner["kind"] == kind.name]


_RENEWED_TIMEOUT_S = 60.0
"""Time within which a leader must renew the Lease, in seconds.

A leader renews every 2 s. Another one leads 20 s after its death, and a release may be recent.
"""
_POLL_S = 1.0


async def check_operator(options: OperatorOptions) -> str:
    """Return a sentence about a working operator. Raise ``GaveUp`` with its problems."""
    client = await connect("the check")
    try:
        served = options.namespaces or (None,)
        with_tests = options.tests is not None
        for namespace in served:
            if errors := await access_errors(client, namespace, with_tests=with_tests):
                raise GaveUp("; ".join(map(str, errors.values())))
        leader = await _leader(client, options)
    finally:
        await client.close()
    return f"{leader} leads, and may watch all that it has to"


async def _leader(client: Client, options: OperatorOptions) -> str:
    """Return the holder of the Lease after it was renewed. Raise ``GaveUp`` after 60 s."""
    before = None
    for _ in range(int(_RENEWED_TIMEOUT_S / _POLL_S)):
        now = await _lease(client, options)
        if now.holder and before is not None and now.renew_time != before.renew_time:
            return now.holder
        before = now
        await asyncio.sleep(_POLL_S)
    raise GaveUp(
        f"no operator renewed the Lease {options.lease} in namespace {options.lease_namespace} for "
        f"{_RENEWED_TIMEOUT_S:.0f} s: read the log of its pods"
    )


async def _lease(client: Client, options: OperatorOptions) -> LeaseView:
    found = await client.get(LEASE, options.lease_namespace, options.lease)
    return read_lease(found or {})
