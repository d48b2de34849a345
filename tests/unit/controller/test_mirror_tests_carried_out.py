"""MirrorTests that the operator runs on an API server that rejects, fails and forgets."""

import asyncio
import json
from collections.abc import Callable
from copy import deepcopy
from typing import Any, cast

import pytest

from headrace.api import PAUSED_BY_ANNOTATION
from headrace.controller import FixedRole
from headrace.controller.events import EventRecorder
from headrace.controller.mirror_tests import (
    Images,
    MirrorTestReconciler,
    TestSettings,
)
from headrace.errors import HeadraceError
from headrace.k8s import (
    Client,
    Conflict,
    Forbidden,
    Kind,
    Object,
    ObjectInvalid,
    Objects,
    Unavailable,
    kind_of,
)
from headrace.k8s.kinds import CONFIG_MAP, EVENT, FLOW, JOB, MIRROR_TEST

MOMENT = "2020-01-01T12:00:00Z"


class Server:
    """API server with one namespace that stores written objects."""

    def __init__(self, *objects: Object) -> None:
        self.objects = {(kind_of(one), one["metadata"]["name"]): one for one in objects}
        self.refuses: Callable[[str, Kind, str], HeadraceError | None] = lambda *_: None
        """Error with which it answers a verb on a kind and a name, or None."""

    def _check(self, verb: str, kind: Kind, name: str) -> None:
        if error := self.refuses(verb, kind, name):
            raise error

    async def get(self, kind: Kind, namespace: str, name: str) -> Object | None:
        self._check("get", kind, name)
        return deepcopy(self.objects.get((kind, name)))

    async def list(self, kind: Kind, namespace: str, *, labels: str = "") -> Objects:
        self._check("list", kind, "")
        return [deepcopy(one) for (of, _), one in self.objects.items() if of is kind]

    async def create(self, object: Object) -> Object:
        kind, name = kind_of(object), object["metadata"]["name"]
        self._check("create", kind, name)
        if (kind, name) in self.objects:
            raise Conflict(f"{name} already exists")
        made = deepcopy(object)
        made["metadata"]["creationTimestamp"] = MOMENT
        self.objects[kind, name] = made
        return made

    async def apply(self, object: Object, *, manager: str, subresource: str = "") -> Object:
        kind, name = kind_of(object), object["metadata"]["name"]
        self._check(f"apply {subresource}".strip(), kind, name)
        if subresource:
            self.objects[kind, name]["status"] = deepcopy(object["status"])
        else:
            self.objects[kind, name] = deepcopy(object)
        return self.objects[kind, name]

    async def patch(self, kind: Kind, namespace: str, name: str, patch: Object) -> Object:
        self._check("patch", kind, name)
        kept = self.objects[kind, name]
        for part, changed in patch.items():
            kept[part] = {**kept.get(part, {}), **changed}
        return kept

    async def delete(self, kind: Kind, namespace: str, name: str) -> bool:
        self._check("delete", kind, name)
        return self.objects.pop((kind, name), None) is not None


UID = "5d1f0000-0000-0000-0000-000000000000"
RUN = "200101-120000-5d1f"


def a_test(**spec: Any) -> Object:
    clusters = {
        "source": {"alias": "east", "bootstrapServers": "e:1"},
        "target": {"alias": "west", "bootstrapServers": "w:1"},
    }
    return {
        "apiVersion": "headrace.dev/v1beta1",
        "kind": "MirrorTest",
        "metadata": {
            "name": "nightly",
            "namespace": "kafka",
            "uid": UID,
            "generation": 1,
            "creationTimestamp": MOMENT,
        },
        "spec": {**({} if "flowName" in spec else clusters), **spec},
    }


