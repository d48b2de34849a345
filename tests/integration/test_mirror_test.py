"""Mirror tests of real clusters, with real Spark jobs.

Faults are found, and nothing passes by accident.
"""

import json
import os
import signal
import subprocess
import sys
import time
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import psutil
import pytest
import yaml
from support.flows import FlowRun, manifest, spec
from support.patience import WITHIN_S
from support.prometheus import scraped
from support.records import Record, count, make_topic, produce, produce_with, read, unique
from support.verifying import junit_outcomes, result_in, verified, verify_command

from headrace.api import TopicPartition
from headrace.cli.mirror_test.spark_job import environment
from headrace.mirror_test import FindingType, Stage
from headrace.sandbox import SandboxCluster
from headrace.sandbox.processes import held_ports
from headrace.toolchain import JarSet, find_java, jars
from headrace_spark import messages

WaitUntil = Callable[..., Any]
CLONE = Path(__file__).parents[2]
MESSAGES = 4_000


@pytest.fixture(scope="session")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of the wheel, installed outside the clone without its dependencies."""
    wheels, site = tmp_path_factory.mktemp("wheel"), tmp_path_factory.mktemp("site")
    build = [sys.executable, "-m", "hatchling", "build", "--target", "wheel", "--directory"]
    subprocess.run([*build, wheels], cwd=CLONE, check=True, capture_output=True)
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-index"]
    subprocess.run([*pip, "--target", site, *wheels.glob("*.whl")], check=True)
    return site


def mirror_test(
    name: str, source: SandboxCluster, target: SandboxCluster, settle_s: int = 5, **load: Any
) -> dict[str, Any]:
    return {
        "apiVersion": "headrace.dev/v1beta1",
        "kind": "MirrorTest",
        "metadata": {"name": name},
        "spec": {
            "source": {"alias": source.name, "bootstrapServers": source.bootstrap_servers},
            "target": {"alias": target.name, "bootstrapServers": target.bootstrap_servers},
            "load": {"topics": 2, "partitions": 3, "messages": MESSAGES, **load},
            "settleSeconds": settle_s,
        },
    }


def write(folder: Path, *documents: dict[str, Any]) -> Path:
    file = folder / "test.yaml"
    file.write_text(yaml.safe_dump_all(documents))
    return file


def spark_submit(site: Path, job: str, test: Path, out: Path) -> "subprocess.CompletedProcess[str]":
    """Run a script of the wheel as a user of Spark would, far from the clone."""
    with submitted(site, job, test, out) as process:
        output, errors = process.communicate()
    return subprocess.CompletedProcess(process.args, process.returncode, output, errors)


def submitted(site: Path, job: str, test: Path, out: Path) -> "subprocess.Popen[str]":
    script = site / "headrace_spark" / "jobs" / f"{job}.py"
    return subprocess.Popen(
        [
            Path(sys.executable).parent / "spark-submit",
            *("--master", "local[2]", "--driver-memory", "1g"),
            *("--driver-java-options", "-XX:+UseSerialGC -XX:TieredStopAtLevel=1"),
            *("--conf", "spark.driver.host=127.0.0.1", "--conf", "spark.ui.enabled=false"),
            *("--jars", ",".join(map(str, jars(JarSet.SPARK_KAFKA)))),
            *(script, "--test", test, "--run", "run-1", "--out", out),
        ],
        cwd=out.parent,
        env={
            **os.environ,
            "JAVA_HOME": str(find_java().home),
            "PYSPARK_PYTHON": sys.executable,
            "PYTHONPATH": str(site),
        },
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


@dataclass
class Tampering:
    """Records of one topic that are being copied, by partition, and their faults."""

    by_partition: dict[int, list[Record]]
    done: dict[str, set[int]]
    """Sequence numbers by class."""
    originals: dict[int, list[Record]] = field(default_factory=dict)
    """Records of the source, in the order of their offsets."""

    @property
    def records(self) -> list[Record]:
        """Records of all partitions."""
        return [record for records in self.by_partition.values() for record in records]

    def pair(self, partition: int) -> tuple[int, int]:
        """Return the places of two data records of one producer, the earlier one first."""
        records = self.by_partition[partition]
        first = len(records) // 2
        who = dict(records[first].headers)["id"]
        second = next(n for n in range(first + 1, 10**6) if dict(records[n].headers)["id"] == who)
        return first, second

    def note(self, kind: str, record: Record) -> None:
        self.done.setdefault(kind, set()).add(int(dict(record.headers)["seq"] or b""))

    def drop(self, partition: int) -> None:
        place, _ = self.pair(partition)
        self.note("missing", self.by_partition[partition].pop(place))

    def double(self, partition: int) -> None:
        place, _ = self.pair(partition)
        record = self.by_partition[partition][place]
        self.by_partition[partition].insert(place, record)
        self.note("duplicated", record)

    def swap(self, partition: int) -> None:
        first, second = self.pair(partition)
        records = self.by_partition[partition]
        self.note("reordered", records[first])
        records[first], records[second] = records[second], records[first]

    def change(self, partition: int, **what: Any) -> None:
        place, _ = self.pair(partition)
        record = self.by_partition[partition][place]
        self.note("corrupted", record)
        self.by_partition[partition][place] = record._replace(**what)

    def forge(self, partition: int) -> None:
        place, _ = self.pair(partition)
        record = self.by_partition[partition][place]
        who = dict(record.headers)["id"]
        forged = record._replace(headers=(("id", who), ("seq", b"999999")))
        self.note("alien", forged)
        self.by_partition[partition].insert(0, forged)

    def copy(self, partition: int, to: int) -> None:
        """Copy a record once more, into another partition."""
        place, _ = self.pair(partition)
        record = self.by_partition[partition][place]
        self.by_partition[to].insert(0, record._replace(partition=to))
        self.note("duplicated", record)
        self.note("corrupted", record)

    def lose_a_header(self, partition: int) -> None:
        place, _ = self.pair(partition)
        self.change(partition, headers=self.by_partition[partition][place].headers[:-1])

    def move(self, partition: int, to: int) -> None:
        place, _ = self.pair(partition)
        record = self.by_partition[partition].pop(place)
        self.by_partition[to].insert(0, record._replace(partition=to))
        self.note("corrupted", record)

    def change_end(self, partition: int, **what: Any) -> None:
        *_, end = self.by_partition[partition]
        self.by_partition[partition][-1] = end._replace(**what)
        self.done.setdefault("corrupted", set()).add(partition)

    def exchange(self, partition: int, other: "Tampering") -> None:
        """Exchange one record with another topic's record."""
        place, _ = self.pair(partition)
        for one in (self, other):
            one.note("corrupted", one.by_partition[partition][place])
        here, there = self.by_partition[partition], other.by_partition[partition]
        here[place], there[place] = there[place], here[place]

    def replay(self, topic: str, partition: int, count: int) -> None:
        """Add records that an earlier run sent to this topic."""
        writer = messages.MessageFactory("earlier-0-0", 100)
        at = TopicPartition(topic, partition)
        sent_ms = self.by_partition[partition][0].timestamp_ms - 60_000
        for seq in range(count):
            sent = writer.message(at, seq, sent_ms)
            headers = tuple((name, cast("bytes", value)) for name, value in sent.headers)
            old = Record(partition, b"0", sent.value, headers, sent_ms)
            self.by_partition[partition].insert(seq, old)

    def cut(self, partition: int) -> None:
        """Lose the end: the last data record and the sentinel after it."""
        *kept, last, _ = self.by_partition[partition]
        self.note("missing", last)
        self.by_partition[partition] = kept


