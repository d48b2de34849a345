"""Objects of a MirrorTest on Kubernetes, and the next step at each of its points."""

import json
import os
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import yaml
from pydantic import ValidationError

from headrace.api import (
    ChaosAction,
    ChaosStep,
    FlowState,
    Lag,
    MirrorTest,
    MirrorTestPhase,
    MirrorTestStatus,
    PausedPartitions,
    Reason,
    Rehearsal,
    ReplicationFlow,
    Verdict,
)
from headrace.api.conditions import Readiness
from headrace.controller import FixedRole
from headrace.controller.mirror_tests import (
    Images,
    RunFacts,
    SparkDefaults,
    StageDecision,
    TestRun,
    build_run,
    next_decision,
    next_scheduled,
)
from headrace.controller.mirror_tests.clean_up import build_clean_up, creates_topics
from headrace.controller.mirror_tests.fault_jobs import build_chaos_pod
from headrace.controller.mirror_tests.jobs import build_job
from headrace.controller.mirror_tests.pods import TestPod, left_executors, left_jobs, read_pod
from headrace.controller.mirror_tests.reconciler import Request, request
from headrace.controller.mirror_tests.run import with_spark_defaults
from headrace.controller.mirror_tests.stages import with_conditions
from headrace.errors import InvalidSpec
from headrace.mirror_test.faults import read_plan
from headrace.mirror_test.sequence import Stage

GOLDEN = Path(__file__).parent / "golden" / "mirror-test"
NOW = datetime(2026, 11, 21, 12, 0, tzinfo=UTC)


def read(**spec: Any) -> MirrorTest:
    document = yaml.safe_load((GOLDEN / "test.yaml").read_text())
    document["spec"] |= spec
    return MirrorTest.model_validate(document)


def of_a_flow(**spec: Any) -> MirrorTest:
    metadata = yaml.safe_load((GOLDEN / "test.yaml").read_text())["metadata"]
    return MirrorTest.model_validate({"metadata": metadata, "spec": {"flowName": "orders"} | spec})


def flow(ready: str | None) -> ReplicationFlow:
    conditions = (
        []
        if ready is None
        else [{"type": "Ready", "status": ready, "reason": "Running", "message": "so it is"}]
    )
    return ReplicationFlow.model_validate(
        {
            "metadata": {"name": "orders"},
            "spec": {
                "source": {"alias": "east", "bootstrapServers": "e:1"},
                "target": {"alias": "west", "bootstrapServers": "w:1"},
                "topics": {"include": [".*"]},
            },
            "status": {"conditions": conditions},
        }
    )


IMAGES = Images("headrace-spark:golden", "headrace:golden")
RUN = TestRun(read(), IMAGES)
STEPS = (
    ChaosStep(action=ChaosAction.KILL_DRIVER, at_percent=30),
    ChaosStep(action=ChaosAction.SCALE_DRIVERS, at_percent=60, drivers=3),
)
BREAKS = TestRun(read(), IMAGES, STEPS, FixedRole("ClusterRole", "headrace-operator-chaos.ops"))

REHEARSES = TestRun(
    read(),
    IMAGES,
    rehearsal=Rehearsal(groups=2),
    rehearsal_role=FixedRole("ClusterRole", "headrace-operator-rehearsal.ops"),
)
BOTH = replace(BREAKS, rehearsal=REHEARSES.rehearsal, rehearsal_role=REHEARSES.rehearsal_role)


def job(stage: Stage, **status: Any) -> dict[str, Any]:
    made = build_job(BOTH, stage)
    made["metadata"]["creationTimestamp"] = NOW.isoformat()
    return made | {"status": status}


def ended(stage: Stage, how: str = "Complete", message: str = "") -> dict[str, Any]:
    condition = {"type": how, "status": "True", "message": message}
    condition["lastTransitionTime"] = NOW.isoformat()
    return job(stage, conditions=[condition])


def pod(stage: Stage, *, executor: bool = False, **status: Any) -> TestPod:
    """Return a pod of the API server that was created at ``NOW``, by default ``Pending``."""
    labels = {"headrace.dev/stage": stage.value} | ({"spark-role": "executor"} if executor else {})
    name = f"nightly-{stage}-exec-1" if executor else f"nightly-{stage}-x7x"
    requests = {"resources": {"requests": {"cpu": "500m", "memory": "1024Mi"}}}
    return read_pod(
        {
            "metadata": {
                "name": name,
                "labels": labels,
                "creationTimestamp": NOW.isoformat(),
            },
            "spec": {"containers": [requests]},
            "status": {"phase": "Pending"} | status,
        }
    )


def container(**state: Any) -> dict[str, Any]:
    return {"containerStatuses": [{"name": "c", "image": "spark:9", "state": state}]}


NO_NODE: dict[str, Any] = {
    "conditions": [
        {
            "type": "PodScheduled",
            "status": "False",
            "reason": "Unschedulable",
            "message": "0/1 nodes are available: 1 Insufficient memory.",
        }
    ]
}
NO_IMAGE = container(waiting={"reason": "ImagePullBackOff", "message": "not found"})


def decide(test: MirrorTest, **facts: Any) -> StageDecision:
    return next_decision(RunFacts(test, facts.pop("now", NOW), run=RUN.name, **facts))


def after(test: MirrorTest, step: StageDecision) -> MirrorTest:
    return test.model_copy(update={"status": step.status})


def begun(test: MirrorTest, at: datetime = NOW) -> MirrorTest:
    """Return a MirrorTest whose probe started at ``at`` by the operator's clock."""
    status = MirrorTestStatus(phase=MirrorTestPhase.PENDING, start_time=at)
    return test.model_copy(update={"status": status})


def reason(step: StageDecision, type: str = "Ready") -> str:
    return next((str(c.reason) for c in step.status.conditions if c.type == type), "")


def message(step: StageDecision) -> str:
    return step.status.conditions[0].message


def report(verdict: str = "Passed", run: str = RUN.name) -> str:
    counts = {"acknowledged": 10, "missing": 0, "planned": 10, "sentinels": 24}
    counts["unequalOffsets"] = 3
    latency = {"p50": 1, "p99": 2, "p999": 3, "max": 4, "measured": 10, "histogram": []}
    document = {"run": run, "verdict": verdict, "reasons": ["all is well"]}
    return json.dumps(document | {"counts": counts, "latencyMs": latency})


def objects_of(run: TestRun) -> list[dict[str, Any]]:
    return [*build_run(run), *(build_job(run, stage) for stage in run.stages)]


WITH_CHAOS = [one for one in objects_of(BREAKS) if one not in objects_of(RUN)]
"""Objects that exist because of chaos or relate to it."""
WITH_REHEARSAL = [one for one in objects_of(REHEARSES) if one not in objects_of(RUN)]


