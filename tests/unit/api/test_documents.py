"""Mistakes in files as YAML, which are found before the fields are interpreted."""

from collections.abc import Callable
from pathlib import Path

import pytest
from support.manifests import Say

from headrace.api import InvalidManifest, load

FLOW = """\
apiVersion: headrace.dev/v1beta1
kind: ReplicationFlow
metadata: {name: orders}
spec:
  source: {alias: east, bootstrapServers: east:9092}
  target: {alias: west, bootstrapServers: west:9092}
  topics: {include: [orders]}
"""


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        (
            "a: [",
            "1: is not YAML: while parsing a flow node "
            "expected the node content, but found '<stream end>'",
        ),
        ("a: b\n  c: d", "2: is not YAML: mapping values are not allowed here"),
        ("a: *b", "1: is not YAML: found undefined alias 'b'"),
        ("a: b\nc: \0", "2: is not YAML: character U+0000 is not permitted"),
        ("", " holds no document"),
        ("---\n---\n# nothing\n", " holds no document"),
        ("orders", "1: is no object: it has no fields"),
        ("- a", "1: is no object: it has no fields"),
        ("a: 1\nb: 2\na: 3", "3: a: is there already, in line 1"),
        ("a: {b: 1, b: 2}", "1: a.b: is there already, in line 1"),
        ("a: &a\n  b: *a", "2: a.b: is part of itself"),
        ("a: !secret b", "1: a: has the tag !secret, which is not known here"),
        ("a: !secret {b: c}", "1: a: has the tag !secret, which is not known here"),
        ("a: !!int b", "1: a: is not what the tag tag:yaml.org,2002:int stands for"),
        ("[a]: b", "1: has a key that is not text"),
        ("a: " + "[" * 2000, " is nested too deeply"),
    ],
)
def test_what_is_no_yaml_of_ours(say: Say, text: str, sentence: str) -> None:
    assert say(text) == [sentence]


def test_a_file_that_cannot_be_read(tmp_path: Path) -> None:
    missing, latin = tmp_path / "missing.yaml", tmp_path / "latin.yaml"
    latin.write_bytes("a: ä".encode("latin-1"))
    with pytest.raises(InvalidManifest) as refused:
        load([missing, latin])
    assert str(refused.value).splitlines() == [
        f"{missing}: cannot be read: No such file or directory",
        f"{latin}: cannot be read: it is not UTF-8 text",
    ]


def test_a_folder_means_its_yaml_files_in_order(
    tmp_path: Path, write: Callable[[str, str], Path]
) -> None:
    write("b.yaml", FLOW.replace("name: orders", "name: b"))
    write("a.yml", FLOW.replace("name: orders", "name: a"))
    write("notes.txt", "no manifest")
    assert [flow.metadata.name for flow in load([tmp_path]).flows] == ["a", "b"]


def test_a_folder_without_any(tmp_path: Path) -> None:
    with pytest.raises(InvalidManifest) as refused:
        load([tmp_path])
    assert str(refused.value) == f"{tmp_path}: is a folder without .yaml and .yml files"


def test_a_file_named_twice_is_read_once(tmp_path: Path, write: Callable[[str, str], Path]) -> None:
    file = write("flow.yaml", FLOW)
    assert len(load([file, tmp_path]).flows) == 1


def test_anchors_and_merges(write: Callable[[str, str], Path]) -> None:
    text = """\
apiVersion: headrace.dev/v1beta1
kind: ReplicationFlow
metadata: {name: orders}
spec:
  source: &cluster {alias: east, bootstrapServers: "e:9092", config: &tuned {fetch.min.bytes: 20}}
  target: {<<: *cluster, alias: west, bootstrapServers: "west:9092", config: *tuned}
  topics: {include: [orders]}
"""
    spec = load([write("flow.yaml", text)]).flows[0].spec
    assert spec.target.config == spec.source.config == {"fetch.min.bytes": "20"}
    assert spec.target.alias == "west"


def test_a_merged_value_is_blamed_where_it_is_written(say: Say) -> None:
    text = """\
apiVersion: headrace.dev/v1beta1
kind: ReplicationFlow
metadata: {name: orders}
spec:
  source: &cluster
    alias: east
    bootstrapServers: nowhere
  target:
    <<: *cluster
    alias: west
  topics: {include: [orders]}
"""
    servers = 'got "nowhere", must be host:port, or several of them separated by commas'
    assert say(text) == [
        f"7: spec.source.bootstrapServers: {servers}",
        f"7: spec.target.bootstrapServers: {servers}",
    ]


def test_mistakes_come_in_the_order_of_files_and_lines(write: Callable[[str, str], Path]) -> None:
    first = write("z.yaml", "kind: Flow\n---\nkind: Test\n---\na: [")
    second = write("a.yaml", FLOW.replace("[orders]", '["("]').replace("east:9092", "east"))
    with pytest.raises(InvalidManifest) as refused:
        load([first, second])
    places = [(mistake.file, mistake.line) for mistake in refused.value.mistakes]
    assert places == [(first, 1), (first, 3), (first, 5), (second, 5), (second, 7)]


def test_what_is_yaml_1_1_only_for_pyyaml(write: Callable[[str, str], Path]) -> None:
    """An unquoted timestamp stays text, as kubectl reads it, and a null counts as absent."""
    text = FLOW + "  startFrom: {mode: Timestamp, timestamp: 2026-01-31T12:00:00+01:00}\n  state:\n"
    spec = load([write("flow.yaml", text)]).flows[0].spec
    assert spec.start_from.timestamp is not None
    assert spec.start_from.timestamp.isoformat() == "2026-01-31T12:00:00+01:00"
    assert spec.state == "Running"
    assert "state" not in spec.model_fields_set
