"""Names and phrases that were given up stay given up."""

import ast
import re
import tokenize
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).parents[2]
SOURCES = [
    file
    for folder in ("operator/headrace", "spark-jobs")
    for file in sorted((ROOT / folder).rglob("*.py"))
]

ROOMS = {"herder", "scheduling"}
"""Packages: `herder` held the code of three processes, `scheduling` stood beside spec.schedule."""
MODULES = {
    "fence",
    "flight",
    "gathering",
    "hold",
    "leash",
    "pulse",
    "shell",
    "sight",
    "trouble",
    "unit",
    "world",
}
PATHS = {"driver/units.py", "controller/units.py", "control/unit_rows.py"}
"""Modules that had one name and three views of the units."""
DEFINITIONS = {
    "Breakable": "FaultInjector",
    "Fence": "EpochFence",
    "Flight": "InFlightWindow",
    "Hit": "Injection",
    "Hold": "Ownership",
    "LocalFlow": "LocalInjector",
    "Lost": "OwnershipLost",
    "NotLetIn": "AccessDenied",
    "Pulse": "StallDetector",
    "Schedule": "PlacementDecision",
    "Scheduler": "Placer",
    "Seen": "FlowSnapshot",
    "Told": "FaultReporter",
    "Trouble": "PodProblem",
    "Unit": "ThreadedUnit",
    "World": "ClusterCache",
    "_heirs": "the drivers that take over",
    "aside": "release_pool",
    "beside": "restore_pool",
    "busiest": "target_driver",
    "complaint": "why_behind",
    "hand_on": "transfer",
    "leash": "parent_death_signal",
    "let_go": "release",
    "publish": "put_tasks",
    "saying": "with_conditions",
    "shell": "kopf_watch",
    "sight": "access_check",
    "turn": "run_once",
    "world": "cluster_cache",
}
"""Classes and functions, with the name that each has now."""
ATTRIBUTES = {
    "amiss": "problems",
    "beside": "restore_pool",
    "busiest": "target_driver",
    "complaint": "why_behind",
    "homeless": "unassigned",
    "keeping": "cordoned",
    "leash": "parent_death_signal",
    "sight": "access_check",
    "taking": "schedulable",
    "world": "cluster_cache",
}
"""Whatever is assigned to, and parameters."""
WORDS = {
    "heard": "received, reported",
    "look": "poll, check",
    "looked": "polled, checked",
    "looks": "polls, checks",
    "said": "message, output, reported",
    "sight": "access_check",
    "strange": "invalid, unknown",
    "told": "reported, assigned",
}
"""Words of names of variables, parameters, attributes, classes and functions."""
PHRASES = {
    r"who runs what": "the assignment",
    r"mend(s|ed|ing)?": "recover, correct, repair",
    r"anew": "again",
    r"(stands?|stood|standing) still": "stalls, is frozen",
    r"as it lies": "editable",
    r"(no|without a) word": "no heartbeat",
    r"(came|comes?) of (it|them|each|that)": "the outcome",
    r"became of (it|them|each)": "the outcome",
    r"(lets?|letting) ((a|an|its|the) )?(\w+ )?go(?! on)": "release",
    r"hand(s|ed|ing)? (it |them )?on": "transfer",
    r"strange": "invalid, unknown",
    r"amiss": "a problem",
    r"homeless": "unassigned",
    r"hear(s|d|ing)?": "receive",
    r"told": "reported, received",
    r"said": "reported",
    r"tell(s|ing)? (of|the|it|them|each|every)(?! apart)": "report, show, send",
    r"(first|next|each|every) look": "poll",
    r"between (two )?looks": "between polls",
    r"look(s|ed|ing)? (at|into|after|every|again|closer|no more)": "poll, check, inspect",
    r"falls? silent": "sends no heartbeat",
    r"(new|next) life": "incarnation",
    r"in the clear": "in plain text",
    r"asks? who is there": "authenticates",
}
"""Of docs, messages and comments, with the words that are used now."""
PAGES = [
    ROOT / "README.md",
    ROOT / "CONTRIBUTING.md",
    ROOT / "CHANGELOG.md",
    *sorted((ROOT / "docs").glob("*.md")),
    *sorted((ROOT / "docs").glob("*.yaml")),
    *(file for file in sorted((ROOT / "charts").rglob("*")) if file.is_file()),
    *sorted((ROOT / "examples").rglob("*.yaml")),
]
ONE_MEANING = {"Conflict", "Facts", "Plan", "Step", "Verdict"}
"""Classes that were there twice, with two meanings."""