def carry(source: SandboxCluster, target: SandboxCluster, topic: str) -> Tampering:
    originals = read(spec(source), topic)
    records = {partition: list(log) for partition, log in originals.items()}
    tampering = Tampering(records, {}, originals)
    make_topic(spec(target), f"{source.name}.{topic}", len(tampering.by_partition))
    return tampering


def at_other_offsets(tamperings: dict[str, Tampering]) -> Counter[tuple[str, int]]:
    """Return the number of copies at other offsets than their originals, by topic and partition.

    The target must have been empty.
    """
    by_headers, by_value = {}, {}
    for tampering in tamperings.values():
        for log in tampering.originals.values():
            for offset, one in enumerate(log):
                by_headers[one.headers] = offset
                by_value[one.value] = offset, one.headers
    found = Counter[tuple[str, int]]()
    for topic, tampering in tamperings.items():
        for partition, log in tampering.by_partition.items():
            for offset, one in enumerate(log):
                home = by_headers.get(one.headers)
                if home is None and one.value in by_value:
                    home, headers = by_value[one.value]
                    if headers[: len(one.headers)] != one.headers:
                        continue  # forged
                found[topic, partition] += home not in {None, offset}
    return +found


def deliver(target: SandboxCluster, topic: str, tampering: Tampering) -> None:
    for records in tampering.by_partition.values():
        produce(spec(target), topic, records)


