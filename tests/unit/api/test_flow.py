"""Defaults of ReplicationFlow, and the errors for invalid flows."""

import pytest
import yaml
from pydantic import ValidationError
from support.manifests import EAST, WEST, Document, Say, flow

from headrace.api import ReplicationFlow


def test_defaults_are_those_of_the_design() -> None:
    spec = ReplicationFlow.model_validate(flow()).spec
    written = spec.model_dump(mode="json", by_alias=True, exclude={"source", "target", "drivers"})
    defaults = """
    topics: {include: [orders], exclude: ['mm2.*\\.internal', '.*\\.replica', '__.*']}
    groups: {include: [".*"], exclude: ["console-consumer-.*", "connect-.*", "__.*"]}
    recordFilter: null
    headers: null
    replicationPolicy: {type: Default, separator: ".", renames: null}
    delivery: {mode: AtLeastOnce, commitIntervalMs: 1000}
    offsets: {mode: Translated, holes: Markers}
    batchVerification: Sampled
    startFrom: {mode: Earliest, timestamp: null, offsets: null}
    bandwidth: null
    tasks: {max: 8, standbys: 0, assignor: sticky, movementBudget: 0.1}
    discovery: {topicsSeconds: 10, groupsSeconds: 10}
    topicConfigs:
      enabled: true
      intervalSeconds: 60
      exclude:
      - follower\\.replication\\.throttled\\.replicas
      - leader\\.replication\\.throttled\\.replicas
      - message\\.timestamp\\.difference\\.max\\.ms
      - message\\.timestamp\\.before\\.max\\.ms
      - message\\.timestamp\\.after\\.max\\.ms
      - message\\.timestamp\\.type
      - unclean\\.leader\\.election\\.enable
      - min\\.insync\\.replicas
    topicDeletion: {mode: Disabled, delaySeconds: 3600, maxTopics: 5}
    acls: {enabled: false, intervalSeconds: 600}
    checkpoints: {enabled: true, intervalSeconds: 60, applyToGroups: false}
    heartbeats: {enabled: true, intervalSeconds: 1, onSource: true}
    offsetSyncs: {location: Target}
    onDataLoss: Fail
    onRecordError: {action: Fail, deadLetterTopic: null}
    state: Running
    sourceWatch: {enabled: false, intervalSeconds: 5}
    pausedPartitions: []
    """
    assert written == yaml.safe_load(defaults)
    assert spec.target.replication_factor is None
    assert (spec.target.compression.type, spec.target.compression.level) == ("Source", None)
    assert (spec.drivers.replicas, spec.drivers.lease_seconds) == (2, 6)


def test_what_a_user_set_stays_known() -> None:
    spec = ReplicationFlow.model_validate(flow(tasks={"max": 8}, state=None)).spec
    assert spec.model_fields_set == {"source", "target", "topics", "tasks"}
    assert spec.tasks.model_fields_set == {"max"}


