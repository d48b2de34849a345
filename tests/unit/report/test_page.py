"""Page of a result, as displayed to a reader."""

import re
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
import yaml

from headrace.api import ChaosAction, ChaosStep, MirrorTest, RecordPart, Verdict
from headrace.api.labels import COMMIT_INTERVAL_ANNOTATION, FLOW_LABEL
from headrace.cli.mirror_test.progress import summary
from headrace.mirror_test import (
    MAX_AUDITED_TOPICS,
    MAX_EXAMPLES,
    MAX_EXCLUDED,
    MAX_POINTS,
    MAX_RANGES,
    MAX_SHARES,
    MAX_UNKNOWN_SCHEMAS,
    AuditDifference,
    AuditOutcome,
    Check,
    Counts,
    Example,
    ExcludedRange,
    Exclusion,
    Fault,
    FieldDifference,
    FindingShare,
    FindingType,
    Latency,
    MirroredTopic,
    Phase,
    Place,
    Point,
    Rehearsed,
    RehearsedGroup,
    Result,
    SchemaCheck,
    ShownBytes,
    ShownRecord,
    TopicAudit,
    UnknownSchema,
    bounded,
)
from headrace.report.pages import page

TEST = MirrorTest.model_validate(
    {
        "metadata": {"name": "orders-test", "annotations": {FLOW_LABEL: "orders"}},
        "spec": {
            "source": {"alias": "east", "bootstrapServers": "e:1"},
            "target": {"alias": "west", "bootstrapServers": "w:1"},
            "budgets": {"duplicated": 5},
        },
    }
)
EXAMPLE = Example(
    topic="east.t-0",
    partition=3,
    offset=123_456,
    producer="r-<0>-0",
    seq=777,
    differs="value, headers",
    source=Place(topic="t-0", partition=3, offset=654_321),
    changes=(
        FieldDifference(what="value", expected="CRC-32 0000abcd", found="CRC-32 0000dcba"),
        FieldDifference(what="headers", expected="hash 1", found="hash 2"),
    ),
)
FAULT = Fault(
    step=ChaosStep(action=ChaosAction.KILL_DRIVER, at_percent=50),
    at_ms=13_500,
    percent=49.6,
    driver="driver-1",
    units=("orders-source-task-0", "orders-source-task-2"),
    recovery_seconds=2.25,
)


def result(**more: Any) -> Result:
    return Result(
        **{
            "verdict": Verdict.FAILED,
            "reasons": ("3 messages are missing on the target (allowed: 0)",),
            "warnings": ("the clocks differ",),
            "run": "r",
            "flow": "orders",
            "test": TEST,
            "topics": (
                MirroredTopic(source="t-0", target="east.t-0", partitions=8, acknowledged=1_000),
            ),
            "shares": (
                FindingShare(kind=FindingType.MISSING, topic="t-0", partition=3, count=2),
                FindingShare(
                    kind=FindingType.CORRUPTED,
                    topic="east.t-0",
                    partition=5,
                    differs="key",
                    count=41,
                ),
            ),
            "phases": (Phase(name="starting Spark", seconds=7.25),),
            "read_until_ms": 14_500,
            "manifest_sha256": "a" * 64,
            "counts": Counts(acknowledged=1_000, missing=3, sentinels=8, sentinels_seen=8),
            "examples": {FindingType.MISSING: (EXAMPLE,), FindingType.CORRUPTED: (EXAMPLE,)},
            "latency_ms": Latency(
                p50=4, p99=90, p999=1_200, max=1_234, measured=997, histogram=((4, 900), (90, 97))
            ),
            "acknowledged_per_second": 500.0,
            "points": tuple(
                Point(
                    at_seconds=n,
                    acknowledged_per_second=500,
                    visible_per_second=400,
                    behind=100 * n,
                    p50_ms=4,
                    p99_ms=90,
                    max_ms=100,
                )
                for n in range(5)
            ),
            "faults": (FAULT,),
            "started_ms": 10_000,
            "finished_ms": 12_000,
            "judged_ms": 20_000,
            "versions": {"headrace": "1.2.3"},
            **more,
        }
    )


@pytest.fixture(scope="module")
def html() -> str:
    return page(result())


