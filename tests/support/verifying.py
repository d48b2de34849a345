"""``headrace verify`` as a person has it: a process, what it prints, its report."""

import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from headrace.mirror_test import Result, documents


@dataclass(frozen=True)
class Verified:
    """One that has ended."""

    printed: str
    """On standard output."""
    report: Path
    result: Result


def verify_command(file: Path, report: Path, *options: str) -> list[str]:
    """Judge the MirrorTest in a file."""
    words = [sys.executable, "-m", "headrace", "verify", str(file), "--report", str(report)]
    return [*words, *options]


def verified(folder: Path, test: Mapping[str, Any], *options: str) -> Verified:
    """The whole of it, with the verdict Passed; the file and the report's folder are in
    ``folder``."""
    file, report = folder / "test.yaml", folder / "report"
    file.write_text(yaml.safe_dump(test))
    command = verify_command(file, report, *options)
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    return Verified(ended.stdout, report, result_in(report))


def result_in(report: Path) -> Result:
    """What a folder's ``report.json`` says."""
    return Result.model_validate_json((report / documents.REPORT).read_text())
