"""Leaves the verdict where the operator looks for it: in a ConfigMap that it made."""

import asyncio
import time

from headrace.errors import Retriable
from headrace.k8s import connect
from headrace.k8s.kinds import CONFIG_MAP

_WITHIN_S = 120.0
"""An API server that is restarted or upgraded is back by then; the verdict is worth the wait."""
_AGAIN_S = 2.0


def put(where: str, key: str, text: str) -> None:
    """Write ``text`` at ``key`` of the ConfigMap ``NAMESPACE/NAME``, which must be there.

    The right to patch this one ConfigMap will do. Raises the errors of ``headrace.k8s``.
    """
    namespace, _, name = where.partition("/")
    asyncio.run(_put(namespace, name, key, text))


async def _put(namespace: str, name: str, key: str, text: str) -> None:
    deadline = time.monotonic() + _WITHIN_S
    client = await connect("the verifier")
    try:
        while True:
            try:
                await client.patch(CONFIG_MAP, namespace, name, {"data": {key: text}})
                return
            except Retriable:
                if time.monotonic() > deadline:
                    raise
                await asyncio.sleep(_AGAIN_S)
    finally:
        await client.close()
