"""Access to the API server: permissions and definitions that the operator needs."""

import asyncio
from collections.abc import Sequence
from contextlib import aclosing, suppress

from headrace.api import FLOW_LABEL
from headrace.controller.children import CHILDREN
from headrace.errors import HeadraceError
from headrace.k8s import (
    CONFIG_MAP,
    FLOW,
    JOB,
    LEASE,
    MIRROR_TEST,
    POD,
    TASK,
    Client,
    Kind,
    NotServed,
    Unavailable,
)
from headrace.logs import get_logger

log = get_logger(__name__)

WATCHED = (FLOW, TASK, *CHILDREN, POD, LEASE)
WATCHED_OF_TESTS = (MIRROR_TEST, JOB, CONFIG_MAP)
_PASSING_ROUNDS = 5
"""Maximum number of rounds in which temporary errors are retried.

With the default of ``OperatorOptions.retry_s``, they take 15 s, which is the start time of an API
server.
"""


async def wait_for_flows(
    client: Client,
    scopes: Sequence[str | None],
    *,
    with_tests: bool,
    retry_s: float,
) -> list[Kind]:
    """Wait until flows can be watched, and log missing definitions and permissions.

    ``scopes`` are the namespaces to watch; None is all. Return the kinds that the API server does
    not serve, because their definitions are missing.

    Watches of other kinds retry by themselves. Temporary errors, such as HTTP 429, are retried for
    a few rounds and logged as warnings.
    """
    waits = (
        _wait_for_flows(client, scope, with_tests=with_tests, retry_s=retry_s) for scope in scopes
    )
    return [kind for missing in await asyncio.gather(*waits) for kind in missing]


async def _wait_for_flows(
    client: Client, namespace: str | None, *, with_tests: bool, retry_s: float
) -> list[Kind]:
    logged: list[str] = []
    rounds = 0
    while True:
        rounds += 1
        errors = await access_errors(client, namespace, with_tests=with_tests)
        messages = list(map(str, errors.values()))
        passing = [error for error in errors.values() if isinstance(error, Unavailable)]
        if messages and messages != logged:
            say = log.warning if len(passing) == len(errors) else log.error
            say("cannot list all kinds of objects; it tries again", why="; ".join(messages))
        if logged and not messages:
            log.info("lists all kinds of objects")
        logged = messages
        if FLOW not in errors and (not passing or rounds >= _PASSING_ROUNDS):
            return [kind for kind, error in errors.items() if isinstance(error, NotServed)]
        await asyncio.sleep(retry_s)


async def wait_until_served(
    client: Client, namespace: str | None, kind: Kind, retry_s: float
) -> None:
    """Wait until the API server serves a kind."""
    while True:
        with suppress(HeadraceError):
            await client.list(kind, namespace, labels=FLOW_LABEL, metadata_only=True)
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
