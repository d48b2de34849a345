"""Audits of real topics on real brokers, with real Spark: each difference is found and named."""

import hashlib
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import yaml
from confluent_kafka.admin import AdminClient
from support.flows import FlowRun, spec
from support.flows import manifest as flow_manifest
from support.patience import WITHIN_S
from support.records import (
    Record,
    delete_records,
    has_all_markers,
    make_topic,
    numbered,
    produce,
    produce_with,
    unique,
)
from support.scenes import WaitUntil
from support.schema_registry import framed
from support.verifying import Verified, junit_outcomes, result_in, verified, verify_command

from headrace.api import MirrorTest, audits_topic
from headrace.cli.main import main
from headrace.control import control
from headrace.errors import GaveUp
from headrace.kafka import Admin, CompactedTopic
from headrace.mirror_test import Exclusion, MirrorTestRun, Result, audited_topics, documents
from headrace.sandbox import SandboxCluster
from headrace_spark.audit import frontier, ranges

RECORDS, PARTITIONS = 60, 2
Log = list[Record]


@dataclass(frozen=True)
class Case:
    """A topic, and what its mirror makes of it."""

    source: Log
    target: Log
    found: dict[str, int] = field(default_factory=dict)
    """Records of each class that the audit has to find; of no other class there are any."""
    differs: str = ""
    excluded: int = 0
    config: dict[str, str] = field(default_factory=dict)
    target_config: dict[str, str] = field(default_factory=dict)


def log() -> Log:
    """Return records of two partitions, with keys that recur."""
    return [one._replace(key=b"key-%d" % (n % 7)) for n, one in enumerate(numbered(RECORDS, 2))]


def marked(records: Log, name: str) -> Log:
    """Return the records with a header that no other topic has."""
    return [one._replace(headers=(("case", name.encode()), *one.headers)) for one in records]


def changed(place: int, **fields: Any) -> Case:
    """Return a case in which one record has other content."""
    copy = log()
    copy[place] = copy[place]._replace(**fields)
    what = {"timestamp_ms": "timestamp"}
    differs = ", ".join(what.get(name, name) for name in fields)
    return Case(log(), copy, {"corrupted": 1}, differs)


def edited(edit: Callable[[Log], object], differs: str = "", **found: int) -> Case:
    """Return a log that one edit has changed."""
    copy = log()
    edit(copy)
    return Case(log(), copy, found, differs)


def swap(copy: Log) -> None:
    copy[10], copy[12] = copy[12], copy[10]


def cases() -> dict[str, Case]:
    """Return all faults of a mirror, and correct copies."""
    headers = (("a", b"1"), ("b", None))
    with_headers = [one._replace(headers=headers) for one in log()]
    other_order = list(with_headers)
    other_order[20] = other_order[20]._replace(headers=headers[::-1])
    null_for_empty = [one._replace(value=b"") for one in log()]
    empty = [*null_for_empty[:9], null_for_empty[9]._replace(value=None), *null_for_empty[10:]]
    keyed = [one._replace(partition=0) for one in log()]
    tombstone = keyed[-1]._replace(key=b"key-0", value=None)
    compact = {"cleanup.policy": "compact"}
    one_key = log()[30]
    return {
        "clean": Case(log(), log()),
        "dropped": edited(lambda copy: copy.pop(31), missing=1),
        "doubled": edited(lambda copy: copy.append(copy[31]), duplicated=1),
        "swapped": edited(swap, reordered=1),
        "moved": changed(30, partition=1),
        "key": changed(30, key=b"Key-2"),
        "no-key": changed(30, key=None),
        "value": changed(30, value=one_key.value[:-1] + b"1" if one_key.value else b""),
        "header": changed(30, headers=(("n", b"31"),)),
        "timestamp": changed(30, timestamp_ms=one_key.timestamp_ms + 1),
        "header-order": Case(with_headers, other_order, {"corrupted": 1}, "headers"),
        "null-for-empty": Case(null_for_empty, empty, {"corrupted": 1}, "value"),
        "alien": edited(lambda copy: copy.extend(numbered(2, 2, first=900)), alien=2),
        "truncated-tail": edited(lambda copy: copy.__delitem__(slice(-4, None)), missing=4),
        "again-later": edited(
            lambda copy: copy.append(one_key._replace(timestamp_ms=one_key.timestamp_ms + 5000)),
            "timestamp",
            duplicated=1,
        ),
        "tombstone": Case([*keyed, tombstone], keyed, {"corrupted": 1},
                          "timestamp, value, headers", config=compact),
        "stale": Case(keyed, keyed[:-1], {"corrupted": 1}, "timestamp, value, headers",
                      config=compact),
        "compacted": Case(keyed, keyed[-7:], config=compact),
        "stamped": Case(
            log(),
            [one._replace(timestamp_ms=one.timestamp_ms + 9) for one in log()],
            target_config={"message.timestamp.type": "LogAppendTime"},
        ),
    }  # fmt: skip