class Names(NamedTuple):
    defined: Sequence[str]
    """Classes and functions."""
    assigned: Sequence[str]
    """Variables, attributes and parameters."""


@cache
def names(file: Path) -> Names:
    defined, assigned = [], []
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            defined.append(node.name)
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            assigned.append(node.id)
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            assigned.append(node.attr)
        elif isinstance(node, ast.arg):
            assigned.append(node.arg)
    return Names(defined, assigned)


def test_no_retired_room_or_module_is_back() -> None:
    files = [file.relative_to(ROOT) for file in SOURCES]
    assert len(files) > 200
    assert [str(file) for file in files if ROOMS & set(file.parts)] == []
    assert [str(file) for file in files if file.stem in MODULES] == []
    assert [str(file) for file in files if "/".join(file.parts[-2:]) in PATHS] == []


def test_no_retired_name_is_back() -> None:
    back = []
    for file in SOURCES:
        defined, assigned = names(file)
        found = {name: DEFINITIONS[name] for name in defined if name in DEFINITIONS}
        found |= {name: ATTRIBUTES[name] for name in assigned if name in ATTRIBUTES}
        back += [f"{file.relative_to(ROOT)}: {old}: now {new}" for old, new in found.items()]
    assert back == []


def retired_words(name: str) -> set[str]:
    return WORDS.keys() & set(name.lower().split("_"))


def test_no_retired_word_is_back_in_a_name() -> None:
    tools = [file for folder in ("tools", "docs") for file in (ROOT / folder).rglob("*.py")]
    assert tools
    back = []
    for file in (*SOURCES, *tools):
        words = set[str]().union(*map(retired_words, (*names(file).defined, *names(file).assigned)))
        back += [f"{file.relative_to(ROOT)}: {word}: now {WORDS[word]}" for word in words]
    assert back == []


@pytest.mark.parametrize(
    ("name", "found"),
    [("said", True), ("_told", True), ("LOOK_EVERY_S", True), ("lookup", False), ("seen", False)],
)
def test_retired_words_are_found_in_names(name: str, *, found: bool) -> None:
    assert bool(retired_words(name)) == found


def test_a_class_of_two_meanings_has_one_now() -> None:
    found = [name for file in SOURCES for name in names(file).defined if name in ONE_MEANING]
    assert sorted(found) == sorted(set(found))


def test_the_glossary_has_few_words() -> None:
    page = (ROOT / "docs" / "glossary.md").read_text()
    words = re.findall(r"(?m)^\| (?!word|---)([a-z ]+) \|", page)
    assert "driver" in words
    assert len(words) < 15


def prose(file: Path) -> str:
    """Comments and strings of a module, else the whole file, on one line."""
    if file.suffix != ".py":
        return " ".join(file.read_text().split())
    kinds = {tokenize.COMMENT, tokenize.STRING, getattr(tokenize, "FSTRING_MIDDLE", -1)}
    with file.open("rb") as lines:
        found = [token.string for token in tokenize.tokenize(lines.readline) if token.type in kinds]
    return " ".join(re.sub(r"[#\"']", " ", " ".join(found)).split())


def test_no_retired_phrase_is_back() -> None:
    back = [
        f"{file.relative_to(ROOT)}: ...{text[max(0, hit.start() - 40) : hit.end() + 20]}...: {now}"
        for file in (*PAGES, *SOURCES)
        for text in [prose(file)]
        for phrase, now in PHRASES.items()
        for hit in re.finditer(rf"\b{phrase}\b", text, re.IGNORECASE)
    ]
    assert back == []


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("x = 1  # it is made again\n", False),
        ("anew = 1\n", False),
        ("x = 1  # it is made anew\n", True),
        ('x = "it stands "\n"still"\n', True),
        ('x = f"{y} stands still"\n', True),
    ],
)
def test_phrases_are_found_in_prose_only(tmp_path: Path, text: str, *, found: bool) -> None:
    (tmp_path / "module.py").write_text(text)
    hits = [one for one in PHRASES if re.search(rf"\b{one}\b", prose(tmp_path / "module.py"))]
    assert bool(hits) == found