class Carried:
    """Test ``nightly``, with the reconciler that runs it."""

    def __init__(self, *objects: Object, **settings: Any) -> None:
        self.server = Server(*objects)
        client = cast(Client, self.server)
        self._reconciler = MirrorTestReconciler(
            client,
            EventRecorder(client, "operator"),
            TestSettings(Images("spark"), **settings),
            "operator",
        )

    def reconcile(self, name: str = "nightly") -> float | None:
        return asyncio.run(self._reconciler.reconcile(("kafka", name)))

    @property
    def object(self) -> Object:
        return self.server.objects[MIRROR_TEST, "nightly"]

    @property
    def status(self) -> dict[str, Any]:
        found: dict[str, Any] = self.object.get("status", {})
        return found

    @property
    def ready(self) -> dict[str, str]:
        return next(one for one in self.status["conditions"] if one["type"] == "Ready")

    @property
    def jobs(self) -> set[str]:
        return {name for kind, name in self.server.objects if kind is JOB}

    def refuse(self, verb: str, kind: Kind, error: HeadraceError) -> None:
        """Reject only this verb on objects of this kind, with ``error``."""
        self.server.refuses = lambda *asked: error if asked[:2] == (verb, kind) else None

    def refuse_nothing(self) -> None:
        self.server.refuses = lambda *_: None


def test_a_conflict_is_no_job_unless_there_is_one() -> None:
    it = Carried(a_test())
    it.refuse("create", JOB, Conflict("the object has been modified: resourcequotas many"))
    with pytest.raises(Conflict, match="resourcequotas"):
        it.reconcile()
    assert (it.jobs, it.status) == (set(), {})
    it.refuse_nothing()
    it.reconcile()
    assert it.jobs == {"nightly-probe"}
    assert (it.status["phase"], it.ready["message"]) == ("Pending", "starting the probe")


def test_a_conflict_is_no_scheduled_run_unless_there_is_one() -> None:
    def runs(it: Carried) -> list[str]:
        return [name for kind, name in it.server.objects if kind is MIRROR_TEST][1:]

    it = Carried(a_test(schedule="0 0 1 1 *"))
    it.refuse("create", MIRROR_TEST, Conflict("the object has been modified: resourcequotas many"))
    with pytest.raises(Conflict, match="resourcequotas"):
        it.reconcile()
    assert (runs(it), it.status) == ([], {})
    it.refuse("apply status", MIRROR_TEST, Unavailable("is away"))
    with pytest.raises(Unavailable):
        it.reconcile()
    it.refuse_nothing()
    it.reconcile()
    (run,) = runs(it)
    it.server.objects[MIRROR_TEST, run]["status"] = {"phase": "Finished", "verdict": "Passed"}
    assert "lastScheduleTime" not in it.status
    it.reconcile()  # the run is still due, although an earlier reconcile created it
    assert (runs(it), "lastScheduleTime" in it.status) == ([run], True)


def of_test(kind: Kind, name: str, **more: Any) -> Object:
    """Return an object that belongs to ``nightly``."""
    metadata = {"name": name, "namespace": "kafka", "creationTimestamp": MOMENT}
    owner = {"uid": UID, "kind": "MirrorTest", "name": "nightly"}
    return {
        "apiVersion": kind.api_version,
        "kind": kind.name,
        "metadata": metadata | {"ownerReferences": [owner]},
        **more,
    }


def a_job(stage: str) -> Object:
    return of_test(JOB, f"nightly-{stage}", status={"active": 1, "ready": 1})


def test_jobs_stay_until_the_verdict_is_written() -> None:
    it = Carried(a_test() | {"status": {"phase": "Running"}}, a_job("probe"))
    it.refuse("apply status", MIRROR_TEST, Unavailable("is away"))
    with pytest.raises(Unavailable):
        it.reconcile()
    assert (it.jobs, it.status) == ({"nightly-probe"}, {"phase": "Running"})
    it.refuse_nothing()
    it.reconcile()
    judged = it.status
    assert (judged["verdict"], judged["startTime"]) == ("Inconclusive", judged["completionTime"])
    it.refuse("delete", JOB, Forbidden("may not delete jobs"))
    with pytest.raises(Forbidden):
        it.reconcile()
    assert (it.jobs, it.status) == ({"nightly-probe"}, judged)
    it.refuse_nothing()
    assert it.reconcile() is None
    assert (it.jobs, it.status) == (set(), judged)