def manifest(
    source: SandboxCluster, target: SandboxCluster, topics: Sequence[str], **more: Any
) -> Any:
    """Return an audit of a mirror that keeps the names of topics."""
    return {
        "apiVersion": "headrace.dev/v1beta1",
        "kind": "MirrorTest",
        "metadata": {"name": "audit"},
        "spec": {
            "source": {"alias": source.name, "bootstrapServers": source.bootstrap_servers},
            "target": {"alias": target.name, "bootstrapServers": target.bootstrap_servers},
            "targetTopic": "{topic}",
            "settleSeconds": 1,
            "audit": {"topics": list(topics), "examples": "Records"},
            **more,
        },
    }


def audited(folder: Path, test: Any, code: int) -> Result:
    """Return the report of an audit that ends with this code."""
    file = folder / "audit.yaml"
    file.write_text(yaml.safe_dump(test))
    outputs = ("--junit", str(folder / "junit.xml"), "--sign-key", str(folder / "key.pem"))
    for words in (
        "genpkey -algorithm ed25519 -out key.pem",
        "pkey -in key.pem -pubout -out public.pem",
    ):
        subprocess.run(["openssl", *words.split()], cwd=folder, check=True)
    command = verify_command(file, folder / "report", *outputs)
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    assert ended.returncode == code, ended.stdout + ended.stderr
    return result_in(folder / "report")


def write(cluster: SandboxCluster, topic: str, records: Log, config: dict[str, str]) -> None:
    make_topic(spec(cluster), topic, PARTITIONS, **config)
    produce(spec(cluster), topic, records)