@pytest.mark.parametrize(
    ("name", "objects"),
    [
        ("objects", objects_of(RUN)),
        ("with-chaos", WITH_CHAOS),
        ("with-rehearsal", WITH_REHEARSAL),
    ],
)
def test_the_objects_of_a_run_are_as_they_were_agreed(
    name: str, objects: list[dict[str, Any]]
) -> None:
    page = GOLDEN / f"{name}.yaml"
    text = yaml.safe_dump_all(objects, sort_keys=False, width=99)
    if os.environ.get("HEADRACE_GOLDEN") == "write":
        page.write_text(text)
    assert text == page.read_text()


def plan_of(run: TestRun) -> str:
    plan: str = next(one["data"]["chaos.json"] for one in build_run(run) if "data" in one)
    return plan


def test_message_names_why_there_is_no_latency() -> None:
    """The column P99-Ms is blank then."""
    sentence = "latency was not measured: the probe gave no result"
    checks = [
        {"name": "missing", "verdict": "Passed", "sentences": []},
        {"name": "latency", "verdict": "Passed", "sentences": [sentence]},
    ]
    more = {"latencyMs": None, "checks": checks}
    step = decide(read(), jobs=ALL, report=json.dumps(json.loads(report()) | more))
    assert step.status.latency_ms is None
    assert message(step) == f"all is well; {sentence}"
    measured = decide(
        read(), jobs=ALL, report=json.dumps(json.loads(report()) | {"checks": checks})
    )
    assert message(measured) == "all is well"
    reasons = {"verdict": "Inconclusive", "reasons": [sentence], "checks": checks}
    document = json.loads(report()) | more | reasons
    assert message(decide(read(), jobs=ALL, report=json.dumps(document))) == sentence


def test_the_plan_is_what_the_job_and_the_verifier_read() -> None:
    planned = read_plan(plan_of(BREAKS), "chaos.json")
    assert planned.steps == STEPS
    assert all(fault.at_ms is None and fault.error for fault in planned.faults)


def test_nothing_of_a_run_is_tried_twice_and_all_of_it_goes_with_its_test() -> None:
    for stage in Stage:
        made = build_job(BOTH, stage)
        # The second pod of a rehearsal only undoes the remaining changes of the first.
        assert made["spec"]["backoffLimit"] == (stage is Stage.REHEARSAL)
        assert made["spec"]["template"]["spec"]["restartPolicy"] == "Never"
    for made in objects_of(BOTH):
        assert [owner["uid"] for owner in made["metadata"]["ownerReferences"]] == [
            RUN.test.metadata.uid
        ]


def test_all_pods_of_a_run_log_in_the_format_of_the_operator() -> None:
    variable = {"name": "HEADRACE_LOG_FORMAT", "value": "json"}
    run = replace(BOTH, log_format="json")
    for stage in Stage:
        (container,) = build_job(run, stage)["spec"]["template"]["spec"]["containers"]
        assert variable in container["env"]
        if stage not in {Stage.CHAOS, Stage.REHEARSAL}:
            assert "--conf=spark.executorEnv.HEADRACE_LOG_FORMAT=json" in container["args"]
            assert "--conf=spark.log.structuredLogging.enabled=true" in container["args"]
    (container,) = build_clean_up(run)["spec"]["template"]["spec"]["containers"]
    assert container["env"] == [variable]
    assert "HEADRACE_LOG_FORMAT" not in str([build_job(BOTH, stage) for stage in Stage])


def test_without_executors_all_work_is_done_in_the_jobs_own_pod() -> None:
    run = TestRun(read(spark={"executors": 0}), IMAGES)
    for stage, slots in ((Stage.PROBE, 3), (Stage.PRODUCE, 3), (Stage.VERIFY, 2)):
        spec = build_job(run, stage)["spec"]["template"]["spec"]
        (only,) = spec["containers"]
        assert f"--master=local[{slots}]" in only["args"]
        assert not any("spark.kubernetes.authenticate" in one for one in only["args"])
        assert spec["automountServiceAccountToken"] is (stage is Stage.VERIFY)
    (rule,) = next(o for o in build_run(run) if o["kind"] == "Role")["rules"]
    assert rule == {
        "apiGroups": [""],
        "resources": ["configmaps"],
        "resourceNames": ["nightly-report"],
        "verbs": ["patch"],
    }


def test_who_makes_executors_is_bound_to_the_role_that_the_operator_may_bind() -> None:
    fixed = replace(RUN, executor_role=FixedRole("ClusterRole", "headrace-operator-executors.ops"))
    own, given = (
        {(o["kind"], o["metadata"]["name"]): o for o in build_run(r)} for r in (RUN, fixed)
    )
    ((kind, name),) = given.keys() - own.keys()
    binding = given[kind, name]
    assert (kind, name) == ("RoleBinding", "nightly-executors")
    assert binding["roleRef"]["kind"] == "ClusterRole"
    assert binding["roleRef"]["name"] == "headrace-operator-executors.ops"
    assert [one["name"] for one in binding["subjects"]] == ["nightly-spark"]
    pods = [
        [
            rule
            for rule in objects["Role", "nightly-spark"]["rules"]
            if rule["resources"] == ["pods"]
        ]
        for objects in (own, given)
    ]
    assert (len(pods[0]), pods[1]) == (1, [])
    alone = replace(fixed, test=read(spark={"executors": 0}))
    assert "nightly-executors" not in [one["metadata"]["name"] for one in build_run(alone)]


def test_the_test_sizes_its_pods() -> None:
    sized = {
        "executors": 3,
        "image": "registry/spark:1",
        "driver": {"resources": {"requests": {"cpu": "1"}, "limits": {"memory": "3000Mi"}}},
        "executor": {"resources": {"requests": {"cpu": "2"}, "limits": {"memory": "4000Mi"}}},
    }
    run = TestRun(read(spark=sized), IMAGES)
    (only,) = build_job(run, Stage.VERIFY)["spec"]["template"]["spec"]["containers"]
    assert only["image"] == "registry/spark:1"
    assert only["resources"]["requests"] == {"cpu": "1", "memory": "3000Mi"}
    assert {
        "--driver-memory=2488m",
        "--conf=spark.executor.memory=3488m",
        "--conf=spark.executor.memoryOverhead=512m",
        "--conf=spark.kubernetes.executor.request.cores=2",
        "--conf=spark.kubernetes.container.image=registry/spark:1",
        "--conf=spark.executor.instances=3",
        "--conf=spark.executor.cores=1",
    } <= set(only["args"])


DEFAULTS = SparkDefaults.model_validate(
    {
        "imagePullPolicy": "Always",
        "driver": {"resources": {"requests": {"cpu": "1"}, "limits": {"cpu": "2"}}},
        "executor": {"resources": {"limits": {"cpu": "3", "memory": "2000Mi"}}},
        "podTemplate": {"priorityClassName": "low", "runtimeClassName": "gvisor"},
    }
)


