"""``headrace operator --check``: whether an operator leads and sees all that it has to."""

import asyncio

from headrace.controller.access_check import access_errors
from headrace.controller.operator import OperatorOptions
from headrace.errors import GaveUp
from headrace.k8s import LEASE, Client, connect
from headrace.k8s.leases import LeaseView, read_lease

_RENEWED_WITHIN_S = 60.0
"""A leader renews every 2 s; another one leads 20 s after it died, and a release may be young."""
_POLL_S = 1.0


async def check_operator(options: OperatorOptions) -> str:
    """What is well, as a sentence. Raises ``GaveUp`` with what is not."""
    client = await connect("the check")
    try:
        served = options.namespaces or (None,)
        with_tests = options.tests is not None
        for namespace in served:
            if errors := await access_errors(client, namespace, with_tests=with_tests):
                raise GaveUp("; ".join(map(str, errors.values())))
        leader = await _leader(client, options)
    finally:
        await client.close()
    return f"{leader} leads, and may watch all that it has to"


async def _leader(client: Client, options: OperatorOptions) -> str:
    """Who renews the Lease, by no clock but that of this process."""
    before = None
    for _ in range(int(_RENEWED_WITHIN_S / _POLL_S)):
        now = await _lease(client, options)
        if now.holder and before is not None and now.renew_time != before.renew_time:
            return now.holder
        before = now
        await asyncio.sleep(_POLL_S)
    raise GaveUp(
        f"no operator renewed the Lease {options.lease} in namespace {options.lease_namespace} for "
        f"{_RENEWED_WITHIN_S:.0f} s: read the log of its pods"
    )


async def _lease(client: Client, options: OperatorOptions) -> LeaseView:
    found = await client.get(LEASE, options.lease_namespace, options.lease)
    return read_lease(found or {})