def text_of(html: str) -> str:
    """Return the text that a reader sees, without tags and style."""
    body = re.sub(r"<style>.*?</style>|<svg.*?</svg>", " ", html, flags=re.DOTALL)
    return " ".join(re.sub(r"<[^>]+>", " ", body).split())


def test_it_says_verdict_numbers_faults_and_examples(html: str) -> None:
    text = text_of(html)
    for sentence in (
        "Failed",
        "3 messages are missing on the target (allowed: 0)",
        "the clocks differ",
        "1,000 messages acknowledged",
        "997 arrived",
        "missing acknowledged by the source, not on the target 3 0 ✗",
        "duplicated copies on the target after the first 0 5 ✓",
        "KillDriver 3.5 s 50 % driver-1 orders-source-task-0, orders-source-task-2 2.2 s",
        "r-&lt;0&gt;-0 number 777 t-0-3 offset 654321 east.t-0-3 offset 123456 value "
        "CRC-32 0000abcd CRC-32 0000dcba headers hash 1 hash 2",
        "corrupted east.t-0 5 key 41",
        "Place and order Preserved: each message in its partition, in the order of its key",
        "Allowed missing 0, duplicated 5, reordered 0, corrupted 0, alien 0, replayed any number",
        "starting Spark 7.2 s",
        "1970-01-01 00:00:14 UTC, 2.5 s after the last message",
        "a" * 64 + " (sha256sum manifest.json)",
        "4 ms 90 ms 1,200 ms 1,234 ms any",
        "t-0 &rarr; east.t-0 (8 partitions, 1,000 messages)",
        "headrace 1.2.3",
    ):
        assert sentence in text


def test_it_needs_nothing_but_itself(html: str) -> None:
    assert not re.search(r"(src|href|url|@import)\s*[=(]?\s*[\"']?\s*(https?:)?//", html)
    assert "<script" not in html
    assert "xlink:href" not in html or all(
        link.startswith("#") for link in re.findall(r'xlink:href="([^"]*)"', html)
    )


def test_plots_are_drawings_in_the_colours_of_the_page(html: str) -> None:
    drawings = re.findall(r"<svg.*?</svg>", html, flags=re.DOTALL)
    assert len(drawings) == 8, "four, each for two widths"
    for drawing in drawings:
        spaces = 'xmlns="http://www.w3.org/2000/svg" xmlns:xlink="http://www.w3.org/1999/xlink"'
        ElementTree.fromstring(drawing.replace("<svg ", f"<svg {spaces} ", 1))
        assert "var(--" in drawing
        assert not re.search(r"#0\d0\d0\d", drawing)
    assert all("KillDriver" in drawing for drawing in drawings[:2]), "on the time axis"


def test_what_a_drawing_names_is_its_own(html: str) -> None:
    """One of the two widths is hidden, and its elements cannot be used from outside."""
    drawings = re.findall(r"<svg.*?</svg>", html, flags=re.DOTALL)
    for drawing in drawings:
        names = set(re.findall(r'(?:url\(|xlink:href=")#([^")]+)', drawing))
        assert names
        assert names <= set(re.findall(r'\bid="([^"]+)"', drawing))
        for other in drawings:
            if other is not drawing:
                assert not names & set(re.findall(r'<clipPath id="([^"]+)"', other))


def test_on_a_phone_each_cell_has_the_name_of_its_column(html: str) -> None:
    tables = re.findall(r'<table class="rows">(.*?)</table>', html, flags=re.DOTALL)
    assert len(tables) == 5, "shares, two kinds of examples, faults, latencies"
    for table in tables:
        columns = [text_of(th) for th in re.findall(r"<th\b.*?</th>", table)]
        cells = re.findall(r"<td\b([^>]*)>", table)
        assert len(cells) >= len(columns)
        for cell, column in zip(cells, columns, strict=False):
            assert f'data-column="{column or "what"}"' in cell
        assert all("data-column=" in cell for cell in cells)


def test_paper_is_never_dark_and_shows_the_test(html: str) -> None:
    style = html[html.index("<style>") : html.index("</style>")]
    assert re.findall(r"@media ([^{]*dark[^{]*) \{", style) == [
        "screen and (prefers-color-scheme: dark)"
    ]
    printed = style[style.index("@media print") :]
    assert "details::details-content { content-visibility: visible" in printed


