"""JUnit XML of a mirror test, for CI systems.

Each check of the verdict is a test case. A failed check is a ``failure``. An inconclusive check is
an ``error`` and not ``skipped``, because CI systems accept skipped tests.
"""

import re
from collections.abc import Iterable
from datetime import UTC, datetime
from xml.etree import ElementTree

from headrace.mirror_test import Check, Result

_ELEMENTS = {"Failed": "failure", "Inconclusive": "error"}
_NOT_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
"""Characters that XML 1.0 cannot contain."""
_NO_CHECKS = "verdict"
"""Name of the only test case if no check was carried out."""


def junit(result: Result) -> str:
    """Return the JUnit XML of a result."""
    checks = result.checks or (
        Check(name=_NO_CHECKS, verdict=result.verdict, sentences=result.reasons),
    )
    started_ms = result.started_ms or result.judged_ms
    suite = _suite(result.test.metadata.name, checks)
    suite.set("time", f"{(result.judged_ms - started_ms) / 1000:.3f}")
    suite.set("timestamp", f"{datetime.fromtimestamp(started_ms / 1000, UTC):%Y-%m-%dT%H:%M:%S}")
    properties = ElementTree.Element("properties")
    for name, value in _facts(result):
        ElementTree.SubElement(properties, "property", name=name, value=_clean(value))
    suite.insert(0, properties)
    out = ElementTree.SubElement(suite, "system-out")
    out.text = _clean("\n".join((f"{result.verdict}: {result.reasons[0]}", *result.warnings)))
    return _text(suite)


def junit_without_verdict(test: str, sentence: str) -> str:
    """Return JUnit XML with one error, for a test that ended without a verdict.

    Args:
        test: Name of the test.
        sentence: Reason why there is no verdict.
    """
    return _text(_suite(test, [_inconclusive(sentence)]))


def _inconclusive(sentence: str) -> Check:
    return Check.model_validate(
        {"name": _NO_CHECKS, "verdict": "Inconclusive", "sentences": [sentence]}
    )


def _suite(name: str, checks: Iterable[Check]) -> ElementTree.Element:
    suite = ElementTree.Element("testsuite", name=name)
    counts = dict.fromkeys(("tests", *_ELEMENTS.values()), 0)
    for check in checks:
        case = ElementTree.SubElement(
            suite, "testcase", classname=f"headrace.{name}", name=check.name, time="0"
        )
        counts["tests"] += 1
        text = _clean("\n".join(check.sentences))
        if element := _ELEMENTS.get(check.verdict):
            counts[element] += 1
            message = text.partition("\n")[0]
            found = ElementTree.SubElement(case, element, message=message, type=check.verdict)
            found.text = text
        elif text:
            ElementTree.SubElement(case, "system-out").text = text
    suite.set("tests", str(counts["tests"]))
    suite.set("failures", str(counts["failure"]))
    suite.set("errors", str(counts["error"]))
    suite.set("skipped", "0")
    return suite


def _facts(result: Result) -> Iterable[tuple[str, str]]:
    yield "verdict", result.verdict
    yield "run", result.run
    if result.flow:
        yield "flow", result.flow
    if result.counts:
        for name, count in result.counts.model_dump(by_alias=True, exclude_none=True).items():
            yield name, str(count)
    for name, version in result.versions.items():
        yield f"version.{name}", version


def _text(suite: ElementTree.Element) -> str:
    suites = ElementTree.Element("testsuites", name="headrace")
    for name in ("tests", "failures", "errors", "skipped"):
        suites.set(name, suite.attrib[name])
    suites.append(suite)
    ElementTree.indent(suites)
    return ElementTree.tostring(suites, encoding="unicode", xml_declaration=True) + "\n"


def _clean(text: str) -> str:
    return _NOT_XML.sub("\N{REPLACEMENT CHARACTER}", text)