def sized_by(defaults: SparkDefaults, **spec: Any) -> dict[str, Any]:
    """Return the pod template of the load's Job."""
    run = TestRun(with_spark_defaults(read(**spec), defaults), IMAGES)
    pod: dict[str, Any] = build_job(run, Stage.PRODUCE)["spec"]["template"]["spec"]
    return pod


def test_what_all_tests_have_and_a_test_overrides_field_by_field() -> None:
    pod = sized_by(DEFAULTS)
    (spark,) = pod["containers"]
    assert (pod["priorityClassName"], spark["imagePullPolicy"]) == ("low", "Always")
    assert spark["resources"]["requests"]["cpu"] == "1"
    assert spark["resources"]["limits"] == {"cpu": "2", "memory": "1024Mi"}
    assert {
        "--conf=spark.kubernetes.executor.request.cores=200m",
        "--conf=spark.kubernetes.executor.limit.cores=3",
        "--conf=spark.kubernetes.container.image.pullPolicy=Always",
        "--conf=spark.executor.memory=1488m",
    } <= set(spark["args"])
    own = {
        "imagePullPolicy": "Never",
        "driver": {"resources": {"limits": {"cpu": "4"}}},
        "executor": {"resources": {"requests": {"cpu": "1"}}},
    }
    pod = sized_by(
        DEFAULTS,
        spark=own,
        podTemplate={"priorityClassName": "high", "securityContext": {"runAsUser": 10001}},
    )
    (spark,) = pod["containers"]
    assert (pod["priorityClassName"], pod["runtimeClassName"]) == ("high", "gvisor")
    assert pod["securityContext"].items() >= {"runAsUser": 10001, "runAsNonRoot": True}.items()
    assert spark["imagePullPolicy"] == "Never"
    assert spark["resources"]["requests"]["cpu"] == "1"
    assert spark["resources"]["limits"]["cpu"] == "4"
    assert {
        "--conf=spark.kubernetes.executor.request.cores=1",
        "--conf=spark.kubernetes.executor.limit.cores=3",
    } <= set(spark["args"])


def test_without_defaults_a_test_is_as_it_was_and_has_no_limit_of_processors() -> None:
    assert with_spark_defaults(read(), SparkDefaults()) == read()
    (spark,) = sized_by(SparkDefaults())["containers"]
    assert spark["resources"]["limits"].keys() == {"memory"}
    assert not [one for one in spark["args"] if "limit.cores" in one]


def test_the_pod_of_chaos_has_a_limit_of_processors_where_the_others_have() -> None:
    limited = replace(BREAKS, test=with_spark_defaults(BREAKS.test, DEFAULTS))
    for run, limits in ((BREAKS, {"memory"}), (limited, {"memory", "cpu"})):
        (chaos,) = build_job(run, Stage.CHAOS)["spec"]["template"]["spec"]["containers"]
        assert chaos["resources"]["limits"].keys() == limits


def test_a_slot_for_every_producer_and_names_that_fit() -> None:
    arguments = build_job(RUN, Stage.PRODUCE)["spec"]["template"]["spec"]["containers"][0]["args"]
    assert "--conf=spark.executor.instances=2" in arguments
    assert "--conf=spark.executor.cores=2" in arguments
    assert RUN.name == "261121-030000-5d1f"


def test_a_test_waits_for_its_flow() -> None:
    gone = decide(of_a_flow())
    assert (reason(gone), gone.start) == ("WaitingForFlow", None)
    assert message(gone) == "there is no ReplicationFlow orders in namespace kafka"
    assert message(decide(of_a_flow(), flow=flow("False"))) == "flow orders is not Ready: so it is"
    assert message(decide(of_a_flow(), flow=flow(None))) == "flow orders is not Ready"
    assert decide(of_a_flow(), flow=flow("True")).start is Stage.PROBE


@pytest.mark.parametrize("state", [FlowState.PAUSED, FlowState.STOPPED])
def test_a_test_waits_for_a_flow_that_is_paused_or_stopped_and_names_it(state: FlowState) -> None:
    ready = flow("True")
    paused = ready.model_copy(update={"spec": ready.spec.model_copy(update={"state": state})})
    waiting = decide(of_a_flow(), flow=paused)
    assert (reason(waiting), waiting.start) == ("WaitingForFlow", None)
    assert message(waiting) == (
        f"flow orders copies nothing: its spec.state is {state}, and must be Running"
    )


def test_the_load_waits_for_the_probe_but_not_for_ever() -> None:
    waits = decide(read(), jobs={Stage.PROBE: job(Stage.PROBE, active=1, ready=0)})
    assert (waits.start, waits.status.phase) == (None, MirrorTestPhase.PENDING)
    for probe in (job(Stage.PROBE, ready=1), ended(Stage.PROBE, "Failed")):
        goes = decide(read(), jobs={Stage.PROBE: probe})
        assert (goes.start, goes.status.phase) == (Stage.PRODUCE, MirrorTestPhase.RUNNING)
    late = decide(
        begun(read()),
        jobs={Stage.PROBE: job(Stage.PROBE, active=1, ready=0)},
        now=NOW + timedelta(minutes=8),
    )
    assert late.start is Stage.PRODUCE


def test_the_verifier_starts_when_the_load_has_ended_however_it_did() -> None:
    for how in ("Complete", "Failed"):
        jobs = {Stage.PROBE: ended(Stage.PROBE, how), Stage.PRODUCE: ended(Stage.PRODUCE, how)}
        step = decide(read(), jobs=jobs)
        assert (step.start, step.status.phase) == (Stage.VERIFY, MirrorTestPhase.VERIFYING)


def test_the_verifier_waits_for_what_the_probe_measured_as_long_as_the_mirror_has() -> None:
    probe = job(Stage.PROBE, active=1, ready=1)
    jobs = {Stage.PROBE: probe, Stage.PRODUCE: ended(Stage.PRODUCE)}
    test = begun(read())
    waits = decide(test, jobs=jobs, now=NOW + timedelta(seconds=120 + 59))
    assert (waits.start, message(waits)) == (None, "waiting for the last message on the target")
    assert decide(test, jobs=jobs, now=NOW + timedelta(seconds=120 + 61)).start is Stage.VERIFY
    failed = {**jobs, Stage.PRODUCE: ended(Stage.PRODUCE, "Failed")}
    for code, start in ((2, None), (137, Stage.VERIFY)):
        load = pod(Stage.PRODUCE, phase="Failed", **container(terminated={"exitCode": code}))
        assert decide(test, jobs=failed, pods=[load]).start is start


