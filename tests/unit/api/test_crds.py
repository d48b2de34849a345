"""CustomResourceDefinitions are generated, complete and structural, as Kubernetes requires."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from support.manifests import SERVER_DEFAULTS

from headrace.api.crds import RESOURCES, definition, files
from headrace.api.manifest_errors import fields_of

ROOT = Path(__file__).parents[3]
FOLDERS = [ROOT / "crds", ROOT / "charts" / "headrace" / "files" / "crds"]

Path_ = tuple[str, ...]
Schema = dict[str, Any]


DEFINITIONS = {resource.plural: definition(resource) for resource in RESOURCES}


@pytest.fixture(scope="module")
def texts() -> dict[str, str]:
    return files()


CONTENTS = {"items": "[items]", "additionalProperties": "[values]"}
"""Steps of a path into the contents of a list or mapping, which no field has as its name."""


def schemas(resource: Any) -> Iterator[tuple[Path_, Schema]]:
    """Yield each schema of a definition, with its path."""
    (version,) = DEFINITIONS[resource.plural]["spec"]["versions"]
    yield from walk(version["schema"]["openAPIV3Schema"], ())


def walk(schema: Schema, path: Path_) -> Iterator[tuple[Path_, Schema]]:
    yield path, schema
    for name, inside in schema.get("properties", {}).items():
        yield from walk(inside, (*path, name))
    for key, step in CONTENTS.items():
        if key in schema:
            yield from walk(schema[key], (*path, step))


ALL = [found for resource in RESOURCES for found in schemas(resource)]


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda path: str(path.relative_to(ROOT)))
def test_the_files_are_the_generated_ones(folder: Path, texts: dict[str, str]) -> None:
    found = {file.name: file.read_text() for file in folder.iterdir()}
    assert found == texts, "run: make generate"


def test_the_text_is_the_definition(texts: dict[str, str]) -> None:
    for resource, text in zip(RESOURCES, texts.values(), strict=True):
        assert yaml.load(text, yaml.CSafeLoader) == DEFINITIONS[resource.plural]


def test_every_field_is_there_and_says_what_it_is() -> None:
    for resource in RESOURCES:
        wanted = {
            field.path: field.description
            for field in fields_of(resource.kind)
            if field.path[0] != "metadata"
        }
        found = {
            tuple(key for key in path if key not in CONTENTS.values()): schema
            for path, schema in schemas(resource)
            if path and path[-1] not in CONTENTS.values()
        }
        assert wanted.keys() <= found.keys()
        for path, description in wanted.items():
            assert found[path]["description"].startswith(description)


def test_the_server_fills_in_choices_and_switches_and_the_other_defaults_are_said() -> None:
    flow, *others = RESOURCES
    defaults = {path: schema["default"] for path, schema in schemas(flow) if "default" in schema}
    found = {".".join(path[1:]): value for path, value in defaults.items() if value != {}}
    assert found == SERVER_DEFAULTS
    inside = {path[:-1] for path, value in defaults.items() if value != {} and len(path) > 2}
    assert inside == {path for path, value in defaults.items() if value == {}}
    assert not [path for other in others for path, schema in schemas(other) if "default" in schema]
    descriptions = {path: schema.get("description", "") for path, schema in schemas(flow)}
    assert descriptions["spec", "tasks", "max"].endswith("Default: 8.")
    assert descriptions["spec", "delivery", "mode"].endswith("Default: AtLeastOnce.")
    assert descriptions["spec", "groups", "include"].endswith("Default: [.*].")
    assert "Default" not in descriptions["spec", "startFrom", "timestamp"]


def test_the_shape_is_structural() -> None:
    for path, schema in ALL:
        assert not schema.keys() & {"$ref", "anyOf", "title", "const", "nullable"}, path
        assert ("type" in schema) != bool(schema.get("x-kubernetes-int-or-string")), path
        assert not ("properties" in schema and "additionalProperties" in schema), path


def test_unknown_fields_are_kept_in_what_pods_get_and_in_the_last_valid_spec_only() -> None:
    kept = {path for path, schema in ALL if schema.get("x-kubernetes-preserve-unknown-fields")}
    templates = {
        (*path, "affinity", *field)
        for path in (("spec", "drivers", "podTemplate"), ("spec", "podTemplate"))
        for field in (
            ("nodeAffinity", "requiredDuringSchedulingIgnoredDuringExecution"),
            *(
                (affinity, f"{strength}DuringSchedulingIgnoredDuringExecution", "[items]")
                for affinity in ("nodeAffinity", "podAffinity", "podAntiAffinity")
                for strength in ("required", "preferred")
                if (affinity, strength) != ("nodeAffinity", "required")
            ),
        )
    }
    sources = {("spec", "drivers", "volumes", "[items]", source) for source in ("csi", "projected")}
    assert kept == templates | sources | {("status", "lastValid", "spec")}


def test_lists_are_bounded_and_say_how_they_are_applied() -> None:
    lists = {path: schema for path, schema in ALL if schema.get("type") == "array"}
    assert not [path for path, schema in lists.items() if "maxItems" not in schema]
    kinds = {path: schema["x-kubernetes-list-type"] for path, schema in lists.items()}
    assert {path[-1] for path, kind in kinds.items() if kind == "map"} == {
        "add",
        "conditions",
        "env",
        "offsets",
        "topologySpreadConstraints",
        "volumeMounts",
        "volumes",
    }
    assert {path[-1] for path, kind in kinds.items() if kind == "set"} == {
        "matchLabelKeys",
        "names",
        "parts",
        "remove",
    }
    assert set(kinds.values()) == {"map", "set", "atomic"}


def test_text_that_a_rule_reads_is_bounded() -> None:
    ruled = [(path, schema) for path, schema in ALL if "x-kubernetes-validations" in schema]
    assert not [
        path
        for path, schema in ruled
        if schema["type"] == "string" and not schema.keys() & {"maxLength", "enum", "format"}
    ]


def test_words_of_a_status_are_open_and_those_of_a_spec_are_not() -> None:
    words = [path for path, schema in ALL if "enum" in schema]
    assert words
    assert {path[0] for path in words} == {"spec"}


def test_every_rule_says_what_is_allowed_and_each_but_once() -> None:
    for path, schema in ALL:
        rules = schema.get("x-kubernetes-validations", ())
        assert len({rule["rule"] for rule in rules}) == len(rules), path
        for rule in rules:
            assert list(rule) == [
                key for key in ("rule", "message", "fieldPath", "reason") if key in rule
            ]
            assert rule["message"]
            assert rule["message"][-1] != "."


def test_no_field_is_called_what_yaml_takes_for_a_boolean() -> None:
    """YAML 1.1's, which Go's parsers know: ``n: 1`` in a definition would be the field false."""
    names = {name.lower() for path, _ in ALL for name in path}
    assert not names & {"y", "n", "yes", "no", "on", "off", "true", "false"}


def test_columns_scale_and_selectable_fields_name_fields() -> None:
    for resource in RESOURCES:
        known = {path for path, _ in schemas(resource)} | {("metadata", "creationTimestamp")}
        paths = [column.path for column in resource.columns]
        paths += [*resource.selectable, *(resource.scale or {}).values()]
        for path in paths:
            name = path.replace('[?(@.type=="Ready")]', ".[items]")
            assert tuple(name.removeprefix(".").split(".")) in known, path
