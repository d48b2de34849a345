"""A written object reads back as the same object, with the same fields set."""

from pathlib import Path
from tempfile import TemporaryDirectory

import yaml
from hypothesis import given
from support.manifests import Document, flows, mirror_tests

from headrace.api import MirrorTest, ReplicationFlow, load


def through_a_file(*found: ReplicationFlow | MirrorTest) -> tuple[object, ...]:
    documents = [one.model_dump(mode="json", by_alias=True, exclude_unset=True) for one in found]
    with TemporaryDirectory() as folder:
        file = Path(folder) / "manifest.yaml"
        file.write_text(yaml.safe_dump_all(documents))
        return load([file]).objects


@given(flows(), mirror_tests())
def test_manifests_round_trip(a_flow: Document, a_test: Document) -> None:
    flow, test = ReplicationFlow.model_validate(a_flow), MirrorTest.model_validate(a_test)
    read_flow, read_test = through_a_file(flow, test)
    assert (read_flow, read_test) == (flow, test)
    assert isinstance(read_flow, ReplicationFlow)
    assert isinstance(read_test, MirrorTest)
    assert read_flow.spec.model_fields_set == flow.spec.model_fields_set
    assert read_test.spec.load.model_fields_set == test.spec.load.model_fields_set


@given(mirror_tests())
def test_a_test_with_every_default_written_is_the_same(a_test: Document) -> None:
    test = MirrorTest.model_validate(a_test)
    assert MirrorTest.model_validate(test.model_dump(mode="json", by_alias=True)) == test