@pytest.mark.parametrize(
    ("executor", "status", "expected", "to_do"),
    [
        (False, NO_NODE, "Unschedulable", "cpu 500m and memory 1024Mi: make room, or lower"),
        (True, NO_NODE, "Unschedulable", "or spec.spark.executors"),
        (False, NO_IMAGE, "ImageNotPulled", "spark:9: not found. Push it"),
        (
            False,
            container(waiting={"reason": "CreateContainerConfigError", "message": "no user"}),
            "PodFailed",
            "does not start: CreateContainerConfigError: no user",
        ),
    ],
)
def test_a_pod_that_does_not_start_is_said_and_ends_the_test(
    executor: bool, status: dict[str, Any], expected: str, to_do: str
) -> None:
    test = after(read(), decide(read()))
    assert test.status
    for stage in (Stage.PROBE, Stage.PRODUCE):
        jobs = {stage: job(stage, active=1)}
        pods = [pod(stage, executor=executor, **status)]
        soon = decide(test, jobs=jobs, pods=pods, now=NOW + timedelta(seconds=20))
        assert reason(soon) == "TestRunning"
        later = decide(test, jobs=jobs, pods=pods, now=NOW + timedelta(seconds=40))
        assert (reason(later), reason(later, "Stalled")) == (expected, expected)
        assert to_do in message(later)
        assert (later.status.phase, later.start, later.is_last) == (test.status.phase, None, False)
        last = decide(test, jobs=jobs, pods=pods, now=NOW + timedelta(seconds=301))
        assert last.status.verdict is Verdict.INCONCLUSIVE
        assert to_do in message(last)
        assert message(last).endswith("(waited 300 s)")


def test_a_job_that_nobody_lets_make_pods_is_said_and_ends_the_test() -> None:
    test, jobs = begun(read()), {Stage.PROBE: job(Stage.PROBE)}
    later = decide(test, jobs=jobs, now=NOW + timedelta(seconds=31))
    assert reason(later, "Stalled") == "PodFailed"
    assert message(later).startswith("Job nightly-probe makes no pod: `kubectl describe job")
    last = decide(test, jobs=jobs, now=NOW + timedelta(seconds=301))
    assert last.status.verdict is Verdict.INCONCLUSIVE


@pytest.mark.parametrize("ahead", [timedelta(0), timedelta(hours=1)])
def test_an_operator_whose_clock_is_ahead_waits_as_long_as_any_other(ahead: timedelta) -> None:
    def decide_after(seconds: int, jobs: dict[Stage, Any], *pods: TestPod) -> StageDecision:
        now = NOW + ahead
        test = begun(read(), now)
        return decide(test, jobs=jobs, pods=pods, now=now + timedelta(seconds=seconds))

    for jobs, *pods in (
        ({Stage.PROBE: job(Stage.PROBE)},),
        (ALL | {Stage.VERIFY: job(Stage.VERIFY)},),
        ({Stage.PROBE: job(Stage.PROBE, active=1)}, pod(Stage.PROBE, **NO_NODE)),
    ):
        assert reason(decide_after(20, jobs, *pods)) == "TestRunning"
        assert decide_after(301, jobs, *pods).status.verdict is Verdict.INCONCLUSIVE
    measured = {Stage.PROBE: job(Stage.PROBE, active=1), Stage.PRODUCE: ended(Stage.PRODUCE)}
    pods = [pod(Stage.PROBE, phase="Running")]
    assert decide_after(120 + 59, measured, *pods).start is None
    assert decide_after(120 + 61, measured, *pods).start is Stage.VERIFY


def test_the_verifier_makes_do_with_one_executor_and_the_load_does_not() -> None:
    late = NOW + timedelta(seconds=301)
    for stage, verdict in ((Stage.VERIFY, None), (Stage.PRODUCE, Verdict.INCONCLUSIVE)):
        runs = pod(stage, executor=True, phase="Running")
        pods = [runs, pod(stage, executor=True, **NO_NODE)]
        jobs = {Stage.PRODUCE: ended(Stage.PRODUCE)} | {stage: job(stage, active=1)}
        assert decide(read(), jobs=jobs, pods=pods, now=late).status.verdict is verdict


@pytest.mark.parametrize(
    ("status", "cause"),
    [
        (
            container(terminated={"exitCode": 137, "reason": "OOMKilled"}),
            "took more memory than it may: raise spec.spark.driver.resources.limits.memory",
        ),
        (
            container(terminated={"exitCode": 137, "reason": "Error"}),
            "ended with signal 9: see its log",
        ),
        (
            container(
                terminated={
                    "exitCode": 2,
                    "reason": "Error",
                    "message": "26/11/21 INFO x\nheadrace: east is not to be reached\nINFO y",
                }
            ),
            "ended with exit code 2: east is not to be reached",
        ),
        ({"reason": "Evicted", "message": "The node was low on memory."}, "low on memory. Give"),
    ],
)
def test_what_became_of_the_pods_explains_a_test_without_a_result(
    status: dict[str, Any], cause: str
) -> None:
    pods = [pod(stage, phase="Failed", **status) for stage in (Stage.PRODUCE, Stage.VERIFY)]
    explained = decide(read(), jobs=ALL, pods=pods, report=report("Inconclusive"))
    assert message(explained).count(cause) == 1  # the verifier's own exit code adds nothing
    unexplained = decide(read(), jobs=ALL, pods=pods)
    assert message(unexplained).count(cause) == 2
    assert cause not in message(decide(read(), jobs=ALL, pods=pods, report=report("Failed")))


def test_what_outlives_its_stage_is_removed() -> None:
    jobs = {
        Stage.PROBE: job(Stage.PROBE, active=1),
        Stage.PRODUCE: ended(Stage.PRODUCE, "Failed"),
        Stage.VERIFY: job(Stage.VERIFY, active=1),
    }
    pods = [pod(stage, executor=executor) for stage in jobs for executor in (True, False)]
    assert left_executors(jobs, pods) == ["nightly-produce-exec-1"]
    assert left_jobs(jobs, reported=True) == ["nightly-probe"]
    assert left_jobs(jobs, reported=False) == ["nightly-probe", "nightly-verify"]


def breaking(**spec: Any) -> MirrorTest:
    return of_a_flow(chaos=[{"action": "KillOperator", "atSeconds": 1}], **spec)


def decide_with_faults(test: MirrorTest, **facts: Any) -> StageDecision:
    return decide(test, flow=flow("True"), breaks=True, may_break=True, **facts)


def test_faults_are_refused_where_the_operator_may_not_have_them_made() -> None:
    step = decide(breaking(), flow=flow("True"), breaks=True)
    assert (reason(step), reason(step, "Stalled"), step.start) == ("Forbidden", "Forbidden", None)
    assert "set chaos.enabled: true in the values of its chart" in message(step)
    assert decide_with_faults(breaking()).start is Stage.PROBE


@pytest.mark.parametrize(
    "fault",
    [{"action": "KillBroker", "cluster": "Source"}, {"action": "RunCommand", "command": ["true"]}],
)
def test_faults_of_one_machine_are_refused_in_a_cluster(fault: dict[str, Any]) -> None:
    step = decide_with_faults(of_a_flow(chaos=[fault | {"atSeconds": 1}]))
    assert (reason(step), reason(step, "Stalled"), step.start) == (
        "InvalidSpec",
        "InvalidSpec",
        None,
    )
    assert "which only `headrace verify` makes" in message(step)


