"""What is written out of an object reads back as the same object, with the same fields set."""

from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import yaml
from hypothesis import given
from hypothesis import strategies as st

from headrace.api import MirrorTest, ReplicationFlow, load

LABEL = st.from_regex(r"[a-z0-9]([a-z0-9-]{0,20}[a-z0-9])?", fullmatch=True)
COUNT = st.integers(1, 10**6)
# Names that YAML would read as something else, and expressions full of its own characters.
REGEXES = st.sampled_from([".*", "yes", "7", "1e3", "null", "a: b", "#c", "2026-01-31", "[{]"])
SETTINGS = st.dictionaries(st.sampled_from(["linger.ms", "client.id"]), st.text(max_size=5))


def some_of(**fields: st.SearchStrategy[Any]) -> st.SearchStrategy[dict[str, Any]]:
    return st.fixed_dictionaries({}, optional=fields)


@st.composite
def flows(draw: st.DrawFn) -> ReplicationFlow:
    source, target = draw(st.lists(LABEL, min_size=2, max_size=2, unique=True))
    spec = draw(
        some_of(
            delivery=st.sampled_from(["AtLeastOnce", "ExactlyOnce"]),
            state=st.sampled_from(["Running", "Paused", "Stopped"]),
            tasks=some_of(max=COUNT, movementBudget=st.floats(0, 1)),
            policy=some_of(separator=st.sampled_from([".", "_", "-", "0"])),
            checkpoints=some_of(enabled=st.booleans(), intervalSeconds=COUNT),
            pausedPartitions=st.just([{"topic": "7", "partitions": "0"}]),
        )
    )
    timestamp = draw(st.none() | st.just("2026-01-31T12:00:00.25+01:00"))
    if timestamp:
        spec |= {"startFrom": "Timestamp", "startTimestamp": timestamp}
    spec |= {
        "source": {"alias": source, "bootstrapServers": "a:1", "config": draw(SETTINGS)},
        "target": {"alias": target, "bootstrapServers": "b:2"},
        "topics": {"include": draw(st.lists(REGEXES, min_size=1, max_size=4))},
    }
    return ReplicationFlow.model_validate(head("ReplicationFlow", draw(LABEL)) | {"spec": spec})


@st.composite
def mirror_tests(draw: st.DrawFn) -> MirrorTest:
    bound = draw(some_of(messages=COUNT) | some_of(durationSeconds=COUNT))
    names = draw(some_of(topics=COUNT) | st.just({"names": ["7", "null"]}))
    spec = draw(
        some_of(
            settleSeconds=COUNT,
            budgets=some_of(missing=COUNT, duplicated=COUNT, latencyP99Ms=COUNT),
            load=some_of(messagesPerSecond=COUNT).map(lambda load: load | bound | names),
        )
    )
    spec["flowName"] = draw(LABEL)
    return MirrorTest.model_validate(head("MirrorTest", draw(LABEL)) | {"spec": spec})


def head(kind: str, name: str) -> dict[str, Any]:
    return {"apiVersion": "headrace.dev/v1alpha1", "kind": kind, "metadata": {"name": name}}


def through_a_file(*found: ReplicationFlow | MirrorTest) -> tuple[object, ...]:
    documents = [one.model_dump(mode="json", by_alias=True, exclude_unset=True) for one in found]
    with TemporaryDirectory() as folder:
        file = Path(folder) / "manifest.yaml"
        file.write_text(yaml.safe_dump_all(documents))
        return load([file]).objects


@given(flows(), mirror_tests())
def test_manifests_round_trip(flow: ReplicationFlow, test: MirrorTest):
    read_flow, read_test = through_a_file(flow, test)
    assert (read_flow, read_test) == (flow, test)
    assert isinstance(read_flow, ReplicationFlow)
    assert isinstance(read_test, MirrorTest)
    assert read_flow.spec.model_fields_set == flow.spec.model_fields_set
    assert read_test.spec.load.model_fields_set == test.spec.load.model_fields_set


@given(mirror_tests())
def test_a_test_with_every_default_written_is_the_same(test: MirrorTest):
    document = test.model_dump(mode="json", by_alias=True)
    assert MirrorTest.model_validate(document) == test
