"""Applies what a flow needs, but nothing that is as it was applied."""

import hashlib
import json
from dataclasses import dataclass

from headrace.api import ReplicationFlow
from headrace.api.labels import OPERATOR_MANAGER
from headrace.controller.ownership import check_name
from headrace.k8s import Client, Object
from headrace.k8s.kinds import (
    DEPLOYMENT,
    NETWORK_POLICY,
    POD_DISRUPTION_BUDGET,
    ROLE,
    ROLE_BINDING,
    SERVICE_ACCOUNT,
)

CHILDREN = (SERVICE_ACCOUNT, ROLE, ROLE_BINDING, POD_DISRUPTION_BUDGET, NETWORK_POLICY, DEPLOYMENT)
"""The kinds that ``apply`` makes; units are watched apart."""
_KINDS = {kind.name: kind for kind in CHILDREN}
ChildName = tuple[str, str, str]
"""Kind, namespace and name."""


@dataclass(frozen=True)
class _Applied:
    owner: str | None
    """The flow's uid: a flow that is made again finds the children of the one before."""
    digest: str
    """Of the manifest."""
    fields: str
    """Which of its fields the API server knows as ours."""


class Children:
    """The only writer of manifests. For one event loop."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._applied: dict[ChildName, _Applied] = {}

    async def apply(self, flow: ReplicationFlow, manifest: Object) -> None:
        """Make a child as ``manifest`` says, unless it is.

        Raises ``NameTaken`` when it belongs to somebody else, and what ``Client.apply`` raises.
        """
        name, wanted, owner = _name(manifest), _digest(manifest), flow.metadata.uid
        applied = self._applied.get(name)
        if applied is not None and (applied.owner, applied.digest) == (owner, wanted):
            return
        if applied is None or applied.owner != owner:
            await check_name(self._client, flow, manifest)
        written = await self._client.apply(manifest, manager=OPERATOR_MANAGER)
        self._applied[name] = _Applied(owner, wanted, _our_fields(written))

    async def create(self, flow: ReplicationFlow, manifest: Object, manager: str) -> Object:
        """Make a unit that is not there, as ``manager``; returns it. Raises as ``apply``."""
        await check_name(self._client, flow, manifest)
        return await self._client.apply(manifest, manager=manager)

    def seen(self, object: Object, *, deleted: bool) -> bool:
        """A child is seen; whether it is gone or somebody else changed it: then it is applied at
        the next look."""
        name = _name(object)
        applied = self._applied.get(name)
        if not deleted and (applied is None or _our_fields(object) == applied.fields):
            return False
        self._applied.pop(name, None)
        return True

    async def verify(self, namespace: str, flow: str) -> None:
        """Read all children of a flow: a watch may have missed what happened to one."""
        for name in [name for name in self._applied if name[1:] == (namespace, f"{flow}-driver")]:
            object = await self._client.get(_KINDS[name[0]], namespace, name[2])
            if object is None or _our_fields(object) != self._applied[name].fields:
                self._applied.pop(name, None)

    def forget(self, namespace: str, flow: str) -> None:
        """A flow is gone, and so will be its children."""
        prefix = (namespace, f"{flow}-driver")
        self._applied = {n: a for n, a in self._applied.items() if n[1:] != prefix}


def _our_fields(object: Object) -> str:
    """The fields that we applied and nobody changed since, as the API server keeps count."""
    entries = object["metadata"].get("managedFields") or []
    ours = [
        entry.get("fieldsV1")
        for entry in entries
        if entry["manager"] == OPERATOR_MANAGER and entry["operation"] == "Apply"
    ]
    return json.dumps(ours, sort_keys=True)


def _digest(manifest: Object) -> str:
    return hashlib.sha256(json.dumps(manifest, sort_keys=True).encode()).hexdigest()


def _name(object: Object) -> ChildName:
    metadata = object["metadata"]
    return object["kind"], metadata["namespace"], metadata["name"]