def test_each_difference_is_found_and_named(
    east: SandboxCluster, west: SandboxCluster, tmp_path: Path, wait_until: Callable[..., object]
) -> None:
    prefix = unique("audit")
    expected = cases()
    for name, case in expected.items():
        topic = f"{prefix}.{name}"
        write(east, topic, marked(case.source, name), case.config)
        write(west, topic, marked(case.target, name), case.config | case.target_config)
    # Two topics with each other's records.
    here, there = log(), numbered(RECORDS, PARTITIONS, first=5_000)
    for name, records, copies in (("one", here, there), ("other", there, here)):
        write(east, f"{prefix}.exchanged-{name}", records, {})
        write(west, f"{prefix}.exchanged-{name}", copies, {})
        expected[f"exchanged-{name}"] = Case([], [], {"corrupted": RECORDS}, "topic")
    # The mirror copied an aborted transaction; another transaction is committed on both sides.
    write(east, f"{prefix}.aborted", marked(log(), "aborted"), {})
    for end, first in (("commit", 2_000), ("abort", 3_000)):
        producer = produce_with(
            spec(east), f"{prefix}.aborted", numbered(3, 1, first=first),
            **{"transactional.id": unique("audit")},
        )  # fmt: skip
        getattr(producer, f"{end}_transaction")(WITHIN_S)
    wait_until(lambda: has_all_markers(spec(east), f"{prefix}.aborted"))
    copies = [*marked(log(), "aborted"), *numbered(3, 1, first=2_000), *numbered(3, 1, first=3_000)]
    write(west, f"{prefix}.aborted", copies, {})
    expected["aborted"] = Case([], [], {"alien": 3})
    # The target has lost its first records: it is unknown whether they arrived.
    here = marked(log(), "truncated-head")
    write(east, f"{prefix}.truncated-head", here, {})
    write(west, f"{prefix}.truncated-head", here, {})
    delete_records(spec(west), f"{prefix}.truncated-head", {0: 5})
    expected["truncated-head"] = Case([], [], excluded=5)
    # A topic that the mirror does not have, and one that the source does not have.
    write(east, f"{prefix}.absent", marked(log(), "absent"), {})
    expected["absent"] = Case([], [], {"missing": RECORDS})
    write(west, f"{prefix}.unknown", marked(log(), "unknown"), {})
    expected["unknown"] = Case([], [], {"alien": RECORDS})

    result = audited(tmp_path, manifest(east, west, [f"{prefix}[.].*"]), 1)

    assert result.audit is not None
    classes = ("missing", "duplicated", "reordered", "corrupted", "alien")
    found = {
        topic.source.removeprefix(f"{prefix}."): (
            {kind: count for kind in classes if (count := getattr(topic, kind))},
            topic.excluded,
        )
        for topic in result.audit.topics
    }
    assert found == {name: (case.found, case.excluded) for name, case in expected.items()}
    for one in result.audit.topics:
        assert one.compared == one.source_records - one.excluded
    differs = {share.topic.removeprefix(f"{prefix}."): share.differs for share in result.shares}
    assert {name: differs.get(name, "") for name in expected} == {
        name: case.differs for name, case in expected.items()
    }
    for sentence in (
        f"topic {prefix}.absent does not exist on west: {RECORDS} records are missing there",
        f"topic {prefix}.unknown does not exist on east, and its copy {prefix}.unknown has "
        f"{RECORDS} records",
    ):
        assert [*result.reasons, *result.warnings].count(sentence) == 1
    [deleted] = result.audit.excluded
    assert (deleted.reason, deleted.cluster) == (Exclusion.DELETED_ON_TARGET, "east")
    assert (deleted.partition, deleted.first, deleted.last) == (0, 0, 4)
    for example in result.differences:
        assert (example.source is None) == (example.kind == "alien")
        assert (example.target is None) == (example.kind == "missing")
        assert (example.source_record is None) == (example.source is None)
        assert (example.target_record is None) == (example.target is None)
    outcomes = junit_outcomes(tmp_path / "junit.xml")
    assert outcomes == {"topics": "failure", **dict.fromkeys(classes, "failure")} | {
        "duplicated": "system-out",  # any number is allowed
        "evidence": "error",
    }
    _check_evidence(tmp_path, result)


def _check_evidence(folder: Path, result: Result) -> None:
    """Check that the report is signed, and has the ranges and the hash of its manifest."""
    report = folder / "report" / documents.REPORT
    words = ["test", "report", "--verify-signature", str(folder / "public.pem"), str(report)]
    assert main(words) == 0
    text = report.read_text()
    report.write_text(text.replace('"Failed"', '"Passed"', 1))
    assert main(words) == 1
    assert (
        result.test_sha256
        == hashlib.sha256((folder / "report" / documents.TEST).read_bytes()).hexdigest()
    )
    assert result.audit is not None
    ranges = {
        topic.source.rpartition(".")[2]: (topic.source_ranges, topic.target_ranges)
        for topic in result.audit.topics
    }
    half = RECORDS // 2
    assert ranges["clean"] == (((0, half), (0, half)), ((0, half), (0, half)))
    assert ranges["truncated-head"][1] == ((5, half), (0, half))
    assert ranges["absent"] == (((0, half), (0, half)), ())


