"""Rules for the files of the repository."""

import re
import runpy
import tomllib
from itertools import chain
from pathlib import Path

import pytest
import yaml
from packaging.requirements import Requirement

from headrace.api import Load
from headrace_spark.live_metrics import ArrivalFigures, LoadFigures

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
LOCK = (ROOT / "requirements.lock").read_text()
PAGES = [
    ROOT / "README.md",
    ROOT / "CONTRIBUTING.md",
    ROOT / "charts" / "headrace" / "README.md",
    *sorted((ROOT / "docs").glob("*.md")),
]


def test_operator_is_no_package() -> None:
    """With operator/__init__.py, `import collections` fails in a process started in the clone."""
    assert not (ROOT / "operator" / "__init__.py").exists()


def test_the_lock_names_no_index_and_pins_everything_by_hash() -> None:
    entries = re.split(r"\n(?=\S)", re.sub(r"(?m)^ *#.*\n", "", LOCK).strip())
    assert len(entries) > 30
    assert [entry for entry in entries if "==" not in entry or "--hash=sha256:" not in entry] == []
    assert "://" not in LOCK


def test_the_lock_has_what_the_project_asks_for() -> None:
    pinned = dict(re.findall(r"(?m)^([a-z0-9-]+)==(\S+)", LOCK))
    asked = [*PROJECT["dependencies"], *chain(*PROJECT["optional-dependencies"].values())]
    wanted = [one for one in map(Requirement, asked) if one.name != PROJECT["name"]]
    unmet = [
        str(one)
        for one in wanted
        if not one.specifier.contains(pinned.get(one.name.lower().replace("_", "-"), "0"))
    ]
    assert unmet == [], "run `make lock`"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_pages_name_make_targets_and_files_that_exist(page: Path) -> None:
    text = page.read_text()
    targets = set(re.findall(r"(?m)^([a-z0-9-]+):", (ROOT / "Makefile").read_text()))
    assert set(re.findall(r"(?m)(?:`|^ *)make ([a-z0-9-]+)", text)) <= targets
    links = re.findall(r"\]\((?!https?:|#)([^)#]+)", text)
    assert [link for link in links if not (page.parent / link).exists()] == []


def test_the_tests_that_show_the_faults_exist() -> None:
    """They are named by their files or functions."""
    named = set(re.findall(r"`(test_\w+)`", (ROOT / "docs" / "faults.md").read_text()))
    files = list((ROOT / "tests").rglob("test_*.py"))
    found = {name for file in files for name in re.findall(r"def (test_\w+)", file.read_text())}
    assert len(named) > 50
    assert named - found - {file.stem for file in files} == set()


def test_the_files_that_a_contributor_is_sent_to_exist() -> None:
    text = (ROOT / "CONTRIBUTING.md").read_text()
    files = set(re.findall(r"`((?:operator|docs|charts|tests|spark-jobs)/[\w./-]+)`", text))
    assert len(files) > 25
    assert [file for file in sorted(files) if not (ROOT / file).exists()] == []


def test_the_rooms_are_listed_and_drawn_as_the_contracts_have_them() -> None:
    rooms = runpy.run_path(str(ROOT / "docs" / "rooms.py"))
    assert rooms["page"]() == rooms["PAGE"].read_text(), "run `make generate`"


def test_a_room_has_one_purpose() -> None:
    """The purpose is a sentence without "and"."""
    rooms = runpy.run_path(str(ROOT / "docs" / "rooms.py"))
    purposes = re.findall(r"(?m)^\| `\w+` \| (.*?) \|", rooms["table"]())
    assert len(purposes) > 15
    assert [one for one in purposes if re.search(r"\band\b", one) or not one.endswith(".")] == []


def test_the_metrics_page_has_what_the_metrics_say_of_themselves() -> None:
    page = runpy.run_path(str(ROOT / "docs" / "metrics.py"))
    assert page["page_with"](page["tables"]()) == page["PAGE"].read_text(), "run `make generate`"


def test_the_chart_has_the_version_of_the_project() -> None:
    chart = yaml.safe_load((ROOT / "charts" / "headrace" / "Chart.yaml").read_text())
    assert {chart["version"], chart["appVersion"]} == {PROJECT["version"]}


def test_the_dashboards_are_those_of_the_page() -> None:
    """They also use only metrics that are served."""
    script = runpy.run_path(str(ROOT / "docs" / "dashboards.py"))
    files = {file.name: file.read_text() for file in script["FOLDER"].iterdir()}
    assert script["documents"]() == files, "run `make generate`"
    assert script["panels_of_runs"]() == script["OF_RUNS"].read_text(), "run `make generate`"
    metrics = runpy.run_path(str(ROOT / "docs" / "metrics.py"))
    served = {metric.name for section in metrics["SECTIONS"].values() for metric in section}
    of_jobs = "".join(figures.text() for figures in (LoadFigures(Load(), []), ArrivalFigures()))
    served |= set(re.findall("# TYPE ([a-z_]+) ", of_jobs))
    asked = set(re.findall(r"\b((?!process_)[a-z_]+)\{", script["PAGES"].read_text()))
    without_ends = {re.sub("_(bucket|count|sum)$", "", name) for name in asked - served}
    assert without_ends - served == set()