def test_the_same_result_is_the_same_page(html: str) -> None:
    assert page(result()) == html


def test_the_mirrors_own_share_has_its_row_and_its_lines(html: str) -> None:
    own = Latency(p50=2, p99=17, p999=18, max=19, measured=990, histogram=((2, 990),))
    points = tuple(
        point.model_copy(update={"own_p50_ms": 2, "own_p99_ms": 17}) for point in result().points
    )
    with_share = page(result(own_latency_ms=own, points=points))
    assert "the mirror's own share" in with_share
    assert "the mirror's own share 2 ms 17 ms 18 ms 19 ms" in text_of(with_share)
    assert "own share, p99" in with_share
    assert "own share" not in html


def test_the_commits_of_a_flow_are_named_beside_latency(html: str) -> None:
    annotations = {FLOW_LABEL: "orders", COMMIT_INTERVAL_ANNOTATION: "1000"}
    metadata = TEST.metadata.model_copy(update={"annotations": annotations})
    of_transactions = result(test=TEST.model_copy(update={"metadata": metadata}), points=())
    assert "consumers get messages when it commits, every 1,000 ms." in page(
        bounded(of_transactions)
    )
    assert "when it commits" not in html


def test_a_result_without_a_comparison_still_has_a_page() -> None:
    nothing = result(
        verdict=Verdict.INCONCLUSIVE,
        reasons=("there is no manifest",),
        counts=None,
        examples={},
        latency_ms=None,
        acknowledged_per_second=None,
        points=(),
        faults=(),
        topics=(),
        started_ms=None,
        finished_ms=None,
    )
    html = page(nothing)
    assert "Inconclusive there is no manifest" in text_of(html)
    assert "<svg" not in html


def test_a_rehearsed_fail_over_has_its_groups() -> None:
    group = RehearsedGroup(group="rehearsal-7", committed=1_200, reread=3, skipped=0)
    found = result(rehearsal=Rehearsed(groups=(group,), seconds=5.25), points=())
    text = text_of(page(found))
    assert "rehearsal-7 1,200 3 0" in text
    assert "Fail-over delivered again 0 a group, skipped 0 by all groups" in text
    assert (
        "fail-over in 5.2 s: 1 groups resumed at the target, 3 messages delivered again, 0 skipped"
    ) in summary(found, Path("report.html"))


def test_offsets_have_a_line_and_examples_where_they_were_compared(html: str) -> None:
    asked = {"budgets": {"unequalOffsets": 2}}
    moved = EXAMPLE.model_copy(
        update={
            "differs": "offset",
            "changes": (FieldDifference(what="offset", expected="654321", found="123456"),),
        }
    )
    counts = Counts(acknowledged=1_000, unequal_offsets=41)
    test = TEST.model_copy(
        update={"spec": TEST.spec.model_validate(TEST.spec.model_dump() | asked)}
    )
    found = result(
        test=test, counts=counts, examples={FindingType.UNEQUAL_OFFSETS: (moved,)}, points=()
    )
    text = text_of(page(found))
    assert "unequalOffsets copies at another offset than on the source 41 2 ✗" in text
    assert "alien 0, unequalOffsets 2, replayed any number" in text
    assert "t-0-3 offset 654321 east.t-0-3 offset 123456 offset 654321 123456" in text
    assert ", 41 at other offsets\n" in summary(found, Path("report.html"))
    assert "unequalOffsets" not in text_of(html)
    assert "at other offsets" not in summary(result(), Path("report.html"))


def test_a_fault_that_was_not_done_says_why() -> None:
    fault = Fault(step=FAULT.step, error="no driver holds a task")
    assert "KillDriver not injected: no driver holds a task" in text_of(
        page(result(faults=(fault,), points=()))
    )


def test_the_manifest_in_the_page_is_the_test(html: str) -> None:
    shown = re.findall(r"<pre>(apiVersion.*?)</pre>", html, flags=re.DOTALL)[0]
    document = yaml.safe_load(shown.replace("&#39;", "'").replace("&#34;", '"'))
    assert MirrorTest.model_validate(document) == TEST