def audit_of(name: str, folder: Path, *options: str) -> subprocess.CompletedProcess[str]:
    """Run ``headrace audit`` in a folder."""
    command = [sys.executable, "-m", "headrace", "audit", name, *options]
    return subprocess.run(command, capture_output=True, text=True, check=False, cwd=folder)


def test_a_running_flow_is_audited(
    east: SandboxCluster, west: SandboxCluster, tmp_path: Path, wait_until: WaitUntil
) -> None:
    name = unique("audited")
    make_topic(spec(east), name, PARTITIONS)
    produce(spec(east), name, log())
    audit = partial(audit_of, name, tmp_path)
    with FlowRun(tmp_path, [flow_manifest(name, east, west, name)]) as flow:
        wait_until(flow.ready)
        found = audit("--report", "report", "--junit", "junit.xml")
        assert found.returncode == 0, found.stdout + found.stderr
        assert f"all {RECORDS} records of 1 topic are on the target" in found.stdout
        assert set(junit_outcomes(tmp_path / "junit.xml").values()) == {""}
        assert (tmp_path / "report" / "audit.yaml").exists()

        found = audit("--topic", "nothing-.*")
        assert found.returncode == 3, found.stdout + found.stderr
        assert "no topic of east matches nothing-.*: correct the patterns" in found.stderr

        control.request(name, "set-state", state="Paused")
        found = audit()
        assert found.returncode == 2, found.stdout + found.stderr
        assert f"flow {name} is paused: records that it has not copied" in found.stderr

    found = audit()  # the flow does not run here any more
    assert found.returncode == 4, found.stdout + found.stderr


def test_a_flow_of_another_machine_is_audited_by_its_manifest(
    east: SandboxCluster, west: SandboxCluster, tmp_path: Path
) -> None:
    name = unique("elsewhere")
    for cluster, topic in ((east, name), (west, f"east.{name}")):
        write(cluster, topic, log(), {})
    (tmp_path / "flow.yaml").write_text(yaml.safe_dump(flow_manifest(name, east, west, name)))
    found = audit_of(name, tmp_path, "-f", "flow.yaml", "--report", "report", "--settle", "1")
    assert found.returncode == 0, found.stdout + found.stderr
    assert f"all {RECORDS} records of 1 topic are on the target" in found.stdout


def test_a_topic_that_is_deleted_or_created_again_is_refused(
    east: SandboxCluster, west: SandboxCluster, wait_until: WaitUntil
) -> None:
    deleted, created_again = topics = [unique("deleted"), unique("created")]
    for topic in topics:
        write(east, topic, log(), {})
        write(west, topic, log(), {})
    test = MirrorTest.model_validate(manifest(east, west, topics))
    run = MirrorTestRun(name="r", test=test)
    compared = audited_topics(run, *(Admin(side).topics() for side in (run.source, run.target)))
    fixed = ranges.fix(run, compared, lambda: None)
    for cluster, topic, side, sentence in (
        (east, deleted, fixed.source, "of east was deleted during the audit"),
        (west, created_again, fixed.target, "of west was deleted and created again during the"),
    ):
        ranges.check(side, side.end)
        client = AdminClient({"bootstrap.servers": cluster.bootstrap_servers})
        client.delete_topics([topic])[topic].result(20)
        admin = Admin(side.cluster)
        wait_until(admin.topics, until=partial(_lacks, topic))
        if topic == created_again:
            write(cluster, topic, log(), {})
        with pytest.raises(GaveUp, match=f"topic {topic} {sentence}"):
            ranges.check(side, side.end)


def _lacks(topic: str, topics: dict[str, int]) -> bool:
    return topic not in topics


