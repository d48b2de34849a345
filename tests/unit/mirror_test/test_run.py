from typing import Any

import pytest

from headrace.api import MirrorTest
from headrace.api.labels import FLOW_LABEL
from headrace.errors import InvalidSpec
from headrace.mirror_test import MirrorTestRun

CLUSTERS: dict[str, Any] = {
    "source": {"alias": "east", "bootstrapServers": "e:1"},
    "target": {"alias": "west", "bootstrapServers": "w:1"},
}


def run(name: str = "r", annotations: dict[str, str] | None = None, **spec: Any) -> MirrorTestRun:
    metadata = {"name": "t", "annotations": annotations or {}}
    return MirrorTestRun(
        name=name, test=MirrorTest.model_validate({"metadata": metadata, "spec": spec})
    )


def test_topics_are_numbered_and_named_as_the_mirror_names_them() -> None:
    assert run(**CLUSTERS, load={"topics": 2}).topics == {"t-0": "east.t-0", "t-1": "east.t-1"}
    named = run(**CLUSTERS, load={"names": ["a.b", "c"]}, targetTopic="{topic}-of-{source}")
    assert named.topics == {"a.b": "a.b-of-east", "c": "c-of-east"}


def test_the_flow_is_remembered() -> None:
    assert run(**CLUSTERS).flow is None
    assert run(annotations={FLOW_LABEL: "orders"}, **CLUSTERS).flow == "orders"


def test_a_test_that_names_a_flow_is_not_resolved() -> None:
    with pytest.raises(InvalidSpec, match="names a flow instead of its clusters"):
        _ = run(flowName="orders").source


@pytest.mark.parametrize("name", ["", "A", "a" * 21, "a/b"])
def test_a_name_fits_into_ids_and_keys(name: str) -> None:
    with pytest.raises(ValueError, match="pattern"):
        run(name, **CLUSTERS)
