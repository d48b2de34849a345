"""Leases as objects: build one, read one, keep one renewed."""

import asyncio
import random
import time
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime

from headrace.errors import HeadraceError
from headrace.k8s.client import Client
from headrace.k8s.kinds import LEASE, Object
from headrace.k8s.lease_observer import LeaseView
from headrace.logs import get_logger

log = get_logger(__name__)


def micro_time() -> str:
    """Now, as Kubernetes' MicroTime has it."""
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def read_lease(lease: Object) -> LeaseView:
    """What an observer compares."""
    spec = lease.get("spec") or {}
    return LeaseView(
        holder=spec.get("holderIdentity") or "",
        renew_time=spec.get("renewTime") or "",
        duration_s=float(spec.get("leaseDurationSeconds") or 0),
    )


class LeaseKeeper:
    """Keeps a Lease that is this process's alone: named as its pod, renewed thrice a duration."""

    def __init__(
        self,
        client: Client,
        namespace: str,
        name: str,
        holder: str,
        *,
        duration_s: int,
        manager: str,
        labels: Mapping[str, str],
        owners: Sequence[Object] = (),
    ) -> None:
        self._client, self._namespace, self._name = client, namespace, name
        self._holder, self.duration_s, self._manager = holder, duration_s, manager
        self._labels, self._owners = dict(labels), list(owners)
        self._acquired = micro_time()
        self._renewed: float | None = None

    @property
    def held(self) -> bool:
        """Whether it was renewed within its duration, on this process's clock."""
        return self._renewed is not None and time.monotonic() - self._renewed < self.duration_s

    async def run(self) -> None:
        """Renew; never returns. What fails is tried again when the next renewal is due.

        An API server that is overloaded may need longer than one interval: a request that is ended
        then only waits behind all others once more. So what failed once gets the whole duration.
        """
        failing = False
        while True:
            interval_s = self.duration_s / 3 * random.uniform(0.9, 1.0)
            due = time.monotonic() + interval_s
            try:
                async with asyncio.timeout(self.duration_s if failing else interval_s):
                    await self._renew()
                failing = False
            except (HeadraceError, TimeoutError) as error:
                if not failing:
                    why = str(error) or "the API server did not answer in time"
                    log.warning("Lease not renewed, tried again", lease=self._name, why=why)
                failing = True
            await asyncio.sleep(max(0.0, due - time.monotonic()))

    async def release(self) -> None:
        """Delete it: whoever watches knows at once."""
        try:
            await self._client.delete(LEASE, self._namespace, self._name)
        except HeadraceError as error:
            log.info("Lease not deleted, it will expire", lease=self._name, why=str(error))

    async def _renew(self) -> None:
        sent = time.monotonic()  # not when the answer came: an observer may have seen it before
        await self._client.apply(
            {
                "apiVersion": LEASE.api_version,
                "kind": LEASE.name,
                "metadata": {
                    "name": self._name,
                    "namespace": self._namespace,
                    "labels": self._labels,
                    "ownerReferences": self._owners,
                },
                "spec": {
                    "holderIdentity": self._holder,
                    "leaseDurationSeconds": self.duration_s,
                    "acquireTime": self._acquired,
                    "renewTime": micro_time(),
                },
            },
            manager=self._manager,
        )
        self._renewed = sent