@pytest.mark.parametrize(
    ("spec", "sentence"),
    [
        (
            {"target": WEST | {"alias": "east"}},
            'spec.target.alias: got "east", must differ from spec.source.alias',
        ),
        (
            {
                "source": EAST | {"bootstrapServers": "a:1, B:2"},
                "target": WEST | {"bootstrapServers": "b:2,A:1"},
            },
            'spec.target.bootstrapServers: got "b:2,A:1", must differ from '
            "spec.source.bootstrapServers: a mirror joins two clusters",
        ),
        ({"topics": {}}, "spec.topics.include: is required"),
        ({"topics": {"include": []}}, "spec.topics.include: must not be empty"),
        (
            {"topics": {"include": ["orders", "a(b"]}},
            'spec.topics.include[1]: got "a(b", must be a regular expression: '
            "missing ), unterminated subpattern at position 1",
        ),
        (
            {"topics": {"include": ["a"], "exclude": ["*"]}},
            'spec.topics.exclude[0]: got "*", must be a regular expression: '
            "nothing to repeat at position 0",
        ),
        (
            {"groups": {"include": ["a{99999999999999}"]}},
            'spec.groups.include[0]: got "a{99999999999999}", must be a regular expression: '
            "the repetition number is too large",
        ),
        *(
            (
                {"offsets": {"mode": "Preserved"}, field: {inner: value} if inner else value},
                f'spec.{field}{"." if inner else ""}{inner}: got "{value}", must not be {words} '
                f"with offsets.mode: Preserved: {why}",
            )
            for field, inner, value, words, why in [
                (
                    "delivery",
                    "mode",
                    "ExactlyOnce",
                    "ExactlyOnce",
                    "the markers of its transactions take offsets; nothing is doubled with "
                    "AtLeastOnce either",
                ),
                (
                    "onRecordError",
                    "action",
                    "Skip",
                    "Skip or DeadLetter",
                    "a record that is left out is not preserved",
                ),
                (
                    "onDataLoss",
                    "",
                    "Continue",
                    "Restart or Continue",
                    "both leave the target with other offsets than the source",
                ),
                (
                    "startFrom",
                    "mode",
                    "Latest",
                    "Latest or Timestamp or Offsets",
                    "copies begin with the first offset that the source has",
                ),
            ]
        ),
        (
            {
                "offsets": {"mode": "Preserved"},
                "recordFilter": {"headers": {"exclude": [{"name": "test"}]}},
            },
            "spec.recordFilter: does not go with offsets.mode: Preserved: a record that is left "
            "out is not preserved",
        ),
        (
            {"offsets": {"mode": "Preserved"}, "headers": {"remove": ["trace"]}},
            "spec.headers: does not go with offsets.mode: Preserved: a take-over compares the "
            "target's records with the source's",
        ),
        (
            {"offsets": {"mode": "Preserved"}, "target": WEST | {"compression": {"type": "Zstd"}}},
            'spec.target.compression.type: got "Zstd", must not be None or Gzip or Snappy or '
            "Lz4 or Zstd with offsets.mode: Preserved: batches are appended as the source has them",
        ),
        (
            {"target": WEST | {"compression": {"type": "Brotli"}}},
            'spec.target.compression.type: got "Brotli", must be Source, None, Gzip, Snappy, Lz4 '
            "or Zstd",
        ),
        *(
            (
                {"target": WEST | {"compression": {"type": codec, "level": level}}},
                f"spec.target.compression.level: got {level}, {allowed}",
            )
            for codec, level, allowed in [
                ("Gzip", 10, "must be at most 9 with type Gzip"),
                ("Lz4", 13, "must be at most 12 with type Lz4"),
                ("Zstd", 23, "must be at most 22 with type Zstd"),
                ("Zstd", 0, "must be at least 1"),
                *(
                    (
                        codec,
                        1,
                        "is allowed only with type Gzip, Lz4 or Zstd: the other types have no "
                        "levels",
                    )
                    for codec in ("Source", "None", "Snappy")
                ),
            ]
        ),
        (
            {"headers": {"add": [{"name": "via"}]}},
            "spec.headers.add[0].value: is required",
        ),
        (
            {"headers": {"remove": [""]}},
            'spec.headers.remove[0]: got "", must not be empty',
        ),
        (
            {"headers": {"add": [{"name": "a" * 256, "value": ""}]}},
            f'spec.headers.add[0].name: got "{"a" * 75}...", must have at most 255 characters',
        ),
        (
            {"headers": {"remove": ["a"] * 21}},
            "spec.headers.remove: must have at most 20 items",
        ),
        (
            {"offsets": {"holes": "Copies"}},
            'spec.offsets.holes: got "Copies", goes with offsets.mode: Preserved only: copies '
            "with translated "
            "offsets have no holes to fill",
        ),
        (
            {"offsets": {"mode": "Preserved", "holes": "Nothing"}},
            'spec.offsets.holes: got "Nothing", must be Markers, AbortedFillers or Copies',
        ),
        (
            {"startFrom": {"mode": "Timestamp"}},
            "spec.startFrom.timestamp: is required with mode: Timestamp",
        ),
        (
            {"startFrom": {"timestamp": "2026-01-31T12:00:00Z"}},
            'spec.startFrom.timestamp: got "2026-01-31T12:00:00Z", goes with mode: Timestamp only',
        ),
        (
            {"startFrom": {"mode": "Offsets"}},
            "spec.startFrom.offsets: is required with mode: Offsets",
        ),
        (
            {"startFrom": {"offsets": [{"topic": "a", "partition": 0, "offset": 1}]}},
            "spec.startFrom.offsets: goes with mode: Offsets only",
        ),
        (
            {
                "startFrom": {
                    "mode": "Offsets",
                    "offsets": [{"topic": "a", "partition": 0, "offset": -1}],
                }
            },
            "spec.startFrom.offsets[0].offset: got -1, must be at least 0",
        ),
        *(
            (
                {"startFrom": {"mode": "Timestamp", "timestamp": wrong}},
                f"spec.startFrom.timestamp: got {shown}, "
                "must be a moment in RFC 3339, like 2026-01-31T12:00:00Z",
            )
            for wrong, shown in [
                ("2026-01-31", '"2026-01-31"'),
                ("2026-01-31T12:00:00", '"2026-01-31T12:00:00"'),
                ("2026-02-31T12:00:00Z", '"2026-02-31T12:00:00Z"'),
                (1769860800, "1769860800"),
            ]
        ),
        (
            {"onRecordError": {"action": "DeadLetter"}},
            "spec.onRecordError.deadLetterTopic: is required with action: DeadLetter",
        ),
        (
            {"onRecordError": {"deadLetterTopic": "dead"}},
            'spec.onRecordError.deadLetterTopic: got "dead", goes with action: DeadLetter only',
        ),
        (
            {"onRecordError": {"action": "DeadLetter", "deadLetterTopic": "a b"}},
            'spec.onRecordError.deadLetterTopic: got "a b", '
            "must be a topic's name: letters, digits, '.', '_', '-'",
        ),
        (
            {"replicationPolicy": {"type": "a b"}},
            'spec.replicationPolicy.type: got "a b", '
            "must be Default, Identity, RenameMap or a plug-in's name",
        ),
        (
            {"replicationPolicy": {"type": "RenameMap"}},
            "spec.replicationPolicy.renames: is required with type: RenameMap",
        ),
        (
            {"replicationPolicy": {"renames": {"orders": "sales"}}},
            "spec.replicationPolicy.renames: goes with type: RenameMap only",
        ),
        *(
            (
                {
                    "topics": {"include": ["orders", "users", "heartbeats", "__a"]},
                    "replicationPolicy": {"type": "RenameMap", "renames": renames},
                    "onRecordError": {"action": "DeadLetter", "deadLetterTopic": "dead"},
                },
                sentence,
            )
            for renames, sentence in [
                (
                    {"orders": "users"},
                    'spec.replicationPolicy.renames.orders: got "users", must be another name: '
                    "the source's "
                    "users is also copied, and keeps its name; rename it, or exclude it in "
                    "spec.topics",
                ),
                (
                    {"order": "sales"},
                    'spec.replicationPolicy.renames.order: got "sales", is not copied: '
                    "spec.topics does not "
                    "match order",
                ),
                (
                    {"orders": "dead"},
                    'spec.replicationPolicy.renames.orders: got "dead", must be another name: '
                    "dead is "
                    "spec.onRecordError.deadLetterTopic",
                ),
                (
                    {"orders": "east.heartbeats"},
                    'spec.replicationPolicy.renames.orders: got "east.heartbeats", must be '
                    "another name: "
                    "east.heartbeats is the copy of the source's heartbeats",
                ),
                (
                    {"orders": "mm2-sales.internal"},
                    'spec.replicationPolicy.renames.orders: got "mm2-sales.internal", must be no '
                    "internal topic, "
                    "such as those that begin with two underscores or a dot, and mm2*.internal",
                ),
                (
                    {"heartbeats": "beats"},
                    'spec.replicationPolicy.renames.heartbeats: got "beats", must not be '
                    "heartbeats: these "
                    "have a name of their own on the target",
                ),
                (
                    {"orders": "a b"},
                    'spec.replicationPolicy.renames.orders: got "a b", '
                    "must be a topic's name: letters, digits, '.', '_', '-'",
                ),
            ]
        ),
        (
            {"replicationPolicy": {"separator": "/"}},
            'spec.replicationPolicy.separator: got "/", '
            "must be legal in a topic's name: letters, digits, '.', '_', '-'",
        ),
        (
            {"drivers": {"resources": {"limits": {"memory": "1 GiB"}}}},
            'spec.drivers.resources.limits.memory: got "1 GiB", '
            "must be a quantity as Kubernetes writes it, like 500m, 2 or 1Gi",
        ),
        (
            {"drivers": {"podTemplate": {"tolerations": [{"keys": "a"}]}}},
            "spec.drivers.podTemplate.tolerations[0].keys: unknown field; "
            "did you mean spec.drivers.podTemplate.tolerations[0].key?",
        ),
        (
            {"drivers": {"leaseSeconds": 2}},
            "spec.drivers.leaseSeconds: got 2, must be at least 3",
        ),
        (
            {"pausedPartitions": [{"topic": "orders", "partitions": "3-0"}]},
            'spec.pausedPartitions[0].partitions: got "3-0", '
            'must be partition numbers like "0-3,7": 3-0 runs backwards',
        ),
        (
            {"pausedPartitions": [{"topic": "orders", "partitions": ""}]},
            'spec.pausedPartitions[0].partitions: got "", must be partition numbers like "0-3,7"',
        ),
        (
            {"pausedPartitions": [{"topic": "..", "partitions": "0"}]},
            'spec.pausedPartitions[0].topic: got "..", '
            "must be a topic's name: letters, digits, '.', '_', '-'",
        ),
    ],
)
def test_the_sentence(say: Say, spec: Document, sentence: str) -> None:
    assert [message.partition(" ")[2] for message in say(flow(**spec))] == [sentence]


