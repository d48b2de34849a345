"""Configurations of MirrorMaker 2 and of Strimzi become flows, and nothing is dropped silently.

``HEADRACE_GOLDEN=write pytest tests/unit/convert`` writes the expected output.
"""

import os
from pathlib import Path
from typing import Any

import pytest

from headrace.cli.main import main
from headrace.convert import Converted, read, write
from headrace.errors import InvalidSpec

HERE = Path(__file__).parent
INPUTS = sorted((HERE / "inputs").iterdir())
TWO = "clusters = a, b\na.bootstrap.servers = a:1\nb.bootstrap.servers = b:1\n"
ONE_WAY = f"{TWO}a->b.enabled = true\n"
STRIMZI = """\
apiVersion: kafka.strimzi.io/v1
kind: KafkaMirrorMaker2
metadata: {name: mirror}
spec:
  target: {alias: b, bootstrapServers: "b:1"}
  mirrors:
  - source: {alias: a, bootstrapServers: "a:1"}
"""


def converted(text: str, file: str = "in") -> list[Converted]:
    return read(Path(file), text)


def spec_of(text: str) -> dict[str, Any]:
    (found,) = converted(text)
    spec: dict[str, Any] = found.document["spec"]
    return spec


def noted(text: str) -> dict[str, str]:
    (found,) = converted(text)
    return {note.setting: note.sentence for note in found.notes}


@pytest.mark.parametrize("file", INPUTS, ids=[file.name for file in INPUTS])
def test_an_input_becomes_manifests_that_validate_accepts(
    file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["convert", str(file)]) == 0
    out, notes = capsys.readouterr()
    golden = HERE / "golden" / f"{file.name}.yaml"
    if os.environ.get("HEADRACE_GOLDEN") == "write":
        golden.write_text(out)
    assert out == golden.read_text()
    assert all(line.startswith(f"{file}:") for line in notes.splitlines())
    made = tmp_path / "made.yaml"
    made.write_text(out)
    assert main(["validate", str(made)]) == 0


@pytest.mark.parametrize(
    ("setting", "field"),
    [
        ("tasks.max = 6", {"tasks": {"max": 6}}),
        ("replication.factor = 3", {}),
        ("groups = ^$", {"groups": {"include": ["^$"]}}),
        ("topics.blacklist = tmp-.*", {"topics": {"include": [".*"], "exclude": ["tmp-.*"]}}),
        ("topics = a, b-.*", {"topics": {"include": ["a", "b-.*"]}}),
        ("sync.topic.configs.interval.seconds = -1", {"topicConfigs": {"enabled": False}}),
        ("offset-syncs.topic.location = source", {"offsetSyncs": {"location": "Source"}}),
        ("exactly.once.source.support = enabled", {"delivery": {"mode": "ExactlyOnce"}}),
        ("emit.heartbeats.interval.seconds = 5", {"heartbeats": {"intervalSeconds": 5}}),
        ("a.consumer.auto.offset.reset = latest", {"startFrom": {"mode": "Latest"}}),
        ("a->b.consumer.auto.offset.reset = latest", {"startFrom": {"mode": "Latest"}}),
        ("replication.policy.separator = _", {"replicationPolicy": {"separator": "_"}}),
        (
            "replication.policy.class = io.strimzi.kafka.connect.mirror.IdentityReplicationPolicy",
            {"replicationPolicy": {"type": "Identity"}},
        ),
    ],
)
def test_settings_become_fields(setting: str, field: dict[str, Any]) -> None:
    spec = spec_of(f"{ONE_WAY}{setting}\n")
    factor = spec["target"].pop("replicationFactor", None)
    assert factor == (3 if "factor" in setting else None)
    base = {
        "source": {"alias": "a", "bootstrapServers": "a:1"},
        "target": {"alias": "b", "bootstrapServers": "b:1"},
        "topics": {"include": [".*"]},
    }
    assert spec == base | field


def test_a_number_of_tasks_below_one_is_noted_and_not_set() -> None:
    text = f"{ONE_WAY}tasks.max = 0\n"
    assert "tasks" not in spec_of(text)
    assert "spec.tasks.max is at least 1" in noted(text)["tasks.max"]


def test_a_direction_wins_over_settings_of_all_directions() -> None:
    assert spec_of(f"{ONE_WAY}tasks.max = 2\na->b.tasks.max = 5\n")["tasks"] == {"max": 5}


@pytest.mark.parametrize(
    "setting",
    [
        "offset.lag.max",
        "a.consumer.max.poll.records",
        "b.producer.linger.ms",
        "listeners",
        "offset.storage.replication.factor",
        "heartbeats.topic.replication.factor",
        "transforms.x.type",
        "nobody.has.heard.of.it",
        "b->a.topics",
    ],
)
def test_a_setting_without_a_counterpart_is_listed(setting: str) -> None:
    assert noted(f"{ONE_WAY}{setting} = 7\n")[setting]


def test_a_policy_that_headrace_does_not_have_stops_the_flow() -> None:
    text = f"{ONE_WAY}replication.policy.class = com.example.Mine\n"
    assert spec_of(text)["state"] == "Stopped"
    assert "com.example.Mine" in noted(text)["replication.policy.class"]


def test_secrets_are_named_and_passwords_are_not_printed() -> None:
    module = "org.apache.kafka.common.security.scram.ScramLoginModule required"
    text = (
        f"{ONE_WAY}b.security.protocol = SASL_SSL\nb.sasl.mechanism = SCRAM-SHA-512\n"
        f'b.sasl.jaas.config = {module} username="me" password="hunter2";\n'
        "b.ssl.truststore.location = /trust.jks\nb.ssl.truststore.password = hunter3\n"
    )
    found = converted(text)
    assert found[0].document["spec"]["target"] | {"alias": "", "bootstrapServers": ""} == {
        "alias": "",
        "bootstrapServers": "",
        "tls": {"trustedCertificates": [{"secretName": "b-ca", "key": "ca.crt"}]},
        "authentication": {
            "type": "ScramSha512",
            "username": "me",
            "password": {"secretName": "b-credentials", "key": "password"},
        },
    }
    assert {"Secret b-ca", "Secret b-credentials"} <= noted(text).keys()
    assert "hunter" not in write(found)


