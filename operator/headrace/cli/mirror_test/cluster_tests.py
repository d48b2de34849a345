"""Mirror tests of a Kubernetes namespace."""

import asyncio
from datetime import UTC, datetime

from headrace.api import END_LOAD_ANNOTATION, MirrorTest
from headrace.errors import InvalidSpec
from headrace.k8s import MIRROR_TEST, Client, connect_as_kubectl, parse


def annotate_end(name: str, namespace: str | None, context: str | None) -> None:
    """Ask the operator to end the load of a test; ``InvalidSpec`` when there is none to end."""
    asyncio.run(_annotate_end(name, namespace, context))


async def _annotate_end(name: str, namespace: str | None, context: str | None) -> None:
    client = await connect_as_kubectl("you", context)
    try:
        await _annotate(client, namespace or client.namespace, name)
    finally:
        await client.close()


async def _annotate(client: Client, namespace: str, name: str) -> None:
    found = await client.get(MIRROR_TEST, namespace, name)
    if found is None:
        raise InvalidSpec(f"there is no MirrorTest {name} in namespace {namespace}")
    test = parse(MirrorTest, found)
    if test.spec.repeats:
        raise InvalidSpec(
            f"{name} sends nothing itself: name the run whose load is to end; spec.suspend: true "
            "keeps further ones from starting"
        )
    if test.status and test.status.verdict:
        raise InvalidSpec(f"{name} has ended: {test.status.verdict}")
    annotations = {END_LOAD_ANNOTATION: datetime.now(UTC).isoformat()}
    await client.patch(MIRROR_TEST, namespace, name, {"metadata": {"annotations": annotations}})
