"""Which flow or test owns a child: what the operator makes for an owner is deleted with it, and
nothing else is."""

from headrace.api import MirrorTest, ReplicationFlow
from headrace.controller.blocked import NameTaken
from headrace.errors import Retriable
from headrace.k8s import Client, Conflict, Object, kind_of, owns

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
