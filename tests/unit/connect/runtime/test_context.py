"""Tests of the mover that a flow's spec asks for."""

from typing import Any

import pytest
from support.source_tasks import FLOW, P0, Scene

from headrace.api import ReplicationFlow
from headrace.errors import Fatal
from headrace.movers import BatchMover


def scene_of(mover: str, field: str) -> Scene:
    document = FLOW.model_dump(by_alias=True, exclude_unset=True, mode="json")
    spec: dict[str, Any] = document["spec"]
    spec["mover"] = mover
    if field == "spec.headers":
        spec["headers"] = {"remove": ["trace"]}
    else:
        spec["target"]["compression"] = {"type": "Zstd"}
    return Scene(P0, flow=ReplicationFlow.model_validate(document))


@pytest.mark.parametrize("field", ["spec.headers", "spec.target.compression"])
def test_a_flow_that_needs_batches_does_not_copy_record_by_record(field: str) -> None:
    assert isinstance(scene_of("Batch", field).context.mover, BatchMover)
    with pytest.raises(Fatal, match=f"{field} needs mover Batch, which .*: spec.mover is Record"):
        _ = scene_of("Record", field).context.mover
    with pytest.raises(Fatal, match=f"{field} needs mover Batch, which .* are in memory"):
        _ = scene_of("Auto", field).context.mover