def test_the_verifier_that_has_reported_ends_by_itself() -> None:
    finished = {"phase": "Finished", "verdict": "Passed", "report": "nightly-report"}
    it = Carried(a_test() | {"status": finished}, a_job("probe"), a_job("verify"))
    it.reconcile()
    assert it.jobs == {"nightly-verify"}


def test_a_test_that_is_over_goes_after_its_time_whatever_is_refused() -> None:
    over = {"phase": "Finished", "verdict": "Passed", "completionTime": MOMENT}
    it = Carried(a_test(ttlSecondsAfterFinished=60) | {"status": over}, a_job("probe"))
    it.refuse("list", JOB, Forbidden("may not list jobs"))
    assert it.reconcile() is None
    assert (MIRROR_TEST, "nightly") not in it.server.objects


def test_what_was_refused_is_begun_with_the_spec_as_it_is_by_then() -> None:
    it = Carried(a_test(podTemplate={"nodeSelector": {"disk": "fast"}}))
    it.refuse("create", JOB, ObjectInvalid("nodeSelector: Invalid value"))
    it.reconcile()
    assert (it.ready["reason"], it.ready["message"]) == ("Refused", "nodeSelector: Invalid value")
    assert "startTime" not in it.status  # so that the API server lets its spec be changed
    it.object["spec"] = a_test(settleSeconds=7)["spec"]
    it.refuse_nothing()
    it.reconcile()
    assert (it.jobs, it.ready["reason"]) == ({"nightly-probe"}, "TestRunning")
    kept = json.loads(it.server.objects[CONFIG_MAP, "nightly-run"]["data"]["test.json"])
    assert (kept["spec"]["settleSeconds"], kept["spec"]["podTemplate"]["nodeSelector"]) == (7, {})
    assert "startTime" in it.status


FLOW_OF_A_TEST = {
    "apiVersion": "headrace.dev/v1beta1",
    "kind": "ReplicationFlow",
    "metadata": {"name": "orders", "namespace": "kafka"},
    "spec": a_test()["spec"] | {"topics": {"include": [".*"]}},
    "status": {"conditions": [{"type": "Ready", "status": "True", "reason": "Running"}]},
}


def paused_flow(by: str) -> Object:
    flow = deepcopy(FLOW_OF_A_TEST)
    flow["metadata"]["annotations"] = {PAUSED_BY_ANNOTATION: by}
    flow["spec"]["state"] = "Paused"
    return flow


ROLE = FixedRole("ClusterRole", "chaos")
PAUSE = {"action": "PauseFlow", "atPercent": 50, "seconds": 600}
FAILED = {"type": "Failed", "status": "True", "lastTransitionTime": MOMENT}
KILLED = {"status": {"conditions": [FAILED]}}


@pytest.mark.parametrize("verdict", [None, "Inconclusive"])
def test_the_flow_that_a_killed_job_of_chaos_left_paused_is_resumed(verdict: str | None) -> None:
    test = a_test(flowName="orders", chaos=[PAUSE]) | {
        "status": {"phase": "Running"} | ({"verdict": verdict} if verdict else {})
    }
    it = Carried(test, paused_flow("nightly"), a_job("produce"), a_job("chaos"), role=ROLE)
    flow = it.server.objects[FLOW, "orders"]
    it.reconcile()
    assert flow["spec"]["state"] == "Paused", "the Job may still resume it"
    it.server.objects[JOB, "nightly-chaos"] = a_job("chaos") | KILLED
    it.reconcile()
    assert flow["spec"]["state"] == "Running"
    assert flow["metadata"]["annotations"] == {PAUSED_BY_ANNOTATION: None}


def test_a_flow_that_somebody_else_has_paused_stays_paused() -> None:
    test = a_test(flowName="orders", chaos=[PAUSE]) | {"status": {"phase": "Running"}}
    it = Carried(test, paused_flow("weekly"), a_job("chaos") | KILLED, role=ROLE)
    it.reconcile()
    assert it.server.objects[FLOW, "orders"]["spec"]["state"] == "Paused"


