"""Assignors by name, and plug-ins that misbehave."""

import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace

import psutil
import pytest

from headrace.assign import (
    SHIPPED,
    ApplicationState,
    AssignmentError,
    AssignmentUtils,
    DriverState,
    StickyAssignor,
    TaskAssignment,
    TaskId,
    weigh,
)
from headrace.errors import InvalidSpec
from headrace.placement.assignors import (
    Decider,
    Decision,
    InProcess,
    known_assignors,
    open_assignor,
)

T = [TaskId("orders", "SourceTask", n) for n in range(3)]
STATE = ApplicationState.of(
    weigh(dict.fromkeys(T)).values(), [DriverState("a", active=frozenset(T[:2])), DriverState("b")]
)
IN_FORCE = AssignmentUtils.identity(STATE)
PLUG_INS = """
import os, pickle, struct, sys, time
from headrace.assign import *

def answer(state, a, b=(), **others):
    given = {"a": a, "b": b, **others}
    return TaskAssignment({name: DriverAssignment(frozenset(t)) for name, t in given.items()})

def send(reply, length): os.write(int(sys.argv[2]), struct.pack("!i", length) + reply)

class All(TaskAssignor):
    asked = 0
    def assign(self, state):
        self.asked += 1
        print("chatter")
        return answer(state, state.tasks) if self.asked == 1 else answer(state, (), state.tasks)

class Raises:
    def assign(self, state): raise KeyError("no such thing")
class Retries:
    def assign(self, state): raise TaskAssignmentError("lags are not there yet")
class Loops:
    def assign(self, state):
        while True: pass
class Exits:
    def assign(self, state): os._exit(7)
class ExitsInAReply:
    def assign(self, state): send(b"j", 100); os._exit(7)
class Garbles:
    def assign(self, state): send(b"junk", 4); time.sleep(60)
class AnswersNone:
    def assign(self, state):
        reply = pickle.dumps(("answered", None))
        send(reply, len(reply))
        time.sleep(60)
class Twice(All):
    def assign(self, state): return answer(state, state.tasks, state.tasks)
class Forgets(All):
    def assign(self, state): return answer(state, sorted(state.tasks)[:1])
class Stranger(All):
    def assign(self, state): return answer(state, state.tasks, c=())
class NoAnswer(All):
    def assign(self, state): return {"a": 1}
class Malformed(All):
    def assign(self, state): return answer(state, ["orders-source-task-0"])
class RaisesWhenTold(All):
    def on_assignment_computed(self, assignment, state, error): raise ValueError(error)
class Told(All):
    def assign(self, state):
        if self.asked: raise TaskAssignmentError(self.heard)
        self.asked = 1
        return answer(state, state.tasks, state.tasks)
    def on_assignment_computed(self, assignment, state, error): self.heard = error
"""


