"""Children are applied if something differs, and never if another owner has them."""

import asyncio
from collections.abc import Callable
from copy import deepcopy
from typing import Any, cast

import pytest

from headrace.api import ReplicationFlow
from headrace.controller.children import Children
from headrace.controller.events import NameTaken
from headrace.controller.resources import build_children
from headrace.errors import Retriable
from headrace.k8s import Client, Kind, Object


class Kept:
    """API server with one namespace that stores applied objects."""

    def __init__(self) -> None:
        self.objects: dict[str, Object] = {}
        self.writes = 0
        self.before_an_answer: Callable[[], Any] = lambda: None

    async def get(self, kind: Kind, namespace: str, name: str) -> Object | None:
        self.before_an_answer()
        return self.objects.get(kind.name)

    async def apply(self, object: Object, *, manager: str) -> Object:
        self.writes += 1
        self.objects[object["kind"]] = deepcopy(object)
        return object


def flow(uid: str) -> ReplicationFlow:
    metadata: Any = {"name": "orders", "namespace": "shop", "uid": uid}
    return ReplicationFlow.model_validate(
        {
            "metadata": metadata,
            "spec": {
                "source": {"alias": "east", "bootstrapServers": "e:9092"},
                "target": {"alias": "west", "bootstrapServers": "w:9092"},
                "topics": {"include": [".*"]},
            },
        }
    )


def apply(children: Children, flow: ReplicationFlow) -> None:
    for manifest in build_children(flow, "image", network_policy=False):
        asyncio.run(children.apply(flow, manifest))


def owners(kept: Kept) -> set[str]:
    found = [one["metadata"]["ownerReferences"] for one in kept.objects.values()]
    return {owner["uid"] for references in found for owner in references}


def test_a_flow_made_again_waits_for_the_end_of_the_children_of_the_one_before() -> None:
    kept = Kept()
    children = Children(cast(Client, kept))
    apply(children, flow("old"))
    with pytest.raises(Retriable, match="of an earlier flow of this name is being deleted"):
        apply(children, flow("new"))
    assert owners(kept) == {"old"}
    kept.objects.clear()
    apply(children, flow("new"))
    assert owners(kept) == {"new"}
    writes = kept.writes
    apply(children, flow("new"))
    assert kept.writes == writes, "nothing changed"


def test_children_that_go_while_they_are_read_are_made_again() -> None:
    kept = Kept()
    children = Children(cast(Client, kept))
    apply(children, flow("old"))

    def collect_garbage() -> None:
        while kept.objects:
            _, gone = kept.objects.popitem()
            children.observe(gone, deleted=True)

    kept.before_an_answer = collect_garbage
    asyncio.run(children.verify("shop", "orders"))
    apply(children, flow("old"))
    assert "Deployment" in kept.objects


def test_an_object_of_somebody_else_is_left_alone() -> None:
    kept = Kept()
    kept.objects["Deployment"] = {"metadata": {"name": "orders-driver"}}
    with pytest.raises(NameTaken, match="Deployment orders-driver in namespace shop is there"):
        apply(Children(cast(Client, kept)), flow("new"))
    assert kept.objects["Deployment"] == {"metadata": {"name": "orders-driver"}}