def test_an_audit_only_compares() -> None:
    test = of_a_flow(audit={})
    step = decide(test, flow=flow("True"))
    assert (step.start, step.status.phase) == (Stage.VERIFY, MirrorTestPhase.VERIFYING)
    assert message(step) == "comparing the clusters"
    run = TestRun(test, IMAGES)
    assert run.stages == (Stage.VERIFY,)
    assert not creates_topics(run)

    # The flow of an audit that has begun may be paused. A deleted Job starts again.
    assert decide(after(test, step), flow=None).start is Stage.VERIFY
    jobs = {Stage.VERIFY: job(Stage.VERIFY, active=1)}
    assert decide(after(test, step), jobs=jobs).start is None
    judged = decide(after(test, step), jobs=jobs, report=report("Failed"))
    assert judged.status.verdict is Verdict.FAILED
    jobs = {Stage.VERIFY: ended(Stage.VERIFY, "Failed", "no node")}
    step = decide(after(test, step), jobs=jobs)
    assert step.status.verdict is Verdict.INCONCLUSIVE
    assert message(step).startswith("the verifier ended without a report (no node)")


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"spec": {"state": FlowState.PAUSED}}, "its spec.state is Paused, and must be Running"),
        (
            {"spec": {"paused_partitions": (PausedPartitions(topic="orders"),)}},
            "flow orders is paused in part: spec.pausedPartitions must be empty for an audit",
        ),
        (
            {"status": {"lag": Lag(records=5_000, seconds=121)}},
            "flow orders is about 121 s behind, more than 120 s (settleSeconds)",
        ),
        ({"status": {"lag": Lag(records=5_000, seconds=120)}}, ""),
    ],
)
def test_an_audit_waits_until_its_flow_is_current(changes: dict[str, Any], why: str) -> None:
    current = flow("True")
    behind = current.model_copy(
        update={
            part: getattr(current, part).model_copy(update=new) for part, new in changes.items()
        }
    )
    step = decide(of_a_flow(audit={}), flow=behind)
    if why:
        assert (reason(step), step.start) == ("WaitingForFlow", None)
        assert why in message(step)
    else:
        assert step.start is Stage.VERIFY


def test_a_rehearsal_is_refused_where_the_operator_may_not_have_flows_failed_over() -> None:
    facts: dict[str, Any] = {"flow": flow("True"), "rehearses": True}
    step = decide(of_a_flow(rehearsal={}), **facts)
    assert (reason(step), reason(step, "Stalled"), step.start) == ("Forbidden", "Forbidden", None)
    assert "set rehearsal.enabled: true in the values of its chart" in message(step)
    assert decide(of_a_flow(rehearsal={}), may_rehearse=True, **facts).start is Stage.PROBE


def test_a_load_waits_for_the_groups_of_a_rehearsal_and_the_comparison_for_its_end() -> None:
    test, facts = of_a_flow(rehearsal={}), {"rehearses": True, "may_rehearse": True}
    probe = {Stage.PROBE: job(Stage.PROBE, active=1, ready=1)}
    assert decide(test, jobs=probe, **facts).start is Stage.REHEARSAL
    waits = decide(test, jobs=probe | {Stage.REHEARSAL: job(Stage.REHEARSAL, active=1)}, **facts)
    assert (waits.start, message(waits)) == (None, "waiting for the Job of the rehearsal")
    there = probe | {Stage.REHEARSAL: job(Stage.REHEARSAL, active=1, ready=1)}
    assert decide(test, jobs=there, **facts).start is Stage.PRODUCE
    sent = {Stage.PROBE: ended(Stage.PROBE), Stage.PRODUCE: ended(Stage.PRODUCE)}
    waits = decide(begun(test), jobs=there | sent, **facts)
    assert (waits.start, waits.status.phase) == (None, MirrorTestPhase.RUNNING)
    assert message(waits) == "failing over, resuming on the target, and undoing it"
    done = there | sent | {Stage.REHEARSAL: ended(Stage.REHEARSAL, "Failed")}
    assert decide(test, jobs=done, **facts).start is Stage.VERIFY


def test_without_who_rehearses_no_load_is_sent() -> None:
    jobs = {
        Stage.PROBE: job(Stage.PROBE, active=1, ready=1),
        Stage.REHEARSAL: ended(Stage.REHEARSAL, "Failed"),
    }
    sentence = "headrace: a pod of this Job was killed before: nothing is rehearsed again"
    failed = container(terminated={"exitCode": 2, "message": sentence})
    pods = [pod(Stage.REHEARSAL, phase="Failed", **failed)]
    step = decide(of_a_flow(rehearsal={}), jobs=jobs, pods=pods, rehearses=True, may_rehearse=True)
    assert (step.start, step.status.verdict) == (None, Verdict.INCONCLUSIVE)
    assert message(step) == (
        "nothing was sent: Job nightly-rehearsal did not come to rehearse anything; pod "
        "nightly-rehearsal-x7x ended with exit code 2: a pod of this Job was killed before: "
        "nothing is rehearsed again"
    )


def test_the_pod_of_a_rehearsal_has_memory_for_all_that_its_groups_read() -> None:
    def memory(groups: int, messages: int) -> int:
        run = replace(
            REHEARSES, test=read(load={"messages": messages}), rehearsal=Rehearsal(groups=groups)
        )
        (only,) = build_job(run, Stage.REHEARSAL)["spec"]["template"]["spec"]["containers"]
        assert only["resources"]["limits"]["memory"] == only["resources"]["requests"]["memory"]
        return int(only["resources"]["limits"]["memory"].removesuffix("Mi"))

    assert memory(1, 1_000) < memory(20, 1_000) < memory(20, 1_000_000) < 2_048


def test_a_rehearsal_waits_for_chaos_where_there_is_some() -> None:
    for run, waits in ((REHEARSES, False), (replace(REHEARSES, steps=STEPS), True)):
        (only,) = build_job(run, Stage.REHEARSAL)["spec"]["template"]["spec"]["containers"]
        assert ("--after-chaos" in only["args"]) is waits


def test_the_plan_says_which_steps_a_run_began_with() -> None:
    steps = breaking().spec.chaos
    run = TestRun(breaking(), Images("spark"), steps)
    assert read_plan(plan_of(run), "chaos.json").steps == steps


def test_a_load_that_is_to_be_broken_waits_for_who_breaks_it() -> None:
    probe = {Stage.PROBE: job(Stage.PROBE, active=1, ready=1)}
    assert decide_with_faults(breaking(), jobs=probe).start is Stage.CHAOS
    waits = decide_with_faults(breaking(), jobs=probe | {Stage.CHAOS: job(Stage.CHAOS, active=1)})
    assert (waits.start, message(waits)) == (None, "waiting for the Job of chaos")
    there = probe | {Stage.CHAOS: job(Stage.CHAOS, active=1, ready=1)}
    assert decide_with_faults(breaking(), jobs=there).start is Stage.PRODUCE
    not_yet = there | {Stage.PROBE: job(Stage.PROBE, active=1)}
    assert message(decide_with_faults(breaking(), jobs=not_yet)) == "waiting for the probe"


