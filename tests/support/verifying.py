"""``headrace verify`` as users see it: a process, its output, its report."""

import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import yaml

from headrace.mirror_test import Result, documents


@dataclass(frozen=True)
class Verified:
    """A run of ``headrace verify`` that has ended."""

    printed: str
    """Standard output."""
    report: Path
    result: Result


def verify_command(file: Path, report: Path, *options: str) -> list[str]:
    """Judge the MirrorTest in a file."""
    words = [sys.executable, "-m", "headrace", "verify", str(file), "--report", str(report)]
    return [*words, *options]


def verified(folder: Path, test: Mapping[str, Any], *options: str) -> Verified:
    """Run a mirror test that must pass; the file and the report are in ``folder``."""
    file, report = folder / "test.yaml", folder / "report"
    file.write_text(yaml.safe_dump(test))
    command = verify_command(file, report, *options)
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    return Verified(ended.stdout, report, result_in(report))


def result_in(report: Path) -> Result:
    """Return the result in a folder's ``report.json``."""
    return Result.model_validate_json((report / documents.REPORT).read_text())


def junit_outcomes(junit: Path) -> dict[str, str]:
    """Return the outcome of each test case: the name of its element, or "" if it has none."""
    [suite] = ElementTree.parse(junit).getroot()
    cases = suite.findall("testcase")
    return {case.attrib["name"]: "".join(child.tag for child in case) for case in cases}
