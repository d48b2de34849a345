"""Check of a running operator (``headrace operator --check``)."""

import asyncio

from headrace.controller.access import access_errors
from headrace.controller.options import OperatorOptions
from headrace.errors import GaveUp
from headrace.k8s import LEASE, Client, connect
from headrace.k8s.leases import LeaseView, read_lease

_RENEWED_TIMEOUT_S = 60.0
"""Time within which a leader must renew the Lease, in seconds.

A leader renews the Lease every 2 s. If the leader dies, another replica leads 20 s later.
"""
_POLL_S = 1.0


async def check_operator(options: OperatorOptions) -> str:
    """Return a sentence that names the leader. Raise ``GaveUp`` if the operator does not work."""
    client = await connect("the check")
    try:
        with_tests = options.tests is not None
        for namespace in options.scopes:
            if errors := await access_errors(client, namespace, with_tests=with_tests):
                raise GaveUp("; ".join(map(str, errors.values())))
        leader = await _leader(client, options)
    finally:
        await client.close()
    return f"{leader} leads, and may watch all that it has to"


async def _leader(client: Client, options: OperatorOptions) -> str:
    """Wait for a renewal of the Lease, and return its holder. Raise ``GaveUp`` after 60 s."""
    before = None
    for _ in range(int(_RENEWED_TIMEOUT_S / _POLL_S)):
        now = await _lease(client, options)
        if now.holder and before is not None and now.renew_time != before.renew_time:
            return now.holder
        before = now
        await asyncio.sleep(_POLL_S)
    raise GaveUp(
        f"no operator renewed the Lease {options.lease} in namespace {options.lease_namespace} for "
        f"{_RENEWED_TIMEOUT_S:.0f} s: read the log of its pods"
    )


async def _lease(client: Client, options: OperatorOptions) -> LeaseView:
    found = await client.get(LEASE, options.lease_namespace, options.lease)
    return read_lease(found or {})