def test_without_who_breaks_it_no_load_is_sent() -> None:
    probe = {Stage.PROBE: job(Stage.PROBE, active=1, ready=1)}
    gone = probe | {Stage.CHAOS: ended(Stage.CHAOS, "Failed")}
    sentence = "headrace: the chaos Job may not get replicationflows"
    failed = container(terminated={"exitCode": 1, "message": sentence})
    step = decide_with_faults(
        breaking(), jobs=gone, pods=[pod(Stage.CHAOS, phase="Failed", **failed)]
    )
    assert (step.start, step.status.verdict) == (None, Verdict.INCONCLUSIVE)
    assert message(step) == (
        "nothing was sent: Job nightly-chaos did not come to break anything; pod nightly-chaos-x7x "
        "ended with exit code 1: the chaos Job may not get replicationflows"
    )
    late = probe | {Stage.CHAOS: job(Stage.CHAOS, active=1)}
    step = decide_with_faults(begun(breaking()), jobs=late, now=NOW + timedelta(seconds=301))
    assert step.status.verdict is Verdict.INCONCLUSIVE


def test_the_verifier_waits_for_the_last_recovery_as_long_as_the_mirror_has() -> None:
    jobs = {
        Stage.PROBE: ended(Stage.PROBE),
        Stage.CHAOS: job(Stage.CHAOS, active=1, ready=1),
        Stage.PRODUCE: ended(Stage.PRODUCE),
    }
    test = begun(breaking())
    waits = decide_with_faults(test, jobs=jobs, now=NOW + timedelta(seconds=120 + 59))
    assert (waits.start, message(waits)) == (None, "waiting for the recovery from the last fault")
    late = decide_with_faults(test, jobs=jobs, now=NOW + timedelta(seconds=120 + 61))
    assert late.start is Stage.VERIFY
    done = jobs | {Stage.CHAOS: ended(Stage.CHAOS)}
    assert decide_with_faults(breaking(), jobs=done).start is Stage.VERIFY


def test_what_to_do_about_a_pod_of_chaos_is_not_what_to_do_about_sparks() -> None:
    jobs = {Stage.CHAOS: job(Stage.CHAOS, active=1)}
    pods = [pod(Stage.CHAOS, **NO_IMAGE)]
    step = decide_with_faults(breaking(), jobs=jobs, pods=pods, now=NOW + timedelta(seconds=40))
    assert "the operator's --driver-image (chart: driver.image)" in message(step)
    assert "spec.spark" not in message(step)


@pytest.mark.parametrize(
    ("annotation", "phase", "steps", "asked"),
    [
        (None, "Running", ["KillOperator"], Request.NOTHING),
        ("", "Running", ["KillDriver", "KillOperator"], Request.DIE),
        ("headrace-operator-7f", "Running", ["KillOperator"], Request.LEAD),
        ("headrace-operator-7f, then x2", "Running", ["KillOperator"], Request.NOTHING),
        ("headrace-operator-7f", "Verifying", ["KillOperator"], Request.LEAD),
        ("true", "Running", ["KillDriver"], Request.TAKE_OFF),
        ("", "Running", ["KillDriver"], Request.TAKE_OFF),
        ("", "Pending", ["KillOperator"], Request.TAKE_OFF),
    ],
)
def test_an_operator_dies_once_and_only_for_a_test_that_asks_for_it(
    annotation: str | None, phase: str, steps: list[str], asked: Request
) -> None:
    test = of_a_flow(chaos=[{"action": action, "atSeconds": 1} for action in steps])
    annotations = {} if annotation is None else {"headrace.dev/kill-operator": annotation}
    test = test.model_copy(
        update={
            "metadata": test.metadata.model_copy(update={"annotations": annotations}),
            "status": MirrorTestStatus(phase=MirrorTestPhase(phase)),
        }
    )
    assert request(test) is asked


def test_chaos_gets_the_target_s_secrets_only_for_what_it_sees_there() -> None:
    secret = {"secretName": "west", "key": "password"}
    access = {"type": "Plain", "username": "u", "password": secret}
    target = {"alias": "west", "bootstrapServers": "w:1", "authentication": access}
    test = read(target=target, load={"durationSeconds": 60})

    def has_secret(**step: Any) -> bool:
        steps = (ChaosStep.model_validate({"atSeconds": 1, **step}),)
        pod = build_chaos_pod(replace(BREAKS, test=test, steps=steps))
        return "west" in [one.get("secret", {}).get("secretName") for one in pod["volumes"]]

    assert not has_secret(action="KillDriver")
    assert has_secret(action="AddTopic")
    assert has_secret(action="PauseFlow", seconds=9)


def test_the_verifier_gets_the_secrets_of_a_schema_registry() -> None:
    login = {"type": "Bearer", "token": {"secretName": "registry", "key": "token"}}
    schemas = {
        "url": "https://registry",
        "trustedCertificates": [{"configMapName": "registry-ca"}],
        "authentication": login,
    }
    made = build_job(TestRun(of_a_flow(audit={"schemas": schemas}), IMAGES), Stage.VERIFY)
    pod = made["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    paths = [mount["mountPath"] for mount in container["volumeMounts"]]
    for folder in ("registry", "_configmaps/registry-ca"):
        assert f"/etc/headrace/secrets/{folder}" in paths


def test_the_load_is_never_sent_again() -> None:
    probe = {Stage.PROBE: job(Stage.PROBE, active=1, ready=1)}
    started = decide(read(), jobs=probe)
    step = decide(after(read(), started), jobs=probe)
    assert (step.start, step.status.verdict) == (None, Verdict.INCONCLUSIVE)
    assert "the producer's Job was deleted" in message(step)


@pytest.mark.parametrize("phase", [MirrorTestPhase.RUNNING, MirrorTestPhase.VERIFYING])
def test_what_has_begun_goes_back_for_nothing(phase: MirrorTestPhase) -> None:
    begun = of_a_flow()
    begun = begun.model_copy(update={"status": MirrorTestStatus(phase=phase)})
    gone = decide(begun, jobs={Stage.PROBE: job(Stage.PROBE, ready=1)}, flow=flow("False"))
    assert (gone.start, gone.status.verdict) == (None, Verdict.INCONCLUSIVE)
    forbidden = Readiness.stalled(Reason.FORBIDDEN, "may not list jobs")
    status = with_conditions(begun, forbidden, NOW)
    assert (status.phase, status.conditions[0].reason) == (phase, Reason.FORBIDDEN)
    assert with_conditions(of_a_flow(), forbidden, NOW).phase is None


ALL = {
    Stage.PROBE: ended(Stage.PROBE),
    Stage.PRODUCE: ended(Stage.PRODUCE),
    Stage.VERIFY: ended(Stage.VERIFY),
}


@pytest.mark.parametrize(
    ("verdict", "ready", "stalled"),
    [
        ("Passed", "TestPassed", ""),
        ("Failed", "TestFailed", "TestFailed"),
        ("Inconclusive", "TestInconclusive", "TestInconclusive"),
    ],
)
def test_the_verdict_is_the_reports(verdict: str, ready: str, stalled: str) -> None:
    step = decide(read(), jobs=ALL, report=report(verdict))
    assert (step.status.verdict, step.status.report) == (verdict, "nightly-report")
    assert (reason(step), reason(step, "Stalled")) == (ready, stalled)
    assert step.status.counts is not None
    assert step.status.counts.acknowledged == 10
    assert step.status.counts.unequal_offsets == 3
    assert step.status.latency_ms is not None
    assert step.status.latency_ms.max == 4
    assert step.status.completion_time == NOW


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        (None, "the verifier ended without a report (deadline was met): see the log of Job"),
        ("{", "the report cannot be read"),
        ("[]", "the report cannot be read"),
        ('{"run": "261121-030000-5d1f", "verdict": "Wonderful"}', "the report cannot be read"),
        (report(run="another"), "the report is of run another"),
    ],
)
def test_without_a_report_of_this_run_nothing_passes(found: str | None, expected: str) -> None:
    jobs = ALL | {Stage.VERIFY: ended(Stage.VERIFY, "Failed", "deadline was met")}
    step = decide(read(), jobs=jobs, report=found)
    assert step.status.verdict is Verdict.INCONCLUSIVE
    assert message(step).startswith(expected)


