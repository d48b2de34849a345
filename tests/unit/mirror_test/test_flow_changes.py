"""Audits of flows whose copies differ from the source on purpose."""

from typing import Any

import pytest

from headrace.api import FLOW_CHANGES_ANNOTATION, FLOW_LABEL, MirrorTest, ReplicationFlow
from headrace.errors import InvalidSpec
from headrace.mirror_test import FlowChanges, MirrorTestRun, audited_topics, resolve

RENAMES = {"type": "RenameMap", "renames": {"orders": "sales.orders"}}
FILTER = {"headers": {"exclude": [{"name": "test"}]}}
DEAD_LETTERS = {"action": "DeadLetter", "deadLetterTopic": "refused"}


def flow(**spec: Any) -> ReplicationFlow:
    clusters = {
        "source": {"alias": "east", "bootstrapServers": "e:1"},
        "target": {"alias": "west", "bootstrapServers": "w:1"},
        "topics": {"include": ["orders", "users", "bills"]},
    }
    return ReplicationFlow.model_validate({"metadata": {"name": "f"}, "spec": {**clusters, **spec}})


def run(of: ReplicationFlow, **annotations: str) -> MirrorTestRun:
    metadata = {"name": "t", "annotations": annotations}
    test = {"metadata": metadata, "spec": {"flowName": "f", "audit": {}}}
    resolved = resolve(MirrorTest.model_validate(test), of)
    # Jobs get the resolved test as a file.
    text = resolved.model_dump_json(by_alias=True)
    return MirrorTestRun(name="r", test=MirrorTest.model_validate_json(text))


def test_a_flow_that_copies_records_unchanged_has_no_changes() -> None:
    found = run(flow(), **{FLOW_CHANGES_ANNOTATION: "of another flow"})
    assert found.changes == FlowChanges()
    assert FLOW_CHANGES_ANNOTATION not in found.test.metadata.annotations
    assert found.changes.of_records == ""


def test_jobs_get_the_changes_of_the_flow() -> None:
    headers = {"remove": ["trace"], "add": [{"name": "via", "value": "ä"}]}
    audited = flow(recordFilter=FILTER, headers=headers, onRecordError=DEAD_LETTERS)
    found = run(audited).changes
    assert found.record_filter == audited.spec.record_filter
    assert found.headers == audited.spec.headers
    assert found.on_record_error.dead_letter_topic == "refused"
    assert found.replication_policy is None
    others = {run(flow(recordFilter=FILTER)).changes.of_records, run(flow()).changes.of_records}
    assert found.of_records not in others
    assert len(others) == 2


def test_a_load_test_names_only_changes_of_headers() -> None:
    test = MirrorTest.model_validate({"metadata": {"name": "t"}, "spec": {"flowName": "f"}})
    resolved = resolve(test, flow(recordFilter=FILTER))
    assert resolved.metadata.annotations == {FLOW_LABEL: "f"}
    changing = flow(recordFilter=FILTER, headers={"remove": ["trace"]})
    assert FlowChanges.of_test(resolve(test, changing)) == FlowChanges(
        headers=changing.spec.headers
    )


def test_renamed_topics_are_compared_with_their_copies() -> None:
    found = audited_topics(
        run(flow(replicationPolicy=RENAMES)),
        {"orders": 1, "users": 1},
        # ``orders`` is no copy, because the flow renames the topic of that name.
        {"sales.orders": 1, "users": 1, "orders": 1, "bills": 1},
    )
    assert [(t.source, t.target, t.source_partitions) for t in found] == [
        ("bills", "bills", 0),
        ("orders", "sales.orders", 1),
        ("users", "users", 1),
    ]


def test_the_dead_letter_topic_is_no_copy() -> None:
    audited = flow(replicationPolicy={"type": "Identity"}, onRecordError=DEAD_LETTERS)
    found = audited_topics(run(audited), {"orders": 1}, {"orders": 1, "refused": 1})
    assert [topic.target for topic in found] == ["orders"]


def test_a_damaged_annotation_is_named() -> None:
    test = run(flow(recordFilter=FILTER)).test
    metadata = test.metadata.model_copy(update={"annotations": {FLOW_CHANGES_ANNOTATION: "{"}})
    damaged = MirrorTestRun(name="r", test=test.model_copy(update={"metadata": metadata}))
    with pytest.raises(InvalidSpec, match=r"t: metadata\.annotations\.headrace\.dev/flow-changes"):
        _ = damaged.changes
