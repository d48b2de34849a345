"""Watches the objects that flows and mirror tests own, with kopf.

Only ``on.event`` handlers are used, because all others would add a finalizer or an annotation to
the object. kopf keeps no copy of watched objects, and does not report deletions that happened while
its watch was closed. It therefore watches only objects whose events trigger a reconcile, and which
the operator also reads periodically. Objects on which decisions are based are kept by a
``Reflector``.
"""

import logging
import os
from collections.abc import Callable, Iterator, Sequence
from itertools import chain, repeat
from typing import Any

import kopf
import structlog

from headrace.api import FLOW_LABEL, MIRROR_TEST_LABEL
from headrace.controller.children import CHILDREN
from headrace.k8s import CONFIG_MAP, JOB, Kind, Object, Unavailable

_OURS = f"app.kubernetes.io/managed-by=headrace,{FLOW_LABEL}"
_STAGES = (JOB, CONFIG_MAP)
_OF_A_TEST = f"app.kubernetes.io/managed-by=headrace,{MIRROR_TEST_LABEL}"

_BACKOFFS_S = (1.0, 1.0, 2.0, 3.0, 5.0, 8.0)

ObjectListener = Callable[[Kind, Object, bool], None]
"""Receives the kind, the object, and True if it was deleted. Must not block."""


class EndlessBackoffs:
    """Backoffs without an end, because kopf ends the operator after the last one.

    Each request starts an iteration.
    """

    def __iter__(self) -> Iterator[float]:
        return chain(_BACKOFFS_S, repeat(_BACKOFFS_S[-1]))


async def watch_owned(
    namespaces: Sequence[str], on_event: ObjectListener, *, with_tests: bool = True
) -> None:
    """Watch until the process receives TERM or INT.

    kopf ends early if the API server reports an error in a watch, for example of its etcd, or if a
    login is rejected.

    Args:
        namespaces: Namespaces to watch; empty for all.
        on_event: Receives the objects.
        with_tests: Also watch the objects of mirror tests.

    Raises:
        Unavailable: kopf has ended early.
    """
    registry = kopf.OperatorRegistry()
    settings = kopf.OperatorSettings()
    settings.posting.enabled = False  # the operator posts its own Events
    settings.scanning.disabled = True  # scanning needs permissions on all definitions
    settings.networking.error_backoffs = EndlessBackoffs()

    @kopf.on.login(registry=registry)
    def login(**arguments: Any) -> kopf.ConnectionInfo | None:
        if os.environ.get("KUBECONFIG"):  # as k8s.connect: ~/.kube/config is not used
            return kopf.login_with_kubeconfig(**arguments)
        return kopf.login_with_service_account(**arguments)

    def watch(kind: Kind) -> None:
        @kopf.on.event(kind.api_version, kind.plural, registry=registry, id=kind.plural)
        async def handle(event: Any, **_: Any) -> None:  # otherwise kopf uses a thread
            # Listed objects, unlike watched ones, lack kind and apiVersion.
            object = {"apiVersion": kind.api_version, "kind": kind.name, **event["object"]}
            on_event(kind, object, event["type"] == "DELETED")

    of_flows = dict.fromkeys(CHILDREN, _OURS)
    of_tests = dict.fromkeys(_STAGES if with_tests else (), _OF_A_TEST)
    for child, labels in (of_flows | of_tests).items():
        settings.watching.label_selectors[child.api_version, child.plural] = labels
        watch(child)
    try:
        await kopf.operator(
            registry=registry,
            settings=settings,
            standalone=True,
            clusterwide=not namespaces,
            namespaces=namespaces,
        )
    except Exception as error:
        raise Unavailable(
            f"the operator can no longer watch the objects of flows: {error}; it has to be "
            "restarted, which its Deployment does"
        ) from error


class _ToStructlog(logging.Handler):
    """Logs kopf's lines in the format of headrace's log."""

    def emit(self, record: logging.LogRecord) -> None:
        logger = structlog.get_logger(module=record.name)
        error = record.exc_info and record.exc_info[1]
        # Errors of kopf's own types come from the API server. Their message is sufficient.
        known = error is not None and type(error).__module__.startswith("kopf.")
        trace = None if known else record.exc_info or None
        logger.log(record.levelno, record.getMessage(), exc_info=trace)


def quiet_kopf() -> None:
    """Let kopf log only warnings and errors."""
    for name in ("kopf", "asyncio", "aiohttp"):
        logger = logging.getLogger(name)
        logger.handlers = [_ToStructlog()]
        logger.propagate = False
        logger.setLevel(logging.WARNING)
