"""What the operator has to watch, and what it logs at its start of that which it cannot."""

import asyncio
from contextlib import aclosing

from headrace.api import FLOW_LABEL
from headrace.controller.children import CHILDREN
from headrace.errors import HeadraceError
from headrace.k8s import CONFIG_MAP, FLOW, JOB, LEASE, MIRROR_TEST, POD, TASK, Client, Kind
from headrace.logs import get_logger

log = get_logger(__name__)

WATCHED = (FLOW, TASK, *CHILDREN, POD, LEASE)
WATCHED_OF_TESTS = (MIRROR_TEST, JOB, CONFIG_MAP)
_RETRY_S = 3.0


async def wait_for_flows(client: Client, namespace: str | None, *, with_tests: bool) -> None:
    """Log which definitions and which rights are missing; return when flows can be watched.

    Without flows there is nothing to do. Whoever watches another kind retries by itself.
    """
    logged: list[str] = []
    while True:
        errors = await access_errors(client, namespace, with_tests=with_tests)
        messages = list(map(str, errors.values()))
        if messages and messages != logged:
            log.error("does not see all that it has to; it tries again", why="; ".join(messages))
        logged = messages
        if FLOW not in errors:
            return
        await asyncio.sleep(_RETRY_S)


async def access_errors(
    client: Client, namespace: str | None, *, with_tests: bool
) -> dict[Kind, HeadraceError]:
    """The kinds that cannot be listed and watched, and why."""
    kinds = (*WATCHED, *(WATCHED_OF_TESTS if with_tests else ()))
    errors = await asyncio.gather(*(_access_error(client, namespace, kind) for kind in kinds))
    return {kind: error for kind, error in zip(kinds, errors, strict=True) if error is not None}


async def _access_error(client: Client, namespace: str | None, kind: Kind) -> HeadraceError | None:
    """Why a kind cannot be listed and watched; None when it can."""
    try:
        await client.list(kind, namespace, labels=FLOW_LABEL, metadata_only=True)
        async with aclosing(client.watch(kind, namespace, "", labels=FLOW_LABEL)) as events:
            await anext(events)
    except HeadraceError as error:
        return error
    return None