@pytest.fixture(scope="module", autouse=True)
def installed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Install the plug-ins as pip does."""
    site = tmp_path_factory.mktemp("site")
    names = [
        line.split()[1].rstrip(":").split("(")[0]
        for line in PLUG_INS.splitlines()
        if line.startswith("class")
    ]
    (site / "odd_assignors.py").write_text(PLUG_INS)
    info = site / "odd_assignors-1.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: odd-assignors\nVersion: 1\n")
    entries = [f"{name.lower()} = odd_assignors:{name}" for name in [*names, "Absent"]]
    (info / "entry_points.txt").write_text("\n".join(["[headrace.assignors]", *entries, ""]))
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(site)
        yield


@pytest.fixture
def opened() -> Iterator[list[Decider]]:
    deciders: list[Decider] = []
    yield deciders
    for decider in deciders:
        decider.close()


def ask(opened: list[Decider], name: str, limit_s: float = 20.0) -> Decision:
    opened.append(open_assignor(name, limit_s))
    return opened[-1].decide(STATE)


def test_an_unknown_name_is_answered_with_those_that_are_known() -> None:
    with pytest.raises(
        InvalidSpec, match=r"no assignor stikcy; known here are absent, all, .*sticky"
    ):
        open_assignor("stikcy")
    assert set(known_assignors()) > {"sticky", "cooperative", "round-robin", "loops"}


@pytest.mark.parametrize("name", sorted(SHIPPED))
def test_ours_are_called_here(opened: list[Decider], name: str) -> None:
    decision = ask(opened, name)
    assert (decision.error, decision.reason) == (AssignmentError.NONE, "")
    assert AssignmentUtils.validate(STATE, decision.assignment) is AssignmentError.NONE


def test_a_fault_of_ours_moves_nothing() -> None:
    class Broken(StickyAssignor):
        def assign(self, state: ApplicationState) -> TaskAssignment:
            raise KeyError("inside")

    decision = InProcess("broken", Broken()).decide(STATE)
    assert decision.assignment == IN_FORCE
    assert decision.reason == (
        "assignor broken raised KeyError: 'inside'; the assignment in force stays"
    )


def test_a_plug_in_decides_and_remembers(opened: list[Decider]) -> None:
    first = ask(opened, "all")
    assert (first.error, first.reason) == (AssignmentError.NONE, "")
    assert first.assignment.drivers["a"].active == set(T)
    assert opened[0].decide(STATE).assignment.drivers["b"].active == set(T)


@pytest.mark.parametrize(
    ("name", "error", "sentence"),
    [
        ("raises", "NONE", "assignor raises raised KeyError: 'no such thing'"),
        ("exits", "NONE", "assignor exits ended its process (exit code 7)"),
        ("exitsinareply", "NONE", "assignor exitsinareply ended its process (exit code 7)"),
        ("garbles", "NONE", "assignor garbles sent a reply that cannot be used (UnpicklingError: "),
        ("answersnone", "NONE", "assignor answersnone sent a reply that cannot be used (Attribute"),
        ("absent", "NONE", "assignor absent raised AttributeError: module 'odd_assignors' has no"),
        ("noanswer", "NONE", "assignor noanswer raised TypeError: assign() must return a TaskAs"),
        ("malformed", "NONE", "assignor malformed raised TypeError"),
        (
            "twice",
            "ACTIVE_TASK_ASSIGNED_MULTIPLE_TIMES",
            "assignor twice gave an assignment that cannot be: orders-source-task-0 is given to "
            "driver a and to driver b; the assignment in force stays",
        ),
        ("forgets", "TASK_NOT_ASSIGNED", "assignor forgets gave an assignment that cannot be: 2 t"),
        ("stranger", "UNKNOWN_PROCESS_ID", "assignor stranger gave an assignment that cannot be:"),
    ],
)
def test_a_plug_in_that_gives_no_good_answer(
    opened: list[Decider], name: str, error: str, sentence: str
) -> None:
    decision = ask(opened, name)
    assert decision.assignment == IN_FORCE
    assert decision.error == AssignmentError[error]
    assert decision.reason.startswith(sentence)
    assert decision.reason.endswith("; the assignment in force stays")


def test_plug_in_that_cannot_be_started_is_tried_again(
    opened: list[Decider], monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(sys, "executable", "/nowhere/python")
        decision = ask(opened, "all")
    assert decision.assignment == IN_FORCE
    assert decision.reason.startswith("assignor all could not be started: ")
    assert opened[0].decide(STATE).reason == ""


def test_a_plug_in_that_loops_is_ended(opened: list[Decider]) -> None:
    # The process is started first: the time of its imports is not the plug-in's.
    decision = ask(opened, "loops", limit_s=0.3)
    assert decision.assignment == IN_FORCE
    assert decision.reason == (
        "assignor loops did not answer within 0.3 s; the assignment in force stays"
    )
    assert not children("odd_assignors:Loops")
    assert "did not answer" in opened[0].decide(STATE).reason


def test_a_plug_in_that_cannot_decide_now_is_asked_again_at_once(opened: list[Decider]) -> None:
    decision = ask(opened, "retries")
    assert decision.assignment == replace(IN_FORCE, follow_up_ms=0)
    assert decision.reason.startswith("assignor retries cannot decide now: lags are not there yet")


def test_a_plug_in_hears_what_became_of_its_answer(opened: list[Decider]) -> None:
    assert ask(opened, "told").error is AssignmentError.ACTIVE_TASK_ASSIGNED_MULTIPLE_TIMES
    assert "now: ACTIVE_TASK_ASSIGNED_MULTIPLE_TIMES" in opened[0].decide(STATE).reason


def test_an_answer_is_in_force_whatever_the_plug_in_makes_of_that(opened: list[Decider]) -> None:
    decision = ask(opened, "raiseswhentold")
    assert decision.assignment.drivers["a"].active == set(T)
    assert decision.reason == "assignor raiseswhentold raised ValueError: NONE"


def test_closing_ends_the_process(opened: list[Decider]) -> None:
    ask(opened, "all")
    assert children("odd_assignors:All")
    opened[0].close()
    opened[0].close()
    assert not children("odd_assignors:All")


def test_closing_does_not_wait_for_an_answer(opened: list[Decider]) -> None:
    opened.append(open_assignor("loops", 60))
    with ThreadPoolExecutor() as pool:
        asked = pool.submit(opened[0].decide, STATE)
        deadline = time.monotonic() + 60
        while not children("odd_assignors:Loops"):
            assert time.monotonic() < deadline, "its process did not start within 60 s"
        opened[0].close()
        decision = asked.result(60)
    assert decision.assignment == IN_FORCE
    assert decision.reason.startswith("assignor loops ended its process")


def children(entry: str) -> list[psutil.Process]:
    """Return our child processes in which a plug-in runs."""
    found = []
    for child in psutil.Process().children():
        with suppress(psutil.NoSuchProcess):  # it has just ended
            if entry in " ".join(child.cmdline()):
                found.append(child)
    return found
