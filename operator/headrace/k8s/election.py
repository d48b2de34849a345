"""Leader election among replicas with a Lease, as in client-go's ``leaderelection``.

The implementation in ``kubernetes.aio`` is not used. With it, a leader continues after a failed
request of ``run``. It does not release the Lease on exit, and it uses the wall clock.
"""

import asyncio
import random
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress

from headrace.errors import Fatal, HeadraceError
from headrace.k8s.client import Client
from headrace.k8s.errors import Conflict
from headrace.k8s.kinds import LEASE, Object
from headrace.k8s.leases import LeaseView, micro_time, read_lease
from headrace.logs import get_logger

log = get_logger(__name__)

_REPORT_AFTER_S = 30.0
"""Time without access to the Lease after which a replica reports a problem, in seconds."""


class LeadershipLost(Fatal):
    """Another replica leads or may lead, so this process must end."""


class LeaderElection:
    """Leader election with client-go's defaults.

    The Lease lasts 15 s and is renewed every 2 s. A leader steps down 10 s after its last renewal.
    """

    def __init__(
        self,
        client: Client,
        namespace: str,
        name: str,
        identity: str,
        *,
        duration_s: int = 15,
        renew_deadline_s: float = 10.0,
        retry_s: float = 2.0,
    ) -> None:
        self._client, self._namespace, self._name = client, namespace, name
        self._identity = identity
        self._duration_s, self._deadline_s, self._retry_s = duration_s, renew_deadline_s, retry_s
        self._observed: LeaseView | None = None
        self._observed_at = 0.0
        self._reached_at: float | None = None
        self._why = "it has only begun"
        self.leads = False
        """True while this replica leads."""

    def problems(self) -> list[str]:
        """Return the reasons why this replica cannot become the leader.

        The list is empty for the leader and for a candidate that can access the Lease.
        """
        if self._reached_at is None:
            return [f"the Lease {self._name} was not reached yet: {self._why}"]
        if time.monotonic() - self._reached_at >= _REPORT_AFTER_S:
            return [
                f"the Lease {self._name} was not reached for {_REPORT_AFTER_S:.0f} s: {self._why}"
            ]
        return []

    async def run(self, work: Callable[[], Awaitable[None]]) -> None:
        """Wait for leadership, then run ``work``. Release the Lease when ``work`` returns.

        Raise ``LeadershipLost`` if the Lease could not be renewed in time. The process must then
        end, because the cancelled ``work`` may still be running. Cancel ``run`` to step down.
        """
        await self._acquire()
        log.info("leads", lease=self._name, identity=self._identity)
        self.leads = True
        working = asyncio.ensure_future(work())
        renewing = asyncio.create_task(self._renew())
        try:
            await asyncio.wait((working, renewing), return_when=asyncio.FIRST_COMPLETED)
        finally:
            self.leads = False
            renewing.cancel()
            working.cancel()
            with suppress(asyncio.CancelledError, HeadraceError):
                # The Lease is still valid for this time, even after the deadline for its renewal.
                left_s = self._duration_s - self._deadline_s
                await asyncio.wait((working, renewing), timeout=left_s)
                if working.done() and not _lost(renewing):
                    await self._release()
        if _lost(renewing):
            renewing.result()
        working.result()

    async def _acquire(self) -> None:
        while True:
            try:
                if await self._try():
                    return
            except Conflict:
                pass  # another replica was faster
            except HeadraceError as error:
                self._why = str(error)
                log.warning("cannot stand for election, retried", why=self._why)
            await asyncio.sleep(self._retry_s * random.uniform(0.5, 1.0))

    async def _renew(self) -> None:
        renewed = time.monotonic()
        self._why = "the API server did not answer"
        while True:
            await asyncio.sleep(self._retry_s)
            attempt = time.monotonic()
            try:
                # An attempt must not outlive the deadline.
                left_s = max(0.1, renewed + self._deadline_s - attempt)
                async with asyncio.timeout(left_s):
                    if not await self._try():
                        raise LeadershipLost(f"another replica took the Lease {self._name}")
                renewed = attempt
            except TimeoutError:
                pass
            except LeadershipLost:
                raise
            except HeadraceError as error:
                self._why = str(error)
            if time.monotonic() - renewed >= self._deadline_s:
                raise LeadershipLost(
                    f"the Lease {self._name} was not renewed for {self._deadline_s:.0f} s: "
                    f"{self._why}"
                )

    async def _try(self) -> bool:
        """Try once to acquire or renew the Lease, and return True if this replica holds it now.

        Raise ``Conflict`` if another replica changed it in between, or if only its labels changed.
        """
        lease = await self._client.get(LEASE, self._namespace, self._name)
        ours = lease is None or not self._is_anothers(lease)
        if lease is None:
            await self._client.create(self._lease(None))
        elif ours:
            await self._client.replace(self._lease(lease))
        self._reached_at = time.monotonic()
        return ours

    def _is_anothers(self, lease: Object) -> bool:
        view = read_lease(lease)
        now = time.monotonic()
        if view != self._observed:
            self._observed, self._observed_at = view, now
        expired = now - self._observed_at >= view.duration_s
        return view.holder not in ("", self._identity) and not expired

    def _lease(self, before: Object | None) -> Object:
        spec = dict((before or {}).get("spec") or {})  # the chart creates a Lease without a spec
        if spec.get("holderIdentity") != self._identity:
            spec["acquireTime"] = micro_time()
            spec["leaseTransitions"] = (spec.get("leaseTransitions") or 0) + (before is not None)
        spec |= {
            "holderIdentity": self._identity,
            "leaseDurationSeconds": self._duration_s,
            "renewTime": micro_time(),
        }
        return self._object(spec, before)

    def _object(self, spec: Object, before: Object | None) -> Object:
        fresh = {"name": self._name, "namespace": self._namespace}
        return {
            "apiVersion": LEASE.api_version,
            "kind": LEASE.name,
            "metadata": before["metadata"] if before else fresh,
            "spec": spec,
        }

    async def _release(self) -> None:
        """Release the Lease, so that another replica need not wait until it expires.

        This corresponds to client-go's ReleaseOnCancel.
        """
        lease = await self._client.get(LEASE, self._namespace, self._name)
        if lease is not None and read_lease(lease).holder == self._identity:
            spec = lease["spec"] | {"holderIdentity": "", "leaseDurationSeconds": 1}
            await self._client.replace(self._object(spec, lease))


def _lost(renewing: asyncio.Task[None]) -> bool:
    return renewing.done() and not renewing.cancelled() and renewing.exception() is not None
