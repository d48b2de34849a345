"""Children of flows and tests: owners, and writes to the API server."""

import hashlib
import json
from dataclasses import dataclass

from headrace.api import OPERATOR_MANAGER, MirrorTest, ReplicationFlow
from headrace.controller.events import NameTaken
from headrace.controller.resources.deployment import POD_TEMPLATE_HASH, driver_name, driver_selector
from headrace.errors import Retriable
from headrace.k8s import (
    DEPLOYMENT,
    NETWORK_POLICY,
    POD_DISRUPTION_BUDGET,
    REPLICA_SET,
    ROLE,
    ROLE_BINDING,
    SERVICE_ACCOUNT,
    Client,
    Conflict,
    Kind,
    Object,
    kind_of,
    owns,
)

Owner = ReplicationFlow | MirrorTest

_CALLED = {"ReplicationFlow": "flow", "MirrorTest": "test"}


async def check_name(client: Client, owner: Owner, manifest: Object) -> bool:
    """Check that no other owner has an object of that name: to apply it would make it ours in
    part. Whether this owner has one.

    Raises ``NameTaken``; ``Retriable`` while what an earlier owner of that name left is deleted.
    """
    metadata = manifest["metadata"]
    there = await client.get(kind_of(manifest), metadata["namespace"], metadata["name"])
    if there is None or owns(owner, there):
        return there is not None
    what = f"{manifest['kind']} {metadata['name']} in namespace {metadata['namespace']}"
    called = _CALLED[owner.kind]
    owners = there["metadata"].get("ownerReferences") or []
    if any((one["kind"], one["name"]) == (owner.kind, owner.metadata.name) for one in owners):
        raise Retriable(f"{what} of an earlier {called} of this name is being deleted")
    raise NameTaken(
        f"{what} is there already and is not of this {called}, which needs one of that name: "
        f"delete or rename it, or give the {called} another name"
    )


async def create(client: Client, owner: Owner, manifest: Object) -> None:
    """Create an object, unless the owner has it already: by another reconcile, or by a
    request whose answer was lost.

    Raises as ``check_name``; ``Conflict`` for any other, such as two that are counted at a time
    against a quota.
    """
    try:
        await client.create(manifest)
    except Conflict:
        if not await check_name(client, owner, manifest):
            raise


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
        self._refused: dict[ChildName, str] = {}
        self._templates: dict[ChildName, Object] = {}

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
        if name[0] == DEPLOYMENT.name:
            self._templates[name] = written["spec"]["template"]

    async def remove(self, flow: ReplicationFlow, kind: Kind) -> None:
        """Delete a child that settings do not ask for any more. Raises as ``Client.delete``."""
        name = _child(flow, kind)
        none = _Applied(flow.metadata.uid, "", _our_fields(None))
        if self._applied.get(name) == none:
            return
        there = await self._client.get(kind, *name[1:])
        if there is not None and owns(flow, there):
            version = there["metadata"]["resourceVersion"]
            await self._client.delete(kind, *name[1:], resource_version=version)
        self._applied[name] = none

    async def create(self, flow: ReplicationFlow, manifest: Object, manager: str) -> Object:
        """Make a unit that is not there, as ``manager``; returns it. Raises as ``apply``."""
        await check_name(self._client, flow, manifest)
        return await self._client.apply(manifest, manager=manager)

    def observe(self, object: Object, *, deleted: bool) -> bool:
        """A child as its watch reports it; whether its flow has to be reconciled, which applies a
        child that is gone or that somebody else changed."""
        name = _name(object)
        before = self._refused.pop(name, "")
        if name[0] == DEPLOYMENT.name:
            self._templates[name] = {} if deleted else object["spec"]["template"]
        if not deleted and (refused := _refused_pods(object)):
            self._refused[name] = refused
        applied = self._applied.get(name)
        if not deleted and (applied is None or _our_fields(object) == applied.fields):
            return before != self._refused.get(name, "")
        self._applied.pop(name, None)
        return True

    def refused_pods(self, flow: ReplicationFlow) -> str:
        """Why the API server takes no more pods of a flow's drivers, in its words; or empty."""
        return self._refused.get(_child(flow, DEPLOYMENT), "")

    def template(self, flow: ReplicationFlow) -> Object | None:
        """The pod template of a flow's Deployment; None while it is not known, or there is none."""
        return self._templates.get(_child(flow, DEPLOYMENT)) or None

    async def newest_replica_set(self, flow: ReplicationFlow) -> str:
        """Which label ``pod-template-hash`` the newest drivers of a flow have; empty while there
        are none. By revision: ``kubectl rollout undo`` makes an old ReplicaSet the newest.

        Raises as ``Client.list``.
        """
        labels = ",".join(f"{k}={v}" for k, v in driver_selector(flow.metadata.name).items())
        found = await self._client.list(
            REPLICA_SET, flow.metadata.namespace, labels=labels, metadata_only=True
        )
        newest = max(found, key=_revision, default=None)
        return newest["metadata"]["labels"].get(POD_TEMPLATE_HASH, "") if newest else ""

    async def verify(self, namespace: str, flow: str) -> None:
        """Read all children of a flow: kopf reports no deletion of a time when it did not watch."""
        for name in [name for name in self._applied if name[1:] == (namespace, f"{flow}-driver")]:
            object = await self._client.get(_KINDS[name[0]], namespace, name[2])
            applied = self._applied.get(name)  # ``observe`` may have been called meanwhile
            if applied is not None and _our_fields(object) != applied.fields:
                self._applied.pop(name)

    def forget(self, namespace: str, flow: str) -> None:
        """A flow is gone, and so will be its children."""
        prefix = (namespace, f"{flow}-driver")
        self._applied = {n: a for n, a in self._applied.items() if n[1:] != prefix}
        self._refused.pop((DEPLOYMENT.name, *prefix), None)
        self._templates.pop((DEPLOYMENT.name, *prefix), None)


def _revision(replica_set: Object) -> int:
    annotations = replica_set["metadata"].get("annotations") or {}
    return int(annotations.get("deployment.kubernetes.io/revision", 0))


def _refused_pods(object: Object) -> str:
    """What a Deployment says of it: Pod Security, a quota, a webhook."""
    conditions = object.get("status", {}).get("conditions") or ()
    return next(
        (one.get("message", "") for one in conditions if one["type"] == "ReplicaFailure"), ""
    )


def _our_fields(object: Object | None) -> str:
    """The fields that we applied and nobody changed since, as the API server keeps count."""
    metadata = {} if object is None else object["metadata"]
    entries = metadata.get("managedFields") or []
    ours = [
        entry.get("fieldsV1")
        for entry in entries
        if entry["manager"] == OPERATOR_MANAGER and entry["operation"] == "Apply"
    ]
    return json.dumps(ours, sort_keys=True)


def _digest(manifest: Object) -> str:
    return hashlib.sha256(json.dumps(manifest, sort_keys=True).encode()).hexdigest()


def _child(flow: ReplicationFlow, kind: Kind) -> ChildName:
    return kind.name, flow.metadata.namespace, driver_name(flow)


def _name(object: Object) -> ChildName:
    metadata = object["metadata"]
    return object["kind"], metadata["namespace"], metadata["name"]