@pytest.mark.parametrize("version", [result(), result(counts=None)])
def test_a_result_survives_its_document(version: Result) -> None:
    assert Result.model_validate_json(version.model_dump_json(by_alias=True)) == version


NAMES = tuple(f"{n:03}-{'t' * 245}" for n in range(1000))


def with_names(*, annotation: str) -> MirrorTest:
    document = TEST.model_dump(by_alias=True, exclude_unset=True)
    document["spec"]["load"] = {"names": NAMES}
    document["metadata"]["annotations"]["last-applied"] = annotation
    return MirrorTest.model_validate(document)


def test_the_largest_document_is_below_half_a_mebibyte() -> None:
    point = (
        result()
        .points[0]
        .model_copy(
            update={
                "at_seconds": 123_456.7,
                "visible_per_second": 1_234_567.8,
                "behind": 123_456_789,
                "own_p50_ms": 3_600_000,
                "own_p99_ms": 3_600_000,
            }
        )
    )
    latency = result().latency_ms
    assert latency
    place = Place(topic="t" * 249, partition=12_345, offset=123_456_789_012)
    changes = tuple(
        FieldDifference(what=what, expected="x" * letters, found="x" * letters)
        for what, letters in (("topic", 249), ("key", 320), ("headers", 21), ("timestamp", 16))
    )
    long = EXAMPLE.model_copy(update={"topic": "t" * 249, "source": place})
    largest = result(
        examples={
            kind: (
                long.model_copy(
                    update={"changes": changes if kind is FindingType.CORRUPTED else ()}
                ),
            )
            * MAX_EXAMPLES
            for kind in FindingType
        },
        points=(point,) * MAX_POINTS,
        latency_ms=latency.model_copy(
            update={"histogram": ((3_600_000, 123_456_789),) * MAX_POINTS}
        ),
        own_latency_ms=latency.model_copy(update={"histogram": ()}),
        reasons=("x" * 10_000,) * 1_000,
        warnings=("x" * 10_000,) * 1_000,
        faults=(FAULT.model_copy(update={"units": ("u" * 63,) * 1_000}),) * 100,
        test=with_names(annotation="x" * 200_000),
        topics=tuple(MirroredTopic(source=t, target=t, partitions=1_000) for t in NAMES),
        shares=(
            FindingShare(
                kind=FindingType.CORRUPTED,
                topic="t" * 249,
                partition=12_345,
                differs="topic, key, value, headers, timestamp, partition",
                count=123_456_789,
            ),
        )
        * MAX_SHARES,
    )
    cut = bounded(largest)
    assert len(cut.model_dump_json(by_alias=True, indent=1)) < 512 * 1024
    assert cut.reasons[-1] == "and 980 more like these"
    assert cut.warnings[-1] == "900 more topics are not listed"
    assert cut.faults[0].units[-1] == "and 992 more"
    assert cut.flow == largest.flow
    assert Result.model_validate_json(cut.model_dump_json(by_alias=True)) == cut


def test_what_is_small_stays_whole() -> None:
    assert bounded(result()) == result()