def test_a_name_leaves_room_for_those_of_its_children(say: Say) -> None:
    (message,) = say(flow("x" * 53))
    assert message.endswith("must have at most 52 characters: what belongs to it is named after it")


def test_conditions_of_other_tools_are_not_read() -> None:
    theirs = {"type": "example.com/Approved", "status": "True", "reason": "Sunny"}
    ours = {"type": "Ready", "status": "True", "reason": "Running"}
    document = flow() | {"status": {"conditions": [theirs, ours]}}
    status = ReplicationFlow.model_validate(document).status
    assert status
    assert [condition.type for condition in status.conditions] == ["Ready"]


def test_rules_between_fields_are_all_said(say: Say) -> None:
    wrong = flow(
        target=WEST | {"alias": "east"},
        offsets={"mode": "Preserved"},
        startFrom={"mode": "Latest"},
        onDataLoss="Continue",
    )
    assert len(say(wrong)) == 3


def test_a_partition_has_one_start_offset(say: Say) -> None:
    twice = [{"topic": "a", "partition": 3, "offset": offset} for offset in (1, 2)]
    sentences = say(flow(startFrom={"mode": "Offsets", "offsets": twice}))
    assert [sentence.partition(" ")[2] for sentence in sentences] == [
        f"spec.startFrom.offsets[{index}]: must list partition a-3 only once" for index in (0, 1)
    ]


def test_two_topics_that_would_be_one_are_both_named() -> None:
    renames = {"orders": "sales", "users": "sales"}
    document = flow(
        topics={"include": [".*"]}, replicationPolicy={"type": "RenameMap", "renames": renames}
    )
    with pytest.raises(ValidationError) as wrong:
        ReplicationFlow.model_validate(document)
    assert [(one["loc"][-1], one["msg"]) for one in wrong.value.errors()] == [
        (topic, "must be another name: orders and users would be one topic") for topic in renames
    ]


def test_topics_may_exchange_their_names() -> None:
    renames = {"orders": "users", "users": "orders"}
    document = flow(
        topics={"include": [".*"]}, replicationPolicy={"type": "RenameMap", "renames": renames}
    )
    assert ReplicationFlow.model_validate(document).spec.replication_policy.renames == renames
