"""docs/reference.md agrees with the types, and the types describe every field."""

import re
from pathlib import Path

import pytest

from headrace.api import MirrorTest, ReplicationFlow, ReplicationTask, Secret
from headrace.api.manifest_errors import fields_of
from headrace.api.model import Model
from headrace.api.reference import reference

PAGE = Path(__file__).parents[3] / "docs" / "reference.md"


def test_the_page_is_the_generated_one() -> None:
    assert PAGE.read_text() == reference(), "run: make generate"


@pytest.mark.parametrize("kind", [ReplicationFlow, MirrorTest, ReplicationTask, Secret])
def test_every_field_is_described(kind: type[Model]) -> None:
    bare = [".".join(field.path) for field in fields_of(kind) if not field.description]
    assert bare == []


def test_what_only_kubernetes_has_is_marked_row_by_row() -> None:
    marked = {row.split("`")[1] for row in reference().splitlines() if "Kubernetes only. |" in row}
    assert {
        "spec.drivers.podTemplate",
        "spec.drivers.podTemplate.tolerations.key",
        "spec.drivers.resources.limits",
        "spec.schedule",
        "spec.spark.driver.resources.limits.memory",
    } <= marked
    assert not {"spec.drivers.replicas", "spec.state", "spec.topics", "status.topics"} & marked


def test_the_page_survives_markdown() -> None:
    rows = [line for line in reference().splitlines() if line.startswith("|")]
    assert {line.count("|") for line in rows} == {5}
    assert not [line for line in rows if "<" in line]
    outside_code = [re.sub(r"`[^`]*`", "", line) for line in rows]
    assert not [line for line in outside_code if re.search(r"(?<!\\)\*", line)]