@pytest.mark.parametrize(
    "setting",
    [
        "b.security.protocol = SASL_PLAINTEXT",
        "b.security.protocol = SASL_SSL\nb.sasl.mechanism = X",
    ],
)
def test_a_login_that_is_not_converted_stops_the_flow(setting: str) -> None:
    assert spec_of(f"{ONE_WAY}{setting}\n")["state"] == "Stopped"


def test_placeholders_stay_and_the_flow_is_stopped() -> None:
    spec = spec_of(f"{ONE_WAY}topics = ${{env:TOPICS}}\n")
    assert (spec["topics"]["include"], spec["state"]) == (["${env:TOPICS}"], "Stopped")


def test_a_backslash_is_read_as_java_reads_it() -> None:
    text = f"{ONE_WAY}topics = orders\\..*, sales\\\\..*\n"
    assert spec_of(text)["topics"]["include"] == ["orders..*", "sales\\..*"]
    assert "MirrorMaker 2 reads orders..*, sales\\..*" in noted(text)["topics"]


def test_lines_continue_and_spaces_surround_the_arrow() -> None:
    text = f"{TWO}a -> b.enabled = true\na -> b.topics = one, \\\n    two\n"
    assert spec_of(text)["topics"]["include"] == ["one", "two"]


def test_another_file_can_be_included(tmp_path: Path) -> None:
    (tmp_path / "more.properties").write_text("tasks.max = 3\n")
    file = tmp_path / "mm2.properties"
    (found,) = read(file, f"{ONE_WAY}include = more.properties\n")
    assert found.document["spec"]["tasks"] == {"max": 3}


def test_a_setting_of_an_included_file_is_named_with_that_file(tmp_path: Path) -> None:
    file, more = tmp_path / "mm2.properties", tmp_path / "more.properties"
    text = f"{ONE_WAY}include = more.properties\n"
    more.write_text("\n\noffset.lag.max = 3\n")
    (found,) = read(file, text)
    (note,) = found.notes
    assert str(note).startswith(f"offset.lag.max ({more}, line 3): ")
    more.write_text("\n\ntasks.max = many\n")
    with pytest.raises(InvalidSpec) as refused:
        read(file, text)
    assert str(refused.value).startswith(f"{more}:3: tasks.max: got 'many'")


def test_each_mirror_of_a_strimzi_object_becomes_a_flow() -> None:
    text = STRIMZI + '  - source: {alias: c, bootstrapServers: "c:1"}\n    topicsPattern: "x"\n'
    names = [one.document["metadata"]["name"] for one in converted(text)]
    assert names == ["mirror-a", "mirror-c"]


def test_settings_of_strimzi_without_a_counterpart_are_listed() -> None:
    text = STRIMZI + "  template: {serviceAccount: {metadata: {}}}\n  colour: red\n"
    notes = noted(text)
    assert notes["colour"] == "headrace has no counterpart"
    assert notes["template.serviceAccount.metadata"]


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("a.enabled = true\n", "in:1: has no setting `clusters`"),
        (TWO, "in:1: no direction is enabled"),
        ("clusters = a, b\na->b.enabled = true\n", "in:2: has no setting a.bootstrap.servers"),
        (f"{ONE_WAY}include = absent.properties\n", "in:5: include names absent.properties, which"),
        (f"{ONE_WAY}tasks.max = many\n", "in:5: tasks.max: got 'many', must be a whole number"),
        (f"{ONE_WAY}emit.checkpoints.enabled = maybe\n", "in:5: emit.checkpoints.enabled: got"),
        (f"{ONE_WAY}topics = (a\n", "in:5: topics: (a is no regular expression"),
        (f"{ONE_WAY}topics = [a-z&&[^b]]\n", "in:5: topics: [a-z&&[^b]] has an intersection"),
        (
            "clusters = A_1, b\nA_1->b.enabled = true\n",
            "in:2: alias A_1: headrace supports aliases of",
        ),
        (STRIMZI.partition("  mirrors")[0], "in:4: KafkaMirrorMaker2: has no mirrors"),
        (
            "apiVersion: kafka.strimzi.io/v1\nkind: Kafka\nmetadata: {name: a}\n",
            'in:1: apiVersion: got "kafka.strimzi.io/v1", kind "Kafka", is not converted',
        ),
        (
            STRIMZI.replace('source: {alias: a, bootstrapServers: "a:1"}', "sourceCluster: z"),
            "in:7: KafkaMirrorMaker2: spec.clusters has no cluster with the alias z",
        ),
        (
            STRIMZI.replace('{alias: a, bootstrapServers: "a:1"}', "a"),
            "in:7: spec.mirrors[0].source: got text, must be a mapping",
        ),
        (
            STRIMZI.replace("alias: a,", "alias: a, tls: {trustedCertificates: [{}]},"),
            "in:7: spec.mirrors[0].source.tls.trustedCertificates[0].secretName: is required",
        ),
        (f"{STRIMZI}\x00", "in:8: is not YAML: character U+0000 is not permitted"),
    ],
)
def test_wrong_input_is_refused_with_its_line(text: str, sentence: str) -> None:
    with pytest.raises(InvalidSpec) as refused:
        converted(text)
    assert str(refused.value).startswith(sentence)
