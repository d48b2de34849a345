"""Writes the verdict into a ConfigMap that the operator made and reads."""

import asyncio

from headrace.k8s import CONFIG_MAP, connect, retried

_WITHIN_S = 120.0
"""An API server that is restarted or upgraded is back by then; the verdict is worth the wait."""


def put(where: str, key: str, text: str) -> None:
    """Write ``text`` at ``key`` of the ConfigMap ``NAMESPACE/NAME``, which must be there.

    The right to patch this one ConfigMap will do. Raises the errors of ``headrace.k8s``.
    """
    namespace, _, name = where.partition("/")
    asyncio.run(_put(namespace, name, key, text))


async def _put(namespace: str, name: str, key: str, text: str) -> None:
    client, patch = await connect("the verifier"), {"data": {key: text}}
    try:
        await retried(lambda: client.patch(CONFIG_MAP, namespace, name, patch), _WITHIN_S)
    finally:
        await client.close()