def test_what_a_mirror_breaks_is_found_and_named(
    east: SandboxCluster, west: SandboxCluster, tmp_path: Path, installed: Path
) -> None:
    """Use the scripts of an installed wheel, by spark-submit.

    One topic exists already, with fewer partitions than there are producers.
    """
    name = unique("tampered")
    document = mirror_test(name, east, west, settle_s=1, topics=5)
    document["spec"]["budgets"] = {"unequalOffsets": 5}
    test = write(tmp_path, document)
    out = tmp_path / "out"
    make_topic(spec(east), f"{name}-4", 1)

    sent = spark_submit(installed, "produce", test, out)
    assert sent.returncode == 0, sent.stderr
    assert json.loads((out / "manifest.json").read_text())["run"] == "run-1"

    names = [f"{name}-{number}" for number in range(5)]
    all_topics = one, two, three, four, five = [carry(east, west, topic) for topic in names]
    one.drop(0)
    one.double(1)
    one.swap(2)
    two.change(0, value=b"something else")
    two.change(1, key=b"another key")
    two.change(2, headers=())
    two.cut(0)
    two.forge(1)
    three.copy(1, to=0)
    three.change_end(2, value=b"tampered with")
    three.change(2, timestamp_ms=three.by_partition[2][0].timestamp_ms - 1)
    four.exchange(0, three)
    four.move(1, to=2)
    four.lose_a_header(1)
    four.replay(names[3], 2, count=200)
    five.swap(0)
    five.double(0)
    assert {dict(record.headers)["id"] for record in five.records[:-1]} == {
        b"run-1-0-0",
        b"run-1-1-0",
    }
    for topic, tampering in zip(names, all_topics, strict=True):
        deliver(west, f"east.{topic}", tampering)

    judged = spark_submit(installed, "verify", test, out)
    assert judged.returncode == 1, judged.stderr
    result = result_in(out)
    found = {
        str(kind): {example.seq for example in examples}
        for kind, examples in result.examples.items()
    }
    expected = {
        kind: set[int]().union(*(t.done.get(kind, set()) for t in all_topics))
        for kind in set[str]().union(*(t.done for t in all_topics))
    }
    assert found.pop(FindingType.REPLAYED) == set(range(10))
    assert len(found.pop(FindingType.UNEQUAL_OFFSETS)) > 1
    assert found == expected
    corrupted = result.examples[FindingType.CORRUPTED]
    differs = sorted(example.differs for example in corrupted)
    assert differs == [
        *("headers", "headers", "key", "partition", "partition"),
        *("timestamp", "topic", "topic", "value", "value"),
    ]
    (key,) = (e for e in corrupted if e.differs == "key")
    (change,) = key.changes
    assert (change.what, change.found) == ("key", "another key")
    assert change.expected in {"0", "1", "2"}
    assert key.source is not None
    assert (key.source.topic, key.source.partition) == (names[1], 1)
    # The copy in partition 0, not a message in another place.
    (copy,) = (e for e in result.examples[FindingType.DUPLICATED] if e.topic == f"east.{names[2]}")
    assert (copy.partition, copy.offset) == (0, 0)
    moved = at_other_offsets({f"east.{t}": at for t, at in zip(names, all_topics, strict=True)})
    assert len(moved) > 5
    assert moved == {
        (share.topic, share.partition): share.count
        for share in result.shares
        if (share.kind, share.differs) == (FindingType.UNEQUAL_OFFSETS, "offset")
    }
    for example in result.examples[FindingType.UNEQUAL_OFFSETS]:
        (change,) = example.changes
        assert example.source is not None
        assert (change.what, change.expected) == ("offset", str(example.source.offset))
        assert change.found == str(example.offset) != change.expected
    assert any(f"{moved.total():,} messages are at another offset" in r for r in result.reasons)
    counts = result.counts
    assert counts is not None
    assert (counts.acknowledged, counts.unequal_offsets) == (MESSAGES, moved.total())
    assert (counts.missing, counts.duplicated, counts.reordered) == (2, 3, 2)
    assert (counts.corrupted, counts.alien, counts.source_lost) == (10, 1, 0)
    assert (counts.replayed, counts.unmanifested, counts.unacknowledged) == (200, 0, 0)
    assert (counts.sentinels, counts.sentinels_seen) == (13, 12)
    assert f"topic {names[4]} was there with 1 partitions, not 3" in result.warnings
    assert any(f"the last record of {names[1]}-0 did not arrive" in r for r in result.reasons)
    assert any(warning.startswith("200 messages are of earlier") for warning in result.warnings)
    assert result.versions["headrace"]
    assert "Failed" in (out / "report.html").read_text()