def test_a_finished_test_stays_as_it_is_until_its_time_is_over() -> None:
    test = read(ttlSecondsAfterFinished=60)
    done = after(test, decide(test, jobs=ALL, report=report()))
    later = decide(done, now=NOW + timedelta(seconds=20))
    assert (later.status, later.again_s, later.expired) == (done.status, 40, False)
    assert decide(done, now=NOW + timedelta(seconds=61)).expired
    kept = after(read(), decide(read(), jobs=ALL, report=report()))
    assert kept.status
    assert decide(kept, now=NOW + timedelta(days=99)) == StageDecision(kept.status)


def test_a_second_reconcile_changes_nothing() -> None:
    jobs = {Stage.PROBE: job(Stage.PROBE, active=1, ready=0)}
    first = decide(read(), jobs=jobs)
    assert decide(after(read(), first), jobs=jobs, now=NOW + timedelta(seconds=9)) == first


# Schedules.


def scheduled(*, last: datetime | None = None, **spec: Any) -> MirrorTest:
    test = read(schedule="0 * * * *", **spec)
    made = datetime(2026, 11, 21, 3, 0, tzinfo=UTC)
    metadata = test.metadata.model_copy(update={"creation_timestamp": made})
    status = {"lastScheduleTime": last.isoformat()} if last else {}
    return MirrorTest.model_validate(
        test.model_dump(by_alias=True, exclude_unset=True) | {"status": status}
    ).model_copy(update={"metadata": metadata})


def finished(minute: int, verdict: Verdict | None) -> MirrorTest:
    made = datetime(2026, 11, 21, 4, minute, tzinfo=UTC)
    return MirrorTest.model_validate(
        {
            "metadata": {"name": f"nightly-{minute}", "creationTimestamp": made.isoformat()},
            "spec": {"flowName": "orders"},
            "status": {"verdict": verdict} if verdict else {},
        }
    )


def test_of_the_times_that_were_missed_the_latest_is_made_up_for() -> None:
    now = NOW + timedelta(minutes=10)
    step = next_scheduled(scheduled(), [], now)
    assert step.create is not None
    minutes = int(NOW.timestamp()) // 60
    assert step.create["metadata"]["name"] == f"nightly-{minutes}"
    assert step.create["spec"]["load"] == {
        "producers": 3,
        "messages": 600000,
        "messagesPerSecond": 1000,
    }
    assert "schedule" not in step.create["spec"]
    assert step.status.last_schedule_time == NOW
    again = next_scheduled(scheduled(last=NOW), [], now)
    assert (again.create, again.again_s) == (None, 50 * 60)
    assert message_of(again.status) == "the next run starts at 2026-11-21T13:00:00Z"


def message_of(status: Any) -> str:
    return str(status.conditions[0].message)


def test_a_run_is_due_at_its_very_moment_and_not_before_the_test_was_made() -> None:
    assert next_scheduled(scheduled(last=NOW - timedelta(hours=1)), [], NOW).create is not None
    early = datetime(2026, 11, 21, 3, 30, tzinfo=UTC)
    assert next_scheduled(scheduled(), [], early).create is None


def test_a_clock_that_jumps_makes_one_run_or_none() -> None:
    ahead = next_scheduled(scheduled(last=NOW), [], NOW + timedelta(days=400))
    assert ahead.create is not None
    back = NOW - timedelta(days=1)
    first = next_scheduled(scheduled(last=NOW), [], back)
    assert (first.create, message_of(first.status)) == (
        None,
        "the next run starts at 2026-11-20T13:00:00Z",
    )
    later = scheduled().model_copy(update={"status": first.status})
    assert next_scheduled(later, [], back + timedelta(hours=1)).create is not None


def test_runs_do_not_overlap_and_a_suspended_test_makes_none() -> None:
    running = next_scheduled(scheduled(), [finished(1, None)], NOW)
    assert running.create is None
    suspended = next_scheduled(scheduled(suspend=True), [], NOW)
    assert (suspended.create, suspended.status.conditions[0].reason) == (None, "Suspended")


@pytest.mark.parametrize(
    ("policy", "starts", "ended"),
    [("Forbid", False, ()), ("Allow", True, ()), ("Replace", True, ("nightly-1",))],
)
def test_what_a_run_does_to_the_one_before_is_the_tests_to_say(
    policy: str, starts: bool, ended: tuple[str, ...]
) -> None:
    runs = [finished(0, Verdict.PASSED), finished(1, None)]
    step = next_scheduled(scheduled(concurrencyPolicy=policy), runs, NOW)
    assert (step.create is not None, step.end, step.delete) == (starts, ended, ())
    waits = message_of(step.status).startswith("waits for run nightly-1")
    assert not (waits and starts)
    assert "concurrencyPolicy" not in (step.create or {"spec": {}})["spec"]


def test_a_run_that_was_not_ended_when_it_was_replaced_is_ended_later() -> None:
    runs = [finished(0, None), finished(1, None)]
    step = next_scheduled(scheduled(last=NOW, concurrencyPolicy="Replace"), runs, NOW)
    assert (step.create, step.end) == (None, ("nightly-0",))


