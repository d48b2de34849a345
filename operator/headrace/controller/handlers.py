"""Handlers of kopf for flows, MirrorTests and the objects that they own.

Each ``on.event`` handler passes the object to the controller of its kind, which queues the key of
the flow or test. Other handlers of kopf would add a finalizer or an annotation to the object.

Flows and MirrorTests have no other watch. The controller stores the object of an event before it
queues the key, so a reconcile never runs with an older object than its event had. kopf reports no
deletion that happened while its watch was closed. A periodic list (``kopf_copy``) detects deleted
flows and tests, and ``Children.verify`` detects deleted children. Tasks, pods and Leases are not
watched here, because placement needs the complete lists of a ``Reflector``.
"""

import asyncio
import os
from collections.abc import Coroutine, Iterator
from itertools import chain, repeat
from typing import Any

import kopf

from headrace.api import FLOW_LABEL, MIRROR_TEST_LABEL
from headrace.controller.children import CHILDREN
from headrace.controller.flow_controller import FlowController
from headrace.controller.mirror_test_controller import MirrorTestController
from headrace.controller.options import OperatorOptions
from headrace.k8s import CONFIG_MAP, FLOW, JOB, MIRROR_TEST, Kind, Object, Unavailable

_OURS = "app.kubernetes.io/managed-by=headrace"
_STAGES = (JOB, CONFIG_MAP)
"""Kinds that a MirrorTest owns, and whose changes trigger a reconcile."""
_BACKOFFS_S = (1.0, 1.0, 2.0, 3.0, 5.0, 8.0)


class EndlessBackoffs:
    """Backoffs without an end, because kopf ends after the last one.

    Each request starts an iteration.
    """

    def __iter__(self) -> Iterator[float]:
        return chain(_BACKOFFS_S, repeat(_BACKOFFS_S[-1]))


def handle_process(
    registry: kopf.OperatorRegistry, options: OperatorOptions, work: asyncio.Task[None]
) -> None:
    """Register kopf's handlers of startup, login and cleanup. The cleanup ends ``work``."""

    @kopf.on.startup(registry=registry)
    async def start(settings: kopf.OperatorSettings, **_: Any) -> None:
        settings.posting.enabled = False  # the operator posts its own Events
        settings.scanning.disabled = True  # scanning needs permissions on all definitions
        settings.networking.error_backoffs = EndlessBackoffs()
        selectors = dict.fromkeys((FLOW, MIRROR_TEST), options.selector)
        selectors |= dict.fromkeys(CHILDREN, f"{_OURS},{FLOW_LABEL}")
        selectors |= dict.fromkeys(_STAGES, f"{_OURS},{MIRROR_TEST_LABEL}")
        for kind, labels in selectors.items():
            settings.watching.label_selectors[kind.api_version, kind.plural] = labels

    @kopf.on.login(registry=registry)
    def login(**arguments: Any) -> kopf.ConnectionInfo | None:
        if os.environ.get("KUBECONFIG"):  # as k8s.connect: ~/.kube/config is not used
            return kopf.login_with_kubeconfig(**arguments)
        return kopf.login_with_service_account(**arguments)

    @kopf.on.cleanup(registry=registry)
    async def end(**_: Any) -> None:  # otherwise kopf waits 5 s for the tasks of ``work``
        work.cancel()
        await asyncio.wait([work])


def handle_flows(registry: kopf.OperatorRegistry, flows: FlowController) -> None:
    """Register the handlers of flows and their children."""

    @kopf.on.event(FLOW.api_version, FLOW.plural, registry=registry)
    async def flow_changed(event: Any, **_: Any) -> None:
        flows.observe(_object(FLOW, event), deleted=_is_deleted(event))

    async def child_changed(event: Any, param: Any = None, **_: Any) -> None:
        flows.observe_child(_object(param, event), deleted=_is_deleted(event))

    for kind in CHILDREN:
        kopf.on.event(kind.api_version, kind.plural, registry=registry, id=kind.plural, param=kind)(
            child_changed
        )


def handle_tests(registry: kopf.OperatorRegistry, tests: MirrorTestController) -> None:
    """Register the handlers of MirrorTests, their Jobs and their ConfigMaps."""

    @kopf.on.event(MIRROR_TEST.api_version, MIRROR_TEST.plural, registry=registry)
    async def test_changed(event: Any, **_: Any) -> None:
        tests.observe(_object(MIRROR_TEST, event), deleted=_is_deleted(event))

    @kopf.on.event(JOB.api_version, JOB.plural, registry=registry)
    async def job_changed(event: Any, **_: Any) -> None:
        tests.observe_stage(_object(JOB, event))

    @kopf.on.event(CONFIG_MAP.api_version, CONFIG_MAP.plural, registry=registry)
    async def config_map_changed(event: Any, **_: Any) -> None:
        tests.observe_stage(_object(CONFIG_MAP, event))


async def run_handlers(
    flows: FlowController,
    tests: MirrorTestController | None,
    options: OperatorOptions,
    work: Coroutine[Any, Any, None],
) -> bool:
    """Handle events and run ``work``, until the process receives TERM or INT.

    Return False after a signal, or True if ``work`` ended without one. kopf ends early if the API
    server reports an error in a watch, for example of its etcd, or if a login is rejected.

    Raises:
        Unavailable: kopf has ended early.
    """
    registry, ended = kopf.OperatorRegistry(), asyncio.Event()
    working = asyncio.create_task(work)
    working.add_done_callback(lambda _: ended.set())
    handle_process(registry, options, working)
    handle_flows(registry, flows)
    if tests is not None:
        handle_tests(registry, tests)
    try:
        await kopf.operator(
            registry=registry,
            standalone=True,
            clusterwide=not options.namespaces,
            namespaces=options.namespaces,
            stop_flag=ended,
        )
    except Exception as error:
        raise Unavailable(f"the operator can no longer watch: {error}") from error
    finally:  # kopf does not clean up if it is cancelled
        working.cancel()
        await asyncio.wait([working])
    if working.cancelled():
        return False
    working.result()  # raises an error of ``work``
    return True


def _object(kind: Kind, event: Any) -> Object:
    """Return the object of an event. Listed objects, unlike watched ones, may lack their kind."""
    return {"apiVersion": kind.api_version, "kind": kind.name, **event["object"]}


def _is_deleted(event: Any) -> bool:
    return bool(event["type"] == "DELETED")
