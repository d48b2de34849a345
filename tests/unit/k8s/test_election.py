"""A leader leads until another replica does, or may."""

import asyncio
from typing import cast

import pytest

from headrace.k8s import Client, Conflict, Kind, LeaderElection, LeadershipLost, Object


class Kept:
    """API server with one Lease, which another client writes before each of ``conflicts``."""

    def __init__(self) -> None:
        self.lease: Object | None = None
        self.conflicts = 0
        self.writes = 0

    async def get(self, kind: Kind, namespace: str, name: str) -> Object | None:
        return self.lease

    async def create(self, object: Object) -> Object:
        self.lease = object
        return object

    async def replace(self, object: Object) -> Object:
        if self.conflicts:
            self.conflicts -= 1
            raise Conflict("changed meanwhile")
        self.writes += 1
        self.lease = object
        return object


async def forever() -> None:
    await asyncio.Event().wait()


def test_labels_that_somebody_writes_do_not_end_a_leader_and_another_holder_does() -> None:
    async def test() -> None:
        kept = Kept()
        election = LeaderElection(cast(Client, kept), "ns", "lease", "me", retry_s=0.01)
        assert election.problems() == ["the Lease lease was not reached yet: it has only begun"]
        leading = asyncio.create_task(election.run(forever))
        async with asyncio.timeout(60):
            while kept.writes < 2:
                await asyncio.sleep(0.01)
            kept.conflicts, kept.writes = 2, 0
            while kept.writes < 2:
                await asyncio.sleep(0.01)
            assert election.leads
            assert election.problems() == []
            assert kept.lease
            kept.lease = {**kept.lease, "spec": {**kept.lease["spec"], "holderIdentity": "other"}}
            with pytest.raises(LeadershipLost, match="another replica took the Lease lease"):
                await leading

    asyncio.run(test())
