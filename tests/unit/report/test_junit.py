"""JUnit XML of mirror tests, as CI systems read it."""

from typing import Any
from xml.etree import ElementTree

import pytest

from headrace.api import MirrorTest, Verdict
from headrace.mirror_test import Check, Counts, Result
from headrace.report.junit import junit, junit_without_verdict

CLUSTERS: dict[str, Any] = {
    "source": {"alias": "east", "bootstrapServers": "e:1"},
    "target": {"alias": "west", "bootstrapServers": "w:1"},
}
LOAD = MirrorTest.model_validate({"metadata": {"name": "orders-test"}, "spec": CLUSTERS})
AUDIT = MirrorTest.model_validate(
    {
        "metadata": {"name": "migration"},
        "spec": {**CLUSTERS, "targetTopic": "{topic}", "audit": {"topics": [".*"]}},
    }
)


def result(test: MirrorTest, verdict: Verdict, *checks: Check) -> Result:
    return Result(
        verdict=verdict,
        reasons=("the reason",),
        warnings=("the clocks differ",),
        checks=checks,
        run="r",
        test=test,
        counts=Counts(acknowledged=1_000),
        started_ms=1_000,
        judged_ms=3_500,
        versions={"headrace": "0.1.0"},
    )


def check(name: str, verdict: Verdict, *sentences: str) -> Check:
    return Check(name=name, verdict=verdict, sentences=sentences)


@pytest.mark.parametrize(("test", "suite_name"), [(LOAD, "orders-test"), (AUDIT, "migration")])
def test_each_check_is_a_test_case_with_a_stable_name(test: MirrorTest, suite_name: str) -> None:
    failed = result(
        test,
        Verdict.FAILED,
        check("missing", Verdict.FAILED, "3 records are missing <there>", "and more"),
        check("duplicated", Verdict.PASSED, "2 records are repeated (allowed)"),
        check("evidence", Verdict.INCONCLUSIVE, "5 records were not compared"),
        check("alien", Verdict.PASSED),
    )
    root = ElementTree.fromstring(junit(failed))
    assert root.tag == "testsuites"
    [suite] = root
    assert suite.attrib == {
        "name": suite_name,
        "tests": "4",
        "failures": "1",
        "errors": "1",
        "skipped": "0",
        "time": "2.500",
        "timestamp": "1970-01-01T00:00:01",
    }
    assert {root.get(name) for name in ("failures", "errors")} == {"1"}
    cases = suite.findall("testcase")
    assert {case.get("classname") for case in cases} == {f"headrace.{suite_name}"}
    assert {case.get("name"): [child.tag for child in case] for case in cases} == {
        "missing": ["failure"],
        "duplicated": ["system-out"],
        "evidence": ["error"],
        "alien": [],
    }
    [failure] = suite.iter("failure")
    assert failure.attrib == {"message": "3 records are missing <there>", "type": "Failed"}
    assert failure.text == "3 records are missing <there>\nand more"
    facts = {one.get("name"): one.get("value") for one in suite.iter("property")}
    assert facts["verdict"] == "Failed"
    assert facts["acknowledged"] == "1000"
    assert suite.findtext("system-out") == "Failed: the reason\nthe clocks differ"


def test_passed_has_neither_failures_nor_errors() -> None:
    [suite] = ElementTree.fromstring(
        junit(result(AUDIT, Verdict.PASSED, check("missing", Verdict.PASSED)))
    )
    assert (suite.get("tests"), suite.get("failures"), suite.get("errors")) == ("1", "0", "0")


def test_a_result_without_a_comparison_is_an_error() -> None:
    [suite] = ElementTree.fromstring(junit(result(LOAD, Verdict.INCONCLUSIVE)))
    [case] = suite.findall("testcase")
    assert case.get("name") == "verdict"
    error = case.find("error")
    assert error is not None
    assert error.attrib == {"message": "the reason", "type": "Inconclusive"}


def test_an_end_without_a_verdict_is_an_error_and_its_sentence_is_valid_xml() -> None:
    text = junit_without_verdict("t", "the broker sent \x00 and \ud800 & nothing else")
    [suite] = ElementTree.fromstring(text.encode())
    assert suite.get("errors") == "1"
    [error] = suite.iter("error")
    assert error.text == "the broker sent � and � & nothing else"
