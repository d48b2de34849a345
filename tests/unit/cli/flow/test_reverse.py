"""Manifest of the reverse flow. tests/integration/test_fail_over.py runs it."""

from typing import Any

import pytest
from support.source_tasks import FLOW

from headrace.api import ReplicationFlow
from headrace.cli.flow.reverse import reversed_flow
from headrace.errors import InvalidSpec


def flow(**spec: Any) -> ReplicationFlow:
    document = FLOW.model_dump(mode="json", by_alias=True, exclude_defaults=True)
    document["spec"] |= spec
    return ReplicationFlow.model_validate(document)


def test_the_clusters_change_places_and_the_rest_stays() -> None:
    there = flow(replicationPolicy={"type": "Identity"}, state="Stopped")
    back = reversed_flow(there)
    assert (back.metadata.name, back.spec.state) == ("f-back", "Running")
    assert (back.spec.source.alias, back.spec.target.alias) == ("west", "east")
    assert back.spec.topics == there.spec.topics
    assert reversed_flow(back).metadata.name == "f"


def test_copies_of_a_policy_of_ones_own_have_no_way_back() -> None:
    with pytest.raises(InvalidSpec, match="Identity or Default, and f has RenameMap"):
        reversed_flow(flow(replicationPolicy={"type": "RenameMap", "renames": {"orders": "sales"}}))


def test_with_prefixes_it_begins_at_the_start() -> None:
    assert reversed_flow(flow(startFrom={"mode": "Latest"})).spec.start_from.mode == "Earliest"


def test_with_preserved_offsets_the_way_back_is_another_flow() -> None:
    with pytest.raises(
        InvalidSpec, match=r"write a flow in the other direction with offsets\.mode"
    ):
        reversed_flow(flow(offsets={"mode": "Preserved"}))
