"""values.yaml, its schema and the chart's page contain the same values."""

import json
import runpy
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).parents[2]
CHART = ROOT / "charts" / "headrace"
SCHEMA = json.loads((CHART / "values.schema.json").read_text())
VALUES = yaml.safe_load((CHART / "values.yaml").read_text())
TABLE = runpy.run_path(str(ROOT / "docs" / "chart_values.py"))
OF_HELM = {"enabled"}
"""Values of Helm itself: the condition of an umbrella chart."""


def test_the_page_has_the_table_of_values() -> None:
    assert TABLE["page_with"](TABLE["table"]()) == TABLE["PAGE"].read_text(), "run `make generate`"


def test_every_value_is_told() -> None:
    documented = {value.path for value in TABLE["values"]()}

    def untold(values: Any, path: tuple[str, ...] = ()) -> list[str]:
        if path in documented:
            return []
        if not isinstance(values, dict):
            return [".".join(path)]
        return [miss for key, inner in values.items() for miss in untold(inner, (*path, key))]

    assert untold(VALUES) == []


def test_the_schema_knows_these_values_and_no_others() -> None:
    def differences(values: Any, schema: Any, path: str) -> list[str]:
        wanted = schema["properties"]
        inner = [
            miss
            for key in values.keys() & wanted.keys()
            if "properties" in wanted[key]
            for miss in differences(values[key], wanted[key], f"{path}.{key}")
        ]
        # A value that is empty by default has the fields that Kubernetes defines.
        return inner + [f"{path}.{key}" for key in values and values.keys() ^ wanted.keys()]

    assert set(differences(VALUES, SCHEMA, "")) == {f".{key}" for key in OF_HELM}


def test_the_schema_is_closed() -> None:
    def open_ones(schema: Any, path: str = "") -> list[str]:
        if isinstance(schema, list):
            return [one for inner in schema for one in open_ones(inner, path)]
        if not isinstance(schema, dict):
            return []
        here = [path] if "properties" in schema and schema["additionalProperties"] else []
        return here + [one for key in schema for one in open_ones(schema[key], f"{path}.{key}")]

    assert open_ones(SCHEMA) == [".properties.global"]  # other charts read these, too