def test_the_report_of_the_largest_audit_is_bounded() -> None:
    name = "t" * 249
    place = Place(topic=name, partition=12_345, offset=123_456_789_012)
    topic = TopicAudit(source=name, target=name, source_partitions=5, target_partitions=5)
    ranges = ((123_456_789_012, 123_456_789_012),) * (MAX_RANGES // MAX_AUDITED_TOPICS // 2)
    listed = topic.model_copy(update={"source_ranges": ranges, "target_ranges": ranges})
    excluded = ExcludedRange(
        reason=Exclusion.DELETED_ON_TARGET,
        cluster="c" * 63,
        topic=name,
        partition=12_345,
        first=123_456_789_012,
        last=123_456_789_012,
        count=123_456_789,
    )
    change = FieldDifference(what="timestamp", expected="hash " + "0" * 16, found="hash 1")
    difference = AuditDifference(
        kind=FindingType.CORRUPTED,
        source=place,
        target=place,
        differs="key, value, headers, timestamp",
        changes=(change,) * 4,
        source_record=(
            content := ShownRecord(key=(long := ShownBytes.of(b"\xff" * 500)), value=long)
        ),
        target_record=content,
    )
    unknown = UnknownSchema(
        topic=name, part=RecordPart.VALUE, schema_id=2**32, records=1, partition=12_345, offset=1
    )
    share = FindingShare(kind=FindingType.CORRUPTED, topic=name, partition=12_345, count=1)
    largest = result(
        topics=tuple(MirroredTopic(source=t, target=t, partitions=1_000) for t in NAMES),
        audit=AuditOutcome(
            topics=(listed,) * MAX_AUDITED_TOPICS,
            excluded=(excluded,) * MAX_EXCLUDED,
            schemas=SchemaCheck(records=9, undecodable=9, unknown=(unknown,) * MAX_UNKNOWN_SCHEMAS),
        ),
        differences=(difference,) * (MAX_EXAMPLES * 5),
        shares=(share,) * MAX_SHARES,
        reasons=("x" * 10_000,) * 1_000,
        warnings=("x" * 10_000,) * 1_000,
        checks=(Check(name="c", verdict=Verdict.FAILED, sentences=("x" * 10_000,) * 100),) * 7,
        test=with_names(annotation="x" * 200_000),
    )
    assert len(bounded(largest).model_dump_json(by_alias=True, indent=1)) < 512 * 1024


def test_an_audit_shows_the_content_of_records_and_the_unknown_schema_ids() -> None:
    changed = AuditDifference(
        kind=FindingType.CORRUPTED,
        source=Place(topic="orders", partition=0, offset=7),
        target=Place(topic="copy", partition=0, offset=9),
        differs="value",
        source_record=ShownRecord(key=ShownBytes.of(b"<k>"), value=ShownBytes.of(b"\xff")),
        target_record=ShownRecord(key=ShownBytes.of(b"<k>")),
    )
    unknown = UnknownSchema(
        topic="copy", part=RecordPart.VALUE, schema_id=42, records=1_234, partition=0, offset=5
    )
    checked = SchemaCheck(records=2_000, undecodable=1_234, unknown=(unknown,))
    found = page(result(audit=AuditOutcome(schemas=checked), differences=(changed,), points=()))
    text = text_of(found)
    for sentence in (
        "orders-0 offset 7 key: &lt;k&gt; value: hex ff copy-0 offset 9 key: &lt;k&gt; value: null",
        "2,000 keys and values on the target have a schema id. The registry does not know the ids "
        "of 1,234 of them.",
        "copy Value 42 partition 0 offset 5 1,234",
    ):
        assert sentence in text
    silent = SchemaCheck(problem="the schema registry http://r refuses connections; check it")
    text = text_of(page(result(audit=AuditOutcome(schemas=silent), points=())))
    assert "Unknown: the schema registry http://r refuses connections; check it." in text


def test_an_audit_has_a_row_for_each_topic() -> None:
    topics = [
        TopicAudit(
            source=name,
            target=f"east.{name}",
            source_partitions=1,
            target_partitions=1,
            source_records=1_234,
            target_records=1_230,
            size_bytes=size_bytes,
            compared=1_200,
            excluded=34,
            **counts,
        )
        for name, size_bytes, counts in (
            ("orders", 98_765_432_101, {"missing": 3, "corrupted": 2}),
            ("users", 999, {}),
            ("bills", 1_234, {"alien": 1_000}),
        )
    ]
    test = TEST.model_dump(mode="json", by_alias=True, exclude_unset=True)
    test["spec"] |= {"audit": {"topics": [".*"], "schemas": {"url": "http://r"}}}
    outcome = AuditOutcome(topics=tuple(topics))
    found = result(audit=outcome, test=MirrorTest.model_validate(test), points=())
    text = text_of(page(found))
    for sentence in (
        "topic on the source on the target size compared excluded differences",
        "orders &rarr; east.orders 1,234 1,230 98.8 GB 1,200 34 3 missing, 2 corrupted",
        "users &rarr; east.users 1,234 1,230 999 B 1,200 34 none",
        "bills &rarr; east.bills 1,234 1,230 1.23 kB 1,200 34 1,000 alien",
        "Schema ids at most 0 that nobody can decode",
        "(8 partitions, 1,000 records)",
    ):
        assert sentence in text