def killed_while_it_reads(
    test: Path, out: Path, wait_until: WaitUntil
) -> "subprocess.CompletedProcess[str]":
    """Run a comparison whose JVM is killed while it reads the source."""
    script = CLONE / "spark-jobs" / "verify.py"
    with (out / "verify.log").open("w+") as log:
        job = subprocess.Popen(
            [sys.executable, script, "--test", test, "--run", "run-1", "--out", out],
            env=environment(Stage.VERIFY, 2, out),
            stderr=log,
            text=True,
        )

        def said() -> str:
            return (out / "verify.log").read_text()

        wait_until(said, until=lambda text: 'phase="reading the end offsets"' in text)
        (jvm,) = [c for c in psutil.Process(job.pid).children() if c.name() == "java"]
        assert "-XX:TieredStopAtLevel=1" in jvm.cmdline()
        jvm.kill()
        job.wait(WITHIN_S)
        return subprocess.CompletedProcess(job.args, job.returncode, stderr=said())


@pytest.mark.long
def test_a_comparison_that_was_killed_is_no_verdict_and_runs_again(
    east: SandboxCluster,
    west: SandboxCluster,
    tmp_path: Path,
    installed: Path,
    wait_until: WaitUntil,
) -> None:
    name, out = unique("killed"), tmp_path / "out"
    test = write(tmp_path, mirror_test(name, east, west, settle_s=1, topics=1))
    sent = spark_submit(installed, "produce", test, out)
    assert sent.returncode == 0, sent.stderr
    topic = f"{name}-0"
    deliver(west, f"east.{topic}", carry(east, west, topic))

    killed = killed_while_it_reads(test, out, wait_until)
    assert killed.returncode == 2, killed.stderr
    assert 'phase="reading the source"' not in killed.stderr
    result = result_in(out)
    assert (result.verdict, result.counts) == ("Inconclusive", None)
    (reason,) = result.reasons
    assert reason.startswith("Spark's JVM ended while it worked: it was killed")
    assert "Inconclusive" in (out / "report.html").read_text()

    judged = spark_submit(installed, "verify", test, out)
    assert judged.returncode == 0, judged.stderr
    assert result_in(out).verdict == "Passed"


def in_a_transaction(
    cluster: SandboxCluster, topic: str, records: Iterable[Record], *, commits: bool
) -> None:
    producer = produce_with(spec(cluster), topic, records, **{"transactional.id": unique("tx")})
    (producer.commit_transaction if commits else producer.abort_transaction)(WITHIN_S)


