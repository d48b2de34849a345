"""Imports from MirrorMaker 2: refusals, and the plan after a kill.

tests/integration/test_take_turns.py has a real MirrorMaker 2. Here its topics are written by hand.
"""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from support.flows import FlowRun, manifest, spec
from support.records import Record, make_topic, numbered, produce, read, unique

from headrace.api import TopicPartition, connect_offsets_topic, offset_syncs_topic
from headrace.cli.main import main
from headrace.replication import ConnectPartition, encode_position
from headrace.sandbox import SandboxCluster

Say = Callable[..., str]


@pytest.fixture
def say(capsys: pytest.CaptureFixture[str]) -> Say:
    def say(*words: str, code: int = 0) -> str:
        assert main(list(words)) == code
        printed = capsys.readouterr()
        return printed.out + printed.err

    return say


def test_mistakes_are_named_and_records_of_a_killed_mirror_maker_are_counted(
    east: SandboxCluster, west: SandboxCluster, tmp_path: Path, say: Say
) -> None:
    alias, other = unique("mm2-east"), unique("mm2-west")
    topic = make_topic(spec(east), unique("imported"), 2)
    produce(spec(east), topic, numbered(40, 2))
    copy = make_topic(spec(west), f"{alias}.{topic}", 2)
    source = read(spec(east), topic)
    produce(spec(west), copy, [*source[0][:8], *source[1]])
    offsets = make_topic(
        spec(west), connect_offsets_topic(alias), 1, **{"cleanup.policy": "compact"}
    )
    make_topic(spec(east), offset_syncs_topic(other, "."), 1)

    def flow(source_alias: str, target_alias: str) -> str:
        document = manifest(alias, east, west, topic)
        document["spec"]["source"]["alias"] = source_alias
        document["spec"]["target"]["alias"] = target_alias
        FlowRun.write(file := tmp_path / f"{source_alias}-{target_alias}.yaml", [document])
        return str(file)

    def planned(source_alias: str = alias, target_alias: str = other, code: int = 0) -> str:
        file = flow(source_alias, target_alias)
        dry = ("--dry-run", "--quiet-seconds", "1", "-o", "json")
        return say("flow", "import", "mm2", "-f", file, *dry, code=code)

    why = planned(code=3)
    assert f"{offsets} on {other}" in why
    assert "contains no offsets" in why
    for at, offset in {TopicPartition(topic, 0): 5, TopicPartition(topic, 1): 20}.items():
        key, value = ConnectPartition("mm2", alias, at).key(), encode_position(offset)
        produce(spec(west), offsets, [Record(0, key, value, (), 1)])
    why = planned(source_alias="mm2-est", code=3)
    assert f"{alias}" in why
    assert "spec.source.alias is mm2-est, and must be the alias that MirrorMaker 2 has" in why
    why = planned(target_alias="mm2-vest", code=3)
    assert f"{other}" in why
    assert "spec.target.alias is mm2-vest, and must be the alias that MirrorMaker 2 has" in why
    partitions: list[dict[str, Any]] = json.loads(planned())["partitions"]
    assert [(one["goesOnAt"], one["alreadyOnTarget"]) for one in partitions] == [(5, 3), (20, 0)]

    (checked,) = json.loads(say("check", flow(alias, other), "-o", "json"))
    (found,) = [one["message"] for one in checked["findings"] if one["check"] == "data"]
    assert f"`headrace flow import mm2 {alias}` before the flow starts" in found
    assert "delete" not in found
