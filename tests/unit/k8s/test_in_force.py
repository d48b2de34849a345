"""Spec of a flow that is in force while its own is invalid."""

from typing import Any

import pytest

from headrace.errors import InvalidSpec
from headrace.k8s import Object, read_in_force, salvage

VALID: dict[str, Any] = {
    "source": {"alias": "east", "bootstrapServers": "127.0.0.1:1"},
    "target": {"alias": "west", "bootstrapServers": "127.0.0.1:2"},
    "topics": {"include": ["orders"]},
}
INVALID = VALID | {"pausedPartitions": [{"topic": "orders", "partitions": "3-0"}]}


def flow(spec: Object, generation: int, uid: str = "1", status: Object | None = None) -> Object:
    metadata = {"name": "orders", "namespace": "shop", "uid": uid, "generation": generation}
    return {
        "apiVersion": "headrace.dev/v1beta1",
        "kind": "ReplicationFlow",
        "metadata": metadata,
        "spec": spec,
        **({"status": status} if status else {}),
    }


def test_last_valid_spec_stays_in_force_with_metadata_of_the_invalid_object() -> None:
    known = read_in_force(flow(VALID, 6), None)
    assert (known.error, known.last_valid) == ("", None)
    edited = flow(INVALID, 7)
    edited["metadata"]["annotations"] = {"a": "b"}
    found = read_in_force(edited, known)
    assert "spec.pausedPartitions.0.partitions" in found.error
    assert found.flow.spec == known.flow.spec
    assert found.flow.metadata.annotations == {"a": "b"}
    assert found.last_valid is not None
    assert (found.last_valid.generation, found.last_valid.spec) == (6, VALID)
    again = read_in_force(flow(INVALID | {"state": "Stopped"}, 8), found)
    assert again.generation == 6
    corrected = read_in_force(flow(VALID | {"state": "Stopped"}, 9), again)
    assert (corrected.error, corrected.generation) == ("", 9)


def test_process_that_starts_later_reads_the_last_valid_spec_in_the_status() -> None:
    known = read_in_force(flow(VALID, 6), None)
    found = read_in_force(flow(INVALID, 7), known)
    assert found.last_valid is not None
    stored = {"lastValid": found.last_valid.model_dump(mode="json", by_alias=True)}
    later = read_in_force(flow(INVALID, 7, status=stored), None)
    assert later.flow.spec == known.flow.spec
    assert later.last_valid == found.last_valid


def test_spec_of_an_earlier_flow_of_that_name_never_counts() -> None:
    known = read_in_force(flow(VALID, 6), None)
    with pytest.raises(InvalidSpec, match="pausedPartitions"):
        read_in_force(flow(INVALID, 1, uid="2"), known)


def test_stored_spec_that_is_invalid_itself_is_not_blamed() -> None:
    with pytest.raises(InvalidSpec, match="pausedPartitions"):
        read_in_force(flow(INVALID, 7, status={"lastValid": {"spec": {"mode": "new"}}}), None)


def test_salvage_leaves_out_what_is_invalid_and_stores_nothing() -> None:
    found = salvage(flow(INVALID, 7))
    assert found.flow.spec.paused_partitions == ()
    assert (found.is_complete, found.last_valid) == (False, None)
    with pytest.raises(InvalidSpec):
        salvage(flow({**INVALID, "source": {}}, 7))