@pytest.mark.parametrize("topics", [{"include": ["("]}, {"include": ["payments"]}])
def test_what_becomes_of_the_flow_changes_nothing_for_a_test_under_way(
    topics: dict[str, Any],
) -> None:
    it = Carried(a_test(flowName="orders"), deepcopy(FLOW_OF_A_TEST))
    it.reconcile()
    kept = deepcopy(it.server.objects[CONFIG_MAP, "nightly-run"])
    it.server.objects[FLOW, "orders"]["spec"]["topics"] = topics
    it.server.objects[JOB, "nightly-probe"]["status"] = {"ready": 1}
    it.reconcile()
    assert (it.ready["message"], len(it.jobs)) == ("sending the load", 2)
    report = {"run": RUN, "verdict": "Passed", "reasons": ["all is well"]}
    it.server.objects[CONFIG_MAP, "nightly-report"]["data"] = {"report.json": json.dumps(report)}
    it.reconcile()
    assert it.status["verdict"] == "Passed"
    assert it.server.objects[CONFIG_MAP, "nightly-run"] == kept


def test_a_test_under_way_whose_jobs_are_gone_ends_without_its_flow() -> None:
    flow = FLOW_OF_A_TEST | {"spec": {}}
    it = Carried(a_test(flowName="orders") | {"status": {"phase": "Running"}}, flow)
    it.reconcile()
    assert it.status["verdict"] == "Inconclusive"


@pytest.mark.parametrize(
    ("status", "reason"), [({"verdict": "Passed"}, "Scheduled"), ({}, "InvalidSpec")]
)
def test_a_run_that_is_over_and_not_understood_keeps_no_schedule_from_the_next(
    status: dict[str, str], reason: str
) -> None:
    run = of_test(MIRROR_TEST, "nightly-1", spec={"fromLater": True}, status=status)
    it = Carried(a_test(schedule="@yearly"), run)
    it.reconcile()
    assert it.ready["reason"] == reason


def test_a_load_is_ended_by_an_annotation() -> None:
    """Its Job detects a file beside the test."""
    it = Carried(a_test())
    it.reconcile()
    probe = it.server.objects[JOB, "nightly-probe"]
    probe["status"] = {"ready": 1, "active": 1}
    it.reconcile()
    assert "nightly-produce" in it.jobs
    run = it.server.objects[CONFIG_MAP, "nightly-run"]
    assert "end-load" not in run["data"]
    it.object["metadata"]["annotations"] = {"headrace.dev/end-load": "now"}
    it.reconcile()
    run = it.server.objects[CONFIG_MAP, "nightly-run"]
    assert run["data"]["end-load"] == ""
    assert "test.json" in run["data"]
    it.refuse("patch", CONFIG_MAP, Forbidden("once is enough"))
    it.reconcile()


@pytest.mark.parametrize(
    ("settings", "spec", "message"),
    [
        ({"refused_namespace": "kafka"}, {}, "refused in namespace kafka"),
        ({"custom_images": False}, {"spark": {"image": "mine"}}, "no image but its own"),
        (
            {"custom_images": False},
            {"spark": {"image": "mine"}, "schedule": "* * * * *"},
            "no image but its own",
        ),
    ],
)
def test_a_test_that_the_operator_is_not_to_carry_out_is_refused(
    settings: dict[str, Any], spec: Object, message: str
) -> None:
    it = Carried(a_test(**spec), **settings)
    it.reconcile()
    assert (it.ready["status"], it.ready["reason"]) == ("False", "Forbidden")
    assert message in it.ready["message"]
    assert {kind.name for kind, _ in it.server.objects} == {"MirrorTest", "Event"}
    allowed = Carried(a_test(**spec))
    allowed.reconcile()
    assert allowed.ready["reason"] != "Forbidden"


def scheduled_run(it: Carried, **load: Any) -> str:
    """Let the schedule start a run that sends ``load`` and ends, and return its name."""
    it.object["spec"]["load"] = load
    it.reconcile()
    name: str
    (name,) = [name for kind, name in it.server.objects if kind is MIRROR_TEST][1:]
    run = it.server.objects[MIRROR_TEST, name]
    run["metadata"] |= {"uid": "7a1f0000-0000-0000-0000-000000000000", "generation": 1}
    it.reconcile(name)
    run["status"] = {"phase": "Finished", "verdict": "Failed"}
    return name