@pytest.mark.long
def test_compacted_topics_and_transactions_are_judged_as_all_others(
    east: SandboxCluster, west: SandboxCluster, tmp_path: Path, installed: Path
) -> None:
    """Judge two topics that a mirror copied well, and two that it did not.

    Other transactions surround the load on the source. On the target, all records were first copied
    in a transaction that was aborted: these copies are neither a copy nor a duplicate.
    """
    name, out = unique("kinds"), tmp_path / "out"
    topics = [f"{name}-{word}" for word in ("compacted", "lossy", "committed", "uncommitted")]
    compacted, lossy, committed, uncommitted = topics
    now_ms = int(time.time() * 1000)  # brokers delete records that are older than their retention
    others = [Record(partition, b"k", b"not of the load", (), now_ms) for partition in range(3)]
    for topic in topics:
        config = {"cleanup.policy": "compact"} if topic in {compacted, lossy} else {}
        make_topic(spec(east), topic, 3, **config)
        make_topic(spec(west), f"east.{topic}", 3, **config)
    for topic in (committed, uncommitted):
        in_a_transaction(east, topic, others, commits=True)
    document = mirror_test(name, east, west, settle_s=1)
    document["spec"]["load"] = {"names": topics, "messages": MESSAGES}
    test = write(tmp_path, document)
    sent = spark_submit(installed, "produce", test, out)
    assert sent.returncode == 0, sent.stderr
    for topic in (committed, uncommitted):
        in_a_transaction(east, topic, others, commits=False)

    carried = {topic: Tampering(read(spec(east), topic), {}) for topic in topics}
    carried[lossy].drop(0)
    for topic in (compacted, lossy):
        deliver(west, f"east.{topic}", carried[topic])
    for topic in (committed, uncommitted):
        in_a_transaction(west, f"east.{topic}", carried[topic].records, commits=False)
    carried[uncommitted].drop(1)
    carried[uncommitted].double(2)
    for topic in (committed, uncommitted):
        in_a_transaction(west, f"east.{topic}", carried[topic].records, commits=True)

    judged = spark_submit(installed, "verify", test, out)
    assert judged.returncode == 1, judged.stderr
    result = result_in(out)
    found = {(str(share.kind), share.topic, share.count) for share in result.shares}
    assert found == {
        ("missing", lossy, 1),
        ("missing", uncommitted, 1),
        ("duplicated", f"east.{uncommitted}", 1),
    }
    assert {
        str(kind): {example.seq for example in examples}
        for kind, examples in result.examples.items()
    } == {
        "missing": carried[lossy].done["missing"] | carried[uncommitted].done["missing"],
        "duplicated": carried[uncommitted].done["duplicated"],
    }
    counts = result.counts
    assert counts is not None
    assert (counts.acknowledged, counts.source_lost) == (MESSAGES, 0)
    assert (counts.sentinels, counts.sentinels_seen) == (12, 12)


