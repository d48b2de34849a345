"""Defaults are a promise: an upgrade changes none under a running flow.

``HEADRACE_GOLDEN=write pytest tests/unit/api`` writes them, including the defaults of new fields. A
changed default needs a line in the changelog that says how a user keeps the previous behaviour.
"""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from support.manifests import Document, flow, mirror_test

from headrace.api import MirrorTest, ReplicationFlow

GOLDEN = Path(__file__).parent / "golden"


@pytest.mark.parametrize(
    ("kind", "smallest"), [(ReplicationFlow, flow()), (MirrorTest, mirror_test())]
)
def test_defaults_are_as_they_were_promised(
    kind: type[ReplicationFlow] | type[MirrorTest], smallest: Document
) -> None:
    spec = kind.model_validate(smallest).model_dump(mode="json", by_alias=True)["spec"]
    given = {field: value for field, value in spec.items() if field not in smallest["spec"]}
    page = GOLDEN / f"{kind.__name__}.yaml"
    if os.environ.get("HEADRACE_GOLDEN") == "write":
        page.parent.mkdir(exist_ok=True)
        page.write_text(yaml.safe_dump(given, sort_keys=True))
    promised = dict(leaves(yaml.safe_load(page.read_text())))
    assert promised.items() <= dict(leaves(given)).items()


def leaves(value: Any, path: str = "") -> Iterator[tuple[str, str]]:
    """Yield each field by its path, with its value as text."""
    if isinstance(value, dict) and value:
        for key, inner in value.items():
            yield from leaves(inner, f"{path}.{key}")
    else:
        yield path, repr(value)