def a_schedule() -> Carried:
    return Carried(a_test(schedule="0 0 1 1 *", failedTestsHistoryLimit=0))


@pytest.mark.parametrize("how", ["Complete", "Failed"])
def test_a_run_is_deleted_when_the_job_that_deletes_its_topics_has_ended(how: str) -> None:
    it = a_schedule()
    name = scheduled_run(it, topics=1)
    assert it.reconcile() == 10
    assert f"{name}-clean-up" in it.jobs
    it.reconcile()
    assert (MIRROR_TEST, name) in it.server.objects, "its Job has not ended"
    ended = {"type": how, "status": "True", "message": "no route to west"}
    it.server.objects[JOB, f"{name}-clean-up"]["status"] = {"conditions": [ended]}
    it.reconcile()
    assert (MIRROR_TEST, name) not in it.server.objects
    notes = [one["note"] for (kind, _), one in it.server.objects.items() if kind is EVENT]
    left = f"the topics of run {name} may be left: Job {name}-clean-up: no route to west"
    assert (left in notes) == (how == "Failed")


def test_a_run_whose_load_names_its_topics_is_deleted_at_once() -> None:
    it = a_schedule()
    name = scheduled_run(it, names=["orders"])
    it.reconcile()
    assert (MIRROR_TEST, name) not in it.server.objects
    assert f"{name}-clean-up" not in it.jobs


def test_a_run_that_may_not_delete_its_topics_is_kept_and_says_so() -> None:
    it = a_schedule()
    name = scheduled_run(it, topics=1)
    it.refuse("create", JOB, Forbidden("jobs is forbidden"))
    it.reconcile()
    assert (MIRROR_TEST, name) in it.server.objects
    notes = [one["note"] for (kind, _), one in it.server.objects.items() if kind is EVENT]
    assert f"the topics of run {name} may be left: jobs is forbidden" in notes


def test_run_whose_topics_cannot_be_known_any_more_is_deleted() -> None:
    """After an upgrade, for example, the ConfigMap of an old run may be unreadable."""
    it = a_schedule()
    name = scheduled_run(it, topics=1)
    it.server.objects[CONFIG_MAP, f"{name}-run"]["data"] = {}
    it.reconcile()
    assert (MIRROR_TEST, name) not in it.server.objects
    notes = [one["note"] for (kind, _), one in it.server.objects.items() if kind is EVENT]
    left = f"the topics of run {name} may be left: ConfigMap {name}-run, which stores"
    assert any(note.startswith(left) for note in notes)


def test_a_scheduled_run_deletes_its_topics_before_its_time_to_live_ends_it() -> None:
    it = a_schedule()
    name = scheduled_run(it, topics=1)
    run = it.server.objects[MIRROR_TEST, name]
    run["spec"]["ttlSecondsAfterFinished"] = 0
    run["status"]["completionTime"] = MOMENT
    it.reconcile(name)
    assert f"{name}-clean-up" in it.jobs
    it.server.objects[JOB, f"{name}-clean-up"]["status"] = {
        "conditions": [{"type": "Complete", "status": "True"}]
    }
    it.reconcile(name)
    assert (MIRROR_TEST, name) not in it.server.objects


def test_a_replaced_run_ends_without_a_result_and_its_jobs_are_deleted() -> None:
    it = Carried(a_test(schedule="* * * * *", concurrencyPolicy="Replace"))
    name = scheduled_run(it, topics=1)
    run = it.server.objects[MIRROR_TEST, name]
    run["status"] = {"phase": "Running"}
    it.object["status"]["lastScheduleTime"] = MOMENT
    later = f"{it.object['metadata']['name']}-later"
    it.server.objects[MIRROR_TEST, later] = deepcopy(run) | {
        "metadata": run["metadata"] | {"name": later, "creationTimestamp": "2020-01-01T12:01:00Z"}
    }
    it.reconcile()
    assert it.server.objects[MIRROR_TEST, name]["status"]["verdict"] == "Inconclusive"
    it.reconcile(name)
    assert f"{name}-probe" not in it.jobs