@pytest.mark.long
def test_a_clean_mirror_passes(east: SandboxCluster, west: SandboxCluster, tmp_path: Path) -> None:
    topic = unique("audit-clean")
    write(east, topic, numbered(20_000, PARTITIONS), {})
    write(west, topic, numbered(20_000, PARTITIONS), {})
    run = verified(tmp_path, manifest(east, west, [topic]))
    assert run.result.counts is not None
    assert run.result.counts.acknowledged == 20_000
    assert "all 20,000 records of 1 topic are on the target" in run.printed
    _check_page(run)


def _check_page(run: Verified) -> None:
    page = (run.report / "report.html").read_text()
    assert "What was compared" in page
    assert "acknowledged" not in page


def test_a_wrong_audit_is_refused_before_spark_starts(
    east: SandboxCluster, west: SandboxCluster, tmp_path: Path
) -> None:
    topic = unique("audit-wrong")
    make_topic(spec(east), topic, 3)
    make_topic(spec(west), topic, 2)
    same = manifest(east, west, [topic])
    same["spec"]["target"]["bootstrapServers"] = east.bootstrap_servers.replace(
        "127.0.0.1", "localhost"
    )
    wrong = {
        "no topic of east matches nothing-.*: correct the patterns": manifest(
            east, west, ["nothing-.*"]
        ),
        f"topic {topic} has 3 partitions on east, and its copy {topic} has 2": manifest(
            east, west, [topic]
        ),
        "are one cluster": same,
        "spec.load: must be left out beside audit": manifest(
            east, west, [topic], load={"messages": 5}
        ),
    }
    for sentence, test in wrong.items():
        file = tmp_path / "audit.yaml"
        file.write_text(yaml.safe_dump(test))
        ended = subprocess.run(
            verify_command(file, tmp_path / "report"), capture_output=True, text=True, check=False
        )
        assert ended.returncode == 3, ended.stdout + ended.stderr
        assert sentence in ended.stderr
        assert not (tmp_path / "report").exists()


def test_an_audit_that_cannot_judge_everything_ends_with_the_code_of_inconclusive(
    east: SandboxCluster, west: SandboxCluster, tmp_path: Path
) -> None:
    topic = unique("unjudged")
    records = [one._replace(value=framed(7, one.value or b"")) for one in log()]
    for cluster in (east, west):
        write(cluster, topic, records, {})
    registry = {"url": "http://127.0.0.1:9"}
    test = manifest(east, west, [topic], audit={"topics": [topic], "schemas": registry})
    result = audited(tmp_path, test, 2)
    assert result.counts is not None
    assert result.counts.acknowledged == RECORDS
    [reason] = result.reasons
    assert reason.startswith(
        "it is unknown whether the records can be decoded: the schema registry"
    )
    outcomes = junit_outcomes(tmp_path / "junit.xml")
    assert {name for name, outcome in outcomes.items() if outcome} == {"schemas"}
    assert outcomes["schemas"] == "error"

    # A newer version of headrace has stored the frontier.
    nightly = {"topics": [topic], "startFrom": {"mode": "LastAudit"}}
    run = MirrorTestRun(
        name="r", test=MirrorTest.model_validate(manifest(east, west, [topic], audit=nightly))
    )
    source = Admin(run.source)
    compared = audited_topics(run, source.topics(), Admin(run.target).topics())
    key = frontier.read(run, source.cluster_id(), compared).key((topic, 0))
    stored = CompactedTopic(run.target, audits_topic("east"), unique("headrace-audits"))
    assert stored.replace(lambda _: True, {key: b'{"version": 99}'})
    file = tmp_path / "nightly.yaml"
    file.write_text(yaml.safe_dump(manifest(east, west, [topic], audit=nightly)))
    command = verify_command(file, tmp_path / "nightly")
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    assert ended.returncode == 2, ended.stdout + ended.stderr
    said = f"a newer version of headrace wrote the frontier of {topic}-0 in topic "
    said += f"{audits_topic('east')} of west (version 99, known is 1)"
    assert said in " ".join(ended.stdout.split()), ended.stdout + ended.stderr
