"""kopf, as far as we use it: it watches what flows and mirror tests own.

``on.event`` handlers only: any other kind would put a finalizer or an annotation on the object.
kopf keeps no copy of what it watches and reports no deletion that happened while its watch was
closed. So it watches only objects whose events trigger a reconcile, and which the operator reads
again periodically; whatever decisions rest on is kept by a ``Reflector``.
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
"""Gets an object, its kind, and whether it is deleted. Must not block."""


class EndlessBackoffs:
    """Endless backoffs: kopf ends the operator after its last one.

    Each request starts an iteration.
    """

    def __iter__(self) -> Iterator[float]:
        return chain(_BACKOFFS_S, repeat(_BACKOFFS_S[-1]))


async def watch_owned(
    namespaces: Sequence[str], on_event: ObjectListener, *, with_tests: bool = True
) -> None:
    """Watch until the process gets TERM or INT; without ``namespaces``, watch all.

    ``with_tests`` states whether to watch objects of mirror tests. Raise ``Unavailable`` if kopf
    ends before: it ends when the API server reports an error in a watch (of its etcd, for example),
    or when a login is rejected.
    """
    registry = kopf.OperatorRegistry()
    settings = kopf.OperatorSettings()
    settings.posting.enabled = False  # Events are ours to post
    settings.scanning.disabled = True  # otherwise it needs permissions on all definitions
    settings.networking.error_backoffs = EndlessBackoffs()

    @kopf.on.login(registry=registry)
    def login(**arguments: Any) -> kopf.ConnectionInfo | None:
        if os.environ.get("KUBECONFIG"):  # as k8s.connect: never by ~/.kube/config
            return kopf.login_with_kubeconfig(**arguments)
        return kopf.login_with_service_account(**arguments)

    def watch(kind: Kind) -> None:
        @kopf.on.event(kind.api_version, kind.plural, registry=registry, id=kind.plural)
        async def handle(event: Any, **_: Any) -> None:  # kopf runs what is not async in a thread
            # Listed objects, unlike watched ones, lack the fields that the list states for all.
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
            f"the operator could not go on watching what flows own: {error}; it has to be started "
            "again, as its Deployment does"
        ) from error


class _ToStructlog(logging.Handler):
    """kopf's log lines in the format of ours."""

    def emit(self, record: logging.LogRecord) -> None:
        logger = structlog.get_logger(module=record.name)
        error = record.exc_info and record.exc_info[1]
        # Errors of kopf's own kinds are in the message: the API server's, not a defect's.
        known = error is not None and type(error).__module__.startswith("kopf.")
        trace = None if known else record.exc_info or None
        logger.log(record.levelno, record.getMessage(), exc_info=trace)


def quiet_kopf() -> None:
    """Let kopf log warnings and errors only."""
    for name in ("kopf", "asyncio", "aiohttp"):
        logger = logging.getLogger(name)
        logger.handlers = [_ToStructlog()]
        logger.propagate = False
        logger.setLevel(logging.WARNING)
