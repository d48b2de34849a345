"""Process of the operator. One replica leads and reconciles."""

import asyncio
import os
import signal
from contextlib import suppress

from headrace.controller.access import wait_for_flows, wait_until_served
from headrace.controller.events import EventRecorder
from headrace.controller.flow_controller import FlowController
from headrace.controller.handlers import run_handlers
from headrace.controller.kopf_log import quiet_kopf
from headrace.controller.metrics import OperatorMetrics
from headrace.controller.mirror_test_controller import MirrorTestController
from headrace.controller.options import OperatorOptions
from headrace.k8s import (
    ADMISSION_TIMEOUT_S,
    FLOW,
    MIRROR_TEST,
    Client,
    LeaderElection,
    LeadershipLost,
    RequestMetrics,
    Unavailable,
    connect,
)
from headrace.logs import get_logger
from headrace.telemetry import make_registry
from headrace.telemetry.serving import serve

log = get_logger(__name__)


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
            await _run_as_candidate(election, client, options, metrics)
    finally:
        await client.close()
    log.info("ended", identity=options.identity)


async def _run_as_candidate(
    election: LeaderElection, client: Client, options: OperatorOptions, metrics: OperatorMetrics
) -> None:
    """Reconcile while this replica leads."""

    async def lead() -> None:
        while await _watch_and_reconcile(client, options, metrics):
            _cancel_on_signals(running)  # kopf has replaced the signal handlers
            await asyncio.sleep(options.retry_s)

    running = asyncio.create_task(election.run(lead))
    _cancel_on_signals(running)
    try:
        with suppress(asyncio.CancelledError):
            await running
    except LeadershipLost as error:
        log.error("ends at once", identity=options.identity, why=str(error))
        os._exit(1)


def _cancel_on_signals(task: asyncio.Task[None]) -> None:
    for name in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(name, task.cancel)


async def _watch_and_reconcile(
    client: Client, options: OperatorOptions, metrics: OperatorMetrics
) -> bool:
    """Reconcile until the process receives TERM or INT, and return False then.

    Return True if the watches must begin again, because they failed or because a missing definition
    was added. Drivers keep their units: nothing is decided before all lists are complete again.
    """
    events, settings = EventRecorder(client, options.identity), options.tests
    missing = await wait_for_flows(
        client, options.scopes, with_tests=settings is not None, retry_s=options.retry_s
    )
    flows = FlowController(client, events, options, metrics.reconciles(FLOW.name))
    tests = None
    if settings is not None:
        on_reconciled = metrics.reconciles(MIRROR_TEST.name)
        tests = MirrorTestController(client, events, options, settings, on_reconciled)
    metrics.lead(flows, tests)

    async def reconcile() -> None:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(one.run()) for one in (flows, tests) if one]
            if missing:
                await wait_until_served(client, options.scopes[0], missing[0], options.retry_s)
                for task in tasks:
                    task.cancel()

    try:
        return await run_handlers(flows, tests, options, reconcile())
    except Unavailable as error:
        log.error("watches end and begin again", why=str(error))
        return True