@pytest.mark.long
def test_a_mirror_that_partitions_by_key_is_judged_by_its_promise(
    east: SandboxCluster, west: SandboxCluster, tmp_path: Path, installed: Path
) -> None:
    """Copy into one partition more than the source has; one record strays from its key."""
    name, out = unique("by-key"), tmp_path / "out"
    topic = f"{name}-0"
    make_topic(spec(west), f"east.{topic}", 4)
    document = mirror_test(name, east, west, settle_s=1, topics=1)
    document["spec"]["partitioning"] = "ByKey"
    test = write(tmp_path, document)
    sent = spark_submit(installed, "produce", test, out)
    assert sent.returncode == 0, sent.stderr

    mirrored: dict[int, list[Record]] = {number: [] for number in range(4)}
    for records in read(spec(east), topic).values():
        for record in records:
            to = (int(record.key or b"0") + 1) % 4
            mirrored[to].append(record._replace(partition=to))
    stray = mirrored[0].pop(len(mirrored[0]) // 2)
    mirrored[1].append(stray._replace(partition=1))
    deliver(west, f"east.{topic}", Tampering(mirrored, {}))

    judged = spark_submit(installed, "verify", test, out)
    assert judged.returncode == 1, judged.stderr
    result = result_in(out)
    ((kind, examples),) = result.examples.items()
    (example,) = examples
    (change,) = example.changes
    assert (kind, example.differs, example.partition) == (FindingType.CORRUPTED, "partition", 1)
    assert example.seq == int(dict(stray.headers)["seq"] or b"")
    assert (change.expected, change.found) == ("that of most records of its key", "1")

    document["spec"]["partitioning"] = "Any"
    judged = spark_submit(installed, "verify", write(tmp_path, document), out)
    assert judged.returncode == 0, judged.stderr
    result = result_in(out)
    assert result.counts is not None
    assert (result.counts.acknowledged, result.counts.missing) == (MESSAGES, 0)


@pytest.mark.long
def test_what_comes_after_its_time_is_late_though_it_is_all_there(
    east: SandboxCluster,
    west: SandboxCluster,
    tmp_path: Path,
    installed: Path,
    wait_until: WaitUntil,
) -> None:
    """End the load early; its messages have no headers."""
    topic = f"{unique('late')}-0"
    load = {"topics": 1, "messages": 10**7, "messagesPerSecond": 500, "messageFormat": "Body"}
    document = mirror_test(topic.removesuffix("-0"), east, west, settle_s=1, **load)
    test, out = write(tmp_path, document), tmp_path / "out"
    make_topic(spec(west), f"east.{topic}", 3)
    with submitted(installed, "probe", test, out) as probe:
        try:
            wait_until((out / "ready").exists)
            with submitted(installed, "produce", test, out) as load_job:
                wait_until(lambda: count(spec(east), topic))
                (tmp_path / "end-load").touch()
                _, errors = load_job.communicate()
            assert load_job.returncode == 0, errors
            _, errors = probe.communicate()
        finally:
            probe.kill()
    assert probe.returncode == 0, errors
    deliver(west, f"east.{topic}", Tampering(read(spec(east), topic), {}))

    judged = spark_submit(installed, "verify", test, out)
    assert judged.returncode == 1, judged.stderr
    result = result_in(out)
    partitions = ", ".join(f"{topic}-{number}" for number in range(3))
    reason = f"the last record of {partitions} did not arrive within 1 s (settleSeconds)"
    assert result.reasons == (reason,)
    assert result.counts is not None
    assert (result.counts.missing, result.counts.sentinels_seen) == (0, 3)
    assert 0 < result.counts.acknowledged < 10**6
    assert any("the load was ended early" in warning for warning in result.warnings)


@pytest.mark.long
@pytest.mark.timeout(1500)
def test_a_killed_driver_is_survived_and_told(
    east: SandboxCluster, west: SandboxCluster, tmp_path: Path, wait_until: WaitUntil
) -> None:
    """Run the whole of ``headrace verify`` on a flow of headrace's."""
    name = unique("told")
    test = mirror_test(name, east, west, settle_s=60, messages=30_000, messagesPerSecond=2_000)
    for clusters in ("source", "target"):
        del test["spec"][clusters]
    test["spec"] |= {"flowName": name, "chaos": [{"action": "KillDriver", "atPercent": 40}]}
    with FlowRun(tmp_path, [manifest(name, east, west, f"{name}-.*")]) as flow:
        wait_until(flow.ready)
        found = verified(tmp_path, test, "--junit", str(tmp_path / "junit.xml"))
    outcomes = junit_outcomes(tmp_path / "junit.xml")
    assert outcomes.keys() >= {"missing", "arrival", "recovery", "rate"}
    assert set(outcomes.values()) <= {"", "system-out"}
    assert found.printed.startswith("Passed: ")
    assert "30,000 of 30,000 messages arrived" in found.printed
    result, report = found.result, found.report
    (fault,) = result.faults
    assert fault.percent is not None
    assert 40 <= fault.percent < 100
    assert fault.units
    assert fault.recovery_seconds is not None
    assert fault.recovery_seconds < 60
    assert result.latency_ms is not None
    assert result.latency_ms.measured >= 30_000
    assert "KillDriver" in (report / "report.html").read_text()
    assert not (report / "scratch").exists()
    for topic in (f"{name}-0", f"{name}-1"):
        times = sorted(
            r.timestamp_ms for records in read(spec(east), topic).values() for r in records
        )
        assert _most_in_a_second(times) <= 2_000, "messagesPerSecond was exceeded"


@pytest.mark.long
def test_a_topic_and_partitions_are_added_and_the_flow_is_paused(
    east: SandboxCluster, west: SandboxCluster, tmp_path: Path, wait_until: WaitUntil
) -> None:
    """The steps of the examples, in a shorter load."""
    name = unique("grown")
    test = mirror_test(name, east, west, settle_s=60, durationSeconds=20, messagesPerSecond=200)
    del test["spec"]["load"]["messages"], test["spec"]["source"], test["spec"]["target"]
    steps = [
        yaml.safe_load((CLONE / f"examples/chaos/{example}.yaml").read_text())["spec"]["chaos"][0]
        for example in ("add-topic", "add-partitions", "pause-flow")
    ]
    times: list[dict[str, Any]] = [{"atSeconds": at} for at in (2, 4, 8)]
    times[2]["seconds"] = 2
    test["spec"] |= {
        "flowName": name,
        "budgets": {"recoverySeconds": 60, "duplicated": 0},
        "chaos": [step | at for step, at in zip(steps, times, strict=True)],
    }
    flow = manifest(name, east, west, f"{name}-.*", discovery={"topicsSeconds": 1})
    with FlowRun(tmp_path, [flow]) as running:
        wait_until(running.ready)
        result = verified(tmp_path, test).result
    assert [fault.recovery_seconds is not None for fault in result.faults] == [True] * 3
    *grown, added = result.topics
    assert added.source == f"{name}-{result.run}-0"
    assert added.target == f"east.{added.source}"
    assert (added.acknowledged or 0) > 1_000
    assert [topic.partitions for topic in grown] == [7, 7]
    copies = read(spec(west), f"east.{name}-0")
    assert all(len(copies[partition]) > 100 for partition in range(7))


@pytest.mark.long
def test_a_killed_load_is_no_verdict(
    east: SandboxCluster, west: SandboxCluster, tmp_path: Path, wait_until: WaitUntil
) -> None:
    """Scrape the metrics, which are served until the load is killed."""
    name = unique("crashed")
    for number in range(2):
        make_topic(spec(west), f"east.{name}-{number}", 3)
    test = mirror_test(name, east, west, messages=10**7, messagesPerSecond=100)
    report = tmp_path / "report"
    with held_ports([None]) as (port,):
        command = verify_command(write(tmp_path, test), report, f"--metrics-port={port}")
        verify = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
        seen = wait_until(
            lambda: scraped(port), until=lambda seen: seen.get("messages_produced", 0)
        )
    assert seen["messages_consumed"] == seen["message_send_errors"] == 0
    assert seen["producer_number_of_topics"] == 2
    wait_until(lambda: _jvm_of("produce.py", verify.pid)).kill()
    _, errors = verify.communicate(timeout=WITHIN_S)
    assert verify.returncode == 2, errors
    result = result_in(report)
    assert result.verdict == "Inconclusive"
    assert "there is no manifest of run" in result.reasons[0]
    assert "(the load came to " in result.reasons[0]
    assert "produce: Spark's JVM ended while it worked" in errors


def test_nothing_is_left_of_a_killed_verify(
    east: SandboxCluster, west: SandboxCluster, tmp_path: Path, wait_until: WaitUntil
) -> None:
    name = unique("gone")
    for number in range(2):  # the probe waits for them before its stage
        make_topic(spec(west), f"east.{name}-{number}", 3)
    test = mirror_test(name, east, west)
    verify = subprocess.Popen(verify_command(write(tmp_path, test), tmp_path / "report"))
    jvm = wait_until(lambda: _jvm_of("probe.py", verify.pid))
    family = psutil.Process(verify.pid).children(recursive=True)
    assert jvm in family
    verify.send_signal(signal.SIGKILL)
    verify.wait()
    wait_until(lambda: not any(_lives(process) for process in family))


def test_without_a_manifest_there_is_no_verdict(
    east: SandboxCluster, west: SandboxCluster, tmp_path: Path
) -> None:
    test = write(tmp_path, mirror_test(unique("unknown"), east, west))
    ended = subprocess.run(
        [
            *(sys.executable, CLONE / "spark-jobs" / "verify.py"),
            *("--test", test, "--run", "never-ran", "--out", tmp_path / "out"),
        ],
        capture_output=True,
        text=True,
        check=False,
    )
    assert ended.returncode == 2, ended.stderr
    result = result_in(tmp_path / "out")
    assert result.verdict == "Inconclusive"
    assert result.counts is None


def test_a_cluster_is_no_mirror_of_itself(east: SandboxCluster, tmp_path: Path) -> None:
    test = mirror_test("self", east, east)
    test["spec"]["target"] = {
        "alias": "west",
        "bootstrapServers": east.bootstrap_servers.replace("127.0.0.1", "localhost"),
    }
    ended = subprocess.run(
        verify_command(write(tmp_path, test), tmp_path / "report"),
        capture_output=True,
        text=True,
        check=False,
    )
    assert ended.returncode == 3, ended.stderr
    assert "are one cluster" in ended.stderr


def _most_in_a_second(times_ms: list[int]) -> int:
    """Return the largest number of records in any second."""
    return max(last - bisect_left(times_ms, at - 999) + 1 for last, at in enumerate(times_ms))


def _jvm_of(script: str, of: int) -> psutil.Process | None:
    """Return the JVM of a job that ``of`` started, once Python workers show that its stage runs."""
    for job in psutil.Process(of).children(recursive=True):
        try:
            if any(word.endswith(script) for word in job.cmdline()):
                for jvm in job.children():
                    # Other programs it runs while it starts.
                    family = (child.name() for child in jvm.children(recursive=True))
                    if jvm.name() == "java" and any(name.startswith("python") for name in family):
                        return jvm
        except psutil.NoSuchProcess:
            continue
    return None


def _lives(process: psutil.Process) -> bool:
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False
