"""What the operator has to see, and what it says at its start of that which it does not."""

import asyncio
from contextlib import aclosing

from headrace.api.labels import FLOW_LABEL
from headrace.controller.children import CHILDREN
from headrace.errors import HeadraceError
from headrace.k8s import Client, Kind
from headrace.k8s.kinds import CONFIG_MAP, FLOW, JOB, LEASE, MIRROR_TEST, POD, TASK
from headrace.logs import get_logger

log = get_logger(__name__)

WATCHED = (FLOW, TASK, MIRROR_TEST, *CHILDREN, POD, LEASE, JOB, CONFIG_MAP)
_LOOK_AGAIN_S = 3.0


async def wait_for_flows(client: Client, namespace: str | None) -> None:
    """Say which definitions and which rights are missing; return when flows can be seen.

    Without flows there is nothing to do, and kopf looks only once which kinds there are. All else
    is asked for again and again by whoever watches it.
    """
    told: list[str] = []
    while True:
        errors = await asyncio.gather(*(_blindness(client, namespace, kind) for kind in WATCHED))
        said = [str(error) for error in errors if error is not None]
        if said and said != told:
            log.error("does not see all that it has to; it tries again", why="; ".join(said))
        told = said
        if errors[WATCHED.index(FLOW)] is None:
            return
        await asyncio.sleep(_LOOK_AGAIN_S)


async def _blindness(client: Client, namespace: str | None, kind: Kind) -> HeadraceError | None:
    """Why a kind can not be listed and watched."""
    try:
        await client.list(kind, namespace, labels=FLOW_LABEL, metadata_only=True)
        async with aclosing(client.watch(kind, namespace, "", labels=FLOW_LABEL)) as events:
            await anext(events)
    except HeadraceError as error:
        return error
    return None