@pytest.mark.parametrize(("late_s", "starts"), [(300, True), (301, False)])
def test_a_run_that_is_too_late_is_left_out(late_s: int, starts: bool) -> None:
    test = scheduled(startingDeadlineSeconds=300)
    step = next_scheduled(test, [], NOW + timedelta(seconds=late_s))
    assert (step.create is not None) is starts
    assert message_of(step.status) == "the next run starts at 2026-11-21T13:00:00Z"


def test_a_schedule_has_a_time_zone() -> None:
    """Berlin is two hours ahead of UTC in summer, one in winter."""
    zoned = read(schedule="30 2 * * *", timeZone="Europe/Berlin")
    for now, coming in (
        (datetime(2026, 7, 1, 12, tzinfo=UTC), "2026-07-02T00:30:00Z"),
        (datetime(2026, 12, 1, 12, tzinfo=UTC), "2026-12-02T01:30:00Z"),
    ):
        assert message_of(next_scheduled(zoned, [], now).status).endswith(coming)
    with pytest.raises(ValidationError, match="must be a time zone of the IANA database"):
        read(schedule="30 2 * * *", timeZone="Europe/Berlim")


@pytest.mark.parametrize(
    ("schedule", "why"),
    [
        ("99 * * * *", "out of range"),
        ("a * * * *", "[a * * * *] is not acceptable"),
        ("0 0 30 2 *", "failed to find next date"),
        ("* * * * 5#9", "Invalid day_of_week value: '9'"),
        ("H * * * *", "Hashed definitions must include hash_id"),
        ("R * * * *", "R, a moment at random, is not known here"),
        ("0 1,r(2-5) * * *", "R, a moment at random, is not known here"),
    ],
)
def test_a_schedule_that_is_none_is_said_in_a_sentence(schedule: str, why: str) -> None:
    test = scheduled().model_copy(
        update={"spec": read(schedule="@daily").spec.model_copy(update={"schedule": schedule})}
    )
    with pytest.raises(InvalidSpec) as refused:
        next_scheduled(test, [], NOW)
    sentence = str(refused.value)
    assert sentence.startswith(f"spec.schedule '{schedule}' names no time: ")
    assert why in sentence
    assert sentence.endswith("like 30 2 * * mon-fri")


@pytest.mark.parametrize("schedule", ["@hourly", "0 4 * mar,apr mon-fri", "30 2 L * *"])
def test_a_schedule_that_is_one_has_a_next_run(schedule: str) -> None:
    status = next_scheduled(scheduled(last=NOW, suspend=False), [], NOW).status
    assert message_of(status).startswith("the next run starts at ")
    test = read(schedule=schedule)
    assert next_scheduled(test, [], NOW).again_s > 0


def test_a_run_that_is_stalled_is_shown_by_its_schedule() -> None:
    run = finished(1, None)
    taken = Readiness.stalled(Reason.NAME_TAKEN, "Job nightly-1-probe is there already")
    stalled = run.model_copy(update={"status": with_conditions(run, taken, NOW)})
    step = next_scheduled(scheduled(), [stalled], NOW)
    assert (step.create, [str(c.type) for c in step.status.conditions]) == (
        None,
        ["Ready", "Stalled"],
    )
    assert message_of(step.status) == (
        "no run starts before nightly-1 has ended, and it is stalled: "
        "Job nightly-1-probe is there already"
    )
    failed = finished(1, Verdict.FAILED)
    ended = failed.model_copy(update={"status": decide(failed, jobs=ALL, report="{").status})
    assert next_scheduled(scheduled(), [ended], NOW).status.conditions[0].reason == "Scheduled"


def test_a_run_that_keeps_the_next_from_starting_is_shown_by_its_schedule() -> None:
    made = NOW + timedelta(minutes=10)
    waits = finished(1, None).model_copy(update={"status": decide(of_a_flow()).status})
    runs = finished(1, None).model_copy(update={"status": decide(read()).status})

    def outlook(run: MirrorTest, now: datetime) -> tuple[str, str]:
        (ready, *_) = next_scheduled(scheduled(last=NOW), [run], now).status.conditions
        return ready.status, ready.message

    no_flow = "waits for run nightly-1: there is no ReplicationFlow orders in namespace kafka"
    assert outlook(waits, made) == ("False", no_flow)
    assert outlook(runs, made) == ("True", "the next run starts at 2026-11-21T13:00:00Z")
    due = NOW + timedelta(hours=1)
    assert outlook(runs, due) == ("False", "waits for run nightly-1: starting the probe")
    assert outlook(finished(1, None), made)[0] == "True", "made a moment ago"
    assert outlook(finished(1, Verdict.PASSED), made)[0] == "True"


def test_a_schedule_reports_the_same_at_a_second_reconcile() -> None:
    first = next_scheduled(scheduled(last=NOW), [], NOW).status
    assert first.conditions[0].last_transition_time == NOW
    test = scheduled(last=NOW).model_copy(update={"status": first})
    assert next_scheduled(test, [], NOW + timedelta(minutes=1)).status == first


def test_old_runs_go_by_their_verdict() -> None:
    runs = [finished(n, Verdict.PASSED) for n in range(5)]
    runs += [finished(10 + n, Verdict.FAILED) for n in range(2)]
    runs += [finished(20, Verdict.INCONCLUSIVE), finished(30, None)]
    gone = next_scheduled(scheduled(last=NOW), reversed(runs), NOW).delete
    assert gone == ("nightly-0", "nightly-1", "nightly-10", "nightly-11")


def test_a_tests_pods_are_reached_by_each_other_alone_where_that_is_wanted() -> None:
    run = TestRun(read(), IMAGES, network_policy=True)
    (policy,) = (one for one in build_run(run) if one["kind"] == "NetworkPolicy")
    rule, of_metrics = policy["spec"]["ingress"]
    assert of_metrics == {"ports": [{"port": 8080, "protocol": "TCP"}]}
    (peer,) = rule["from"]
    assert peer["podSelector"] == policy["spec"]["podSelector"]
    wanted = policy["spec"]["podSelector"]["matchLabels"].items()
    jobs = [build_job(run, stage) for stage in run.stages]
    template = next(
        json.loads(one["data"]["executor.json"])
        for one in build_run(run)
        if "executor.json" in one.get("data", {})
    )
    for pod in (*(job["spec"]["template"] for job in jobs), template):
        assert wanted <= pod["metadata"]["labels"].items()
    open_ports = {port["port"] for port in rule["ports"]}
    for job in jobs:
        (container,) = job["spec"]["template"]["spec"]["containers"]
        used = {arg.partition("=")[2] for arg in container["args"] if ".port=" in arg}
        ports = {setting.rpartition("=")[0]: int(setting.rpartition("=")[2]) for setting in used}
        assert ports.keys() == {
            "spark.driver.port",
            "spark.blockManager.port",
            "spark.driver.blockManager.port",
        }
        assert set(ports.values()) == open_ports
    assert not [one for one in build_run(RUN) if one["kind"] == "NetworkPolicy"]
