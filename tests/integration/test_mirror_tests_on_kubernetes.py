"""The operator runs MirrorTests. No pod runs here: the test reports the outcome of each pod."""

import json
import re
from collections.abc import Callable
from datetime import UTC, datetime
from functools import partial
from operator import eq
from pathlib import Path
from typing import Any

import pytest
from cluster.api_server import ApiServer
from cluster.kubectl import KubectlError
from support.manifests import NOWHERE
from support.operators import ACCOUNT, Operator, Resources, give_rights, running_operator

Wait = Callable[..., Any]
MOMENT = "2026-11-21T12:00:00Z"

TEST: dict[str, Any] = {
    "apiVersion": "headrace.dev/v1beta1",
    "kind": "MirrorTest",
    "metadata": {"name": "nightly"},
    "spec": {
        "source": {"alias": "east", "bootstrapServers": "127.0.0.1:1"},
        "target": {"alias": "west", "bootstrapServers": "127.0.0.1:2"},
        "load": {"messages": 1000},
    },
}


AUDIT = TEST | {
    "spec": {
        "source": TEST["spec"]["source"],
        "target": TEST["spec"]["target"],
        "audit": {"topics": ["orders"]},
    }
}
HARMFUL = {"containers": [{"name": "c", "image": "i"}]}


class Stages:
    """The Jobs of test ``nightly``, whose pods wait for a node until the test sets their status."""

    def __init__(self, resources: Resources, wait_until: Wait) -> None:
        self._resources, self._wait_until = resources, wait_until

    def there(self) -> set[str]:
        return set(self._resources.kubectl("get", "jobs", "-o", "name").split())

    def appears(self, stage: str) -> None:
        name = f"job.batch/nightly-{stage}"
        self._wait_until(self.there, until=lambda jobs: name in jobs)

    def are_gone(self) -> None:
        self._wait_until(self.there, until=lambda jobs: not jobs)

    def is_ready(self, stage: str) -> None:
        ready = {"type": "Ready", "status": "True", "lastTransitionTime": MOMENT}
        self.pod_is(stage, phase="Running", startTime=MOMENT, conditions=[ready])

    def ends(self, stage: str, how: str = "Complete") -> None:
        self.pod_is(stage, phase="Succeeded" if how == "Complete" else "Failed")

    def pod_is(self, stage: str, **status: Any) -> None:
        """Set the status of the stage's pod, as a kubelet would."""
        of_stage = ("-l", f"headrace.dev/mirror-test=nightly,headrace.dev/stage={stage}")
        pods = self._wait_until(lambda: self._resources.get("pods", *of_stage)["items"])
        self._resources.kubectl(
            "patch", f"pod/{pods[0]['metadata']['name']}", "--subresource=status", "--type=merge",
            "-p", json.dumps({"status": status}),
        )  # fmt: skip

    def reports(self, document: dict[str, Any]) -> None:
        data = json.dumps({"data": {"report.json": json.dumps(document)}})
        self._resources.kubectl("patch", "configmap/nightly-report", "--type=merge", "-p", data)


@pytest.fixture
def stages(resources: Resources, wait_until: Wait) -> Stages:
    return Stages(resources, wait_until)


def status(resources: Resources, name: str = "nightly") -> dict[str, Any]:
    found: dict[str, Any] = resources.get("mtest", name).get("status", {})
    return found


def test_from_the_probe_to_the_verdict(
    operator: Operator, resources: Resources, stages: Stages, wait_until: Wait
) -> None:
    resources.apply(TEST)
    stages.appears("probe")
    wait_until(lambda: status(resources).get("phase"), until=lambda p: p == "Pending")
    assert stages.there() == {"job.batch/nightly-probe"}
    stages.is_ready("probe")
    stages.appears("produce")
    wait_until(lambda: status(resources)["phase"], until=lambda p: p == "Running")
    stages.ends("produce")
    stages.ends("probe")
    stages.appears("verify")
    wait_until(lambda: status(resources)["phase"], until=lambda p: p == "Verifying")
    run = resources.get("job", "nightly-verify")["spec"]["template"]["spec"]["containers"][0]
    name = next(a for a in run["args"] if a.startswith("--run=")).removeprefix("--run=")
    stages.reports(
        {
            "run": name,
            "verdict": "Failed",
            "reasons": ["3 messages are missing, 0 are allowed"],
            "counts": {"acknowledged": 1000, "missing": 3, "sentinels": 24},
            "latencyMs": {"p50": 5, "p99": 40, "p999": 60, "max": 70, "measured": 997},
        }
    )
    stages.ends("verify", "Failed")
    resources.kubectl(
        "wait", "mtest/nightly", "--for=jsonpath={.status.verdict}=Failed", "--timeout=300s"
    )
    row = resources.kubectl("get", "mtest").splitlines()
    print("\n".join(row))
    assert row[1].split()[:7] == [
        "nightly",
        "Finished",
        "Failed",
        "False",
        "TestFailed",
        "1000",
        "3",
    ]
    ready = next(c for c in status(resources)["conditions"] if c["type"] == "Ready")
    assert (ready["status"], ready["reason"]) == ("False", "TestFailed")
    assert ready["message"] == "3 messages are missing, 0 are allowed"
    assert status(resources)["report"] == "nightly-report"
    wait_until(
        lambda: {event["reason"] for event in resources.events("MirrorTest")},
        until={"TestRunning", "TestFailed"}.issubset,
    )

    resources.kubectl("delete", "mtest/nightly")
    what = "jobs,configmaps,serviceaccounts,roles,rolebindings"
    label = "headrace.dev/mirror-test=nightly"
    wait_until(
        lambda: resources.kubectl("get", what, "-l", label, "-o", "name"),
        until=lambda left: not left,
    )


def test_a_spec_that_cannot_be_parsed_has_a_reason_and_an_event(
    operator: Operator, resources: Resources, wait_until: Wait
) -> None:
    clusters = {
        "source": {"alias": "east", "bootstrapServers": "a:1,b:2"},
        "target": {"alias": "west", "bootstrapServers": "b:2,a:1"},
    }
    resources.apply(TEST | {"spec": TEST["spec"] | clusters})
    wait_until(
        lambda: resources.kubectl("get", "mtest", "--no-headers").split()[:3],
        until=partial(eq, ["nightly", "False", "InvalidSpec"]),
    )
    event = wait_until(lambda: resources.events("MirrorTest"))[0]
    assert (event["type"], event["reason"]) == ("Warning", "InvalidSpec")
    assert "must differ from spec.source.bootstrapServers" in event["message"]


def test_an_audit_runs_a_verifier_only(
    operator: Operator, resources: Resources, stages: Stages, wait_until: Wait
) -> None:
    resources.apply(AUDIT)
    stages.appears("verify")
    wait_until(lambda: status(resources).get("phase"), until=partial(eq, "Verifying"))
    assert stages.there() == {"job.batch/nightly-verify"}
    kept = json.loads(resources.get("configmap", "nightly-run")["data"]["test.json"])
    assert kept["spec"]["audit"]["topics"] == ["orders"]
    run = resources.get("job", "nightly-verify")["spec"]["template"]["spec"]["containers"][0]
    name = next(a for a in run["args"] if a.startswith("--run=")).removeprefix("--run=")
    why = "1 record is missing on the target (allowed: 0)"
    counts = {"acknowledged": 10, "missing": 1}
    stages.reports({"run": name, "verdict": "Failed", "reasons": [why], "counts": counts})
    stages.ends("verify", "Failed")
    wait_until(lambda: status(resources).get("verdict"), until=partial(eq, "Failed"))
    assert status(resources)["counts"]["missing"] == 1
    assert condition(resources, "Ready")["message"] == why


def test_a_load_whose_job_is_gone_is_not_sent_again(
    operator: Operator, resources: Resources, stages: Stages, wait_until: Wait
) -> None:
    resources.apply(TEST)
    stages.appears("probe")
    stages.is_ready("probe")
    stages.appears("produce")
    wait_until(lambda: status(resources)["phase"], until=lambda p: p == "Running")
    resources.kubectl("delete", "job/nightly-produce", "--cascade=background")
    wait_until(lambda: status(resources).get("verdict"), until=lambda v: v == "Inconclusive")
    stages.are_gone()  # no stage waits for the probe any more


def test_a_test_waits_for_its_flow_and_says_so(
    operator: Operator, resources: Resources, stages: Stages, wait_until: Wait
) -> None:
    resources.apply(TEST | {"spec": {"flowName": "orders"}})
    wait_until(
        lambda: [c.get("message") for c in status(resources).get("conditions", [])],
        until=lambda messages: any("there is no ReplicationFlow orders" in one for one in messages),
    )
    assert stages.there() == set()


def test_a_test_with_a_schedule_makes_tests(
    operator: Operator, resources: Resources, stages: Stages, wait_until: Wait
) -> None:
    resources.apply(TEST | {"spec": TEST["spec"] | {"schedule": "* * * * *"}})
    every_minute = AUDIT["spec"] | {"schedule": "* * * * *"}
    resources.apply(AUDIT | {"metadata": {"name": "audits"}, "spec": every_minute})

    def made_by(schedule: str) -> list[dict[str, Any]]:
        tests = resources.get("mtest")["items"]
        return [one for one in tests if one["metadata"]["name"].startswith(f"{schedule}-")]

    made = wait_until(partial(made_by, "nightly"))[0]
    assert made["metadata"]["ownerReferences"][0]["name"] == "nightly"
    assert "schedule" not in made["spec"]
    assert made["spec"]["load"] == {"messages": 1000}
    wait_until(lambda: status(resources, made["metadata"]["name"]).get("phase"))
    wait_until(lambda: status(resources).get("lastScheduleTime"))
    wait_until(
        lambda: {c["type"]: c["reason"] for c in status(resources).get("conditions", [])},
        until=partial(eq, {"Ready": "Scheduled"}),
    )
    audit = wait_until(partial(made_by, "audits"))[0]
    assert audit["spec"]["audit"] == AUDIT["spec"]["audit"]
    job = f"job.batch/{audit['metadata']['name']}-verify"
    wait_until(stages.there, until=lambda jobs: job in jobs)


def test_topics_of_a_run_are_deleted_before_the_run_leaves_the_history(
    operator: Operator, resources: Resources, stages: Stages, wait_until: Wait
) -> None:
    history = {"schedule": "* * * * *", "failedTestsHistoryLimit": 0}
    resources.apply(TEST | {"spec": TEST["spec"] | history})
    probe = wait_until(lambda: [one for one in stages.there() if one.endswith("-probe")])[0]
    run = probe.removeprefix("job.batch/").removesuffix("-probe")
    ended = json.dumps({"status": {"verdict": "Failed", "phase": "Finished"}})
    resources.kubectl("patch", f"mtest/{run}", "--subresource=status", "--type=merge", "-p", ended)
    job = f"{run}-clean-up"
    wait_until(stages.there, until=lambda jobs: f"job.batch/{job}" in jobs)
    pods = wait_until(lambda: resources.get("pods", "-l", f"job-name={job}")["items"])
    assert [one["command"] for one in pods[0]["spec"]["containers"]] == [
        ["headrace", "test", "clean-up"]
    ]
    assert run in resources.kubectl("get", "mtest", "-o", "name")
    resources.kubectl(
        "patch", f"pod/{pods[0]['metadata']['name']}", "--subresource=status", "--type=merge",
        "-p", json.dumps({"status": {"phase": "Succeeded"}}),
    )  # fmt: skip
    wait_until(
        lambda: resources.kubectl("get", "mtest", "-o", "name"),
        until=lambda names: run not in names,
    )


def condition(resources: Resources, type: str, name: str = "nightly") -> dict[str, str]:
    conditions = status(resources, name).get("conditions", [])
    return next((one for one in conditions if one["type"] == type), {})


def may_list_jobs(resources: Resources) -> bool:
    """Return whether the operator may list Jobs: changed permissions take effect late."""
    who = f"--as=system:serviceaccount:{resources.namespace}:{ACCOUNT}"
    try:
        resources.kubectl("get", "jobs", who)
    except KubectlError as error:
        if 'cannot list resource "jobs"' not in str(error):
            raise
        return False
    return True


@pytest.mark.long
def test_a_right_that_is_missed_for_a_while_undoes_nothing(
    *,
    api_server: ApiServer,
    resources: Resources,
    stages: Stages,
    tmp_path: Path,
    wait_until: Wait,
) -> None:
    give_rights(api_server, resources.namespace)
    with running_operator(api_server, resources.namespace, tmp_path):
        resources.apply(TEST)
        stages.appears("probe")
        stages.is_ready("probe")
        stages.appears("produce")
        wait_until(lambda: status(resources)["phase"], until=lambda seen: seen == "Running")

    def take_the_right() -> None:
        give_rights(api_server, resources.namespace, without="list jobs")
        wait_until(lambda: not may_list_jobs(resources))

    take_the_right()
    resources.kubectl("delete", "job/nightly-produce", "--cascade=background")
    with running_operator(api_server, resources.namespace, tmp_path):
        wait_until(
            lambda: condition(resources, "Stalled").get("reason"),
            until=lambda seen: seen == "Forbidden",
        )
        assert status(resources)["phase"] == "Running"
        give_rights(api_server, resources.namespace)
        resources.kubectl("label", "mtest/nightly", "look=again")
        wait_until(
            lambda: status(resources).get("verdict"), until=lambda seen: seen == "Inconclusive"
        )
        stages.are_gone()
    judged, ready = status(resources), condition(resources, "Ready")
    assert ready["message"] == "the producer's Job was deleted: it is unknown what was sent"

    # It does not touch a test that has ended. A later test reports the fault, this one does not.
    take_the_right()
    with running_operator(api_server, resources.namespace, tmp_path):
        resources.kubectl("label", "mtest/nightly", "look=after", "--overwrite")
        resources.apply(TEST | {"metadata": {"name": "weekly"}})
        wait_until(
            lambda: condition(resources, "Stalled", "weekly").get("reason"),
            until=lambda seen: seen == "Forbidden",
        )
    assert status(resources) == judged


@pytest.mark.parametrize(
    ("kind", "name", "stage"),
    [("ServiceAccount", "nightly-spark", ""), ("Job", "nightly-verify", "nightly-verify")],
)
def test_what_belongs_to_somebody_else_is_left_alone(
    *,
    operator: Operator,
    resources: Resources,
    stages: Stages,
    wait_until: Wait,
    kind: str,
    name: str,
    stage: str,
) -> None:
    mine: dict[str, Any] = {"apiVersion": "v1", "kind": kind, "metadata": {"name": name}}
    if stage:
        container = {"name": "mine", "image": "mine"}
        pod = {"restartPolicy": "Never", "containers": [container]}
        mine |= {"apiVersion": "batch/v1", "spec": {"template": {"spec": pod}}}
    resources.apply(mine)
    before = resources.get(kind, name)
    resources.apply(TEST)
    stalled = wait_until(lambda: condition(resources, "Stalled"))
    assert (stalled["reason"], condition(resources, "Ready")["status"]) == ("NameTaken", "False")
    assert stalled["message"] == (
        f"{kind} {name} in namespace {resources.namespace} is there already and is not of this "
        "test, which needs one of that name: delete or rename it, or give the test another name"
    )
    assert stages.there() == ({f"job.batch/{stage}"} if stage else set())
    after = resources.get(kind, name)
    assert (after["metadata"].get("ownerReferences"), after.get("spec")) == (
        None,
        before.get("spec"),
    )
    resources.kubectl("delete", f"{kind}/{name}")
    stages.appears("probe")  # it tries again every 15 s


def test_a_test_whose_job_is_refused_can_be_mended_until_it_begins(
    operator: Operator, resources: Resources, stages: Stages, wait_until: Wait
) -> None:
    def change(spec: dict[str, Any]) -> None:
        resources.kubectl(
            "patch", "mtest/nightly", "--type=merge", "-p", json.dumps({"spec": spec})
        )

    nowhere = {"podTemplate": {"affinity": NOWHERE}}
    resources.apply(TEST | {"spec": TEST["spec"] | nowhere})
    stalled = wait_until(lambda: condition(resources, "Stalled"))
    assert (stalled["reason"], stages.there()) == ("Refused", set())
    change({"podTemplate": None, "settleSeconds": 7})
    stages.appears("probe")
    wait_until(lambda: status(resources).get("startTime"))
    kept = json.loads(resources.get("configmap", "nightly-run")["data"]["test.json"])
    assert kept["spec"]["settleSeconds"] == 7
    for late in ({"budgets": {"missing": 1}}, {"schedule": "@daily"}):
        with pytest.raises(KubectlError, match="is immutable once the test has begun"):
            change(late)


def test_a_schedule_that_is_none_says_so_and_can_be_mended(
    operator: Operator, resources: Resources, wait_until: Wait
) -> None:
    resources.apply(TEST | {"spec": TEST["spec"] | {"schedule": "0 0 30-31 2 *"}})
    stalled = wait_until(lambda: condition(resources, "Stalled"))
    assert stalled["reason"] == "InvalidSpec"
    assert stalled["message"].startswith("spec.schedule '0 0 30-31 2 *' names no time: ")
    assert "phase" not in status(resources)
    resources.kubectl(
        "patch", "mtest/nightly", "--type=merge", "-p", '{"spec": {"schedule": "@yearly"}}'
    )
    wait_until(
        lambda: condition(resources, "Ready").get("reason"), until=lambda seen: seen == "Scheduled"
    )
    assert condition(resources, "Stalled") == {}
    assert "Traceback" not in operator.log


def test_a_status_of_a_later_version_is_written_again_and_loses_nothing(
    operator: Operator, resources: Resources, wait_until: Wait
) -> None:
    of_this_year = f"{datetime.now(UTC).year}-01-01T00:00:00Z"
    resources.apply(TEST | {"spec": TEST["spec"] | {"schedule": "@yearly"}})
    wait_until(lambda: condition(resources, "Ready"))
    resources.kubectl(
        "patch", "mtest/nightly", "--subresource=status", "--type=merge",
        "-p", json.dumps({"status": {"lastScheduleTime": of_this_year}}),
    )  # fmt: skip
    # As an operator of a later version may leave it.
    resources.kubectl(
        "patch", "mtest/nightly", "--subresource=status", "--type=merge",
        "-p", '{"status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True",'
        ' "reason": "OfALaterVersion", "message": "", "lastTransitionTime":'
        ' "2026-01-01T00:00:00Z"}]}}',
    )  # fmt: skip
    wait_until(lambda: condition(resources, "Ready").get("reason"), until=partial(eq, "Scheduled"))
    assert status(resources)["lastScheduleTime"] == of_this_year
    assert "Traceback" not in operator.log


@pytest.mark.long
def test_a_node_that_is_too_small_is_said(
    operator: Operator, resources: Resources, stages: Stages, wait_until: Wait
) -> None:
    resources.apply(TEST)
    stages.appears("probe")
    no_node = {
        "type": "PodScheduled",
        "status": "False",
        "reason": "Unschedulable",
        "message": "0/1 nodes are available: 1 Insufficient memory.",
        "lastTransitionTime": MOMENT,
    }
    stages.pod_is("probe", phase="Pending", conditions=[no_node])
    stalled = wait_until(lambda: condition(resources, "Stalled"))
    assert stalled["reason"] == "Unschedulable"
    assert re.fullmatch(
        r"pod nightly-probe-\w+ fits on no node: 0/1 nodes are available: 1 Insufficient memory. "
        r"It asks for cpu 500m and memory 1Gi: make room, or lower spec.spark.driver, or let it "
        r"onto other nodes by spec.podTemplate",
        stalled["message"],
    )
    stages.is_ready("probe")  # another node joined
    stages.appears("produce")
    wait_until(lambda: condition(resources, "Stalled"), until=partial(eq, {}))


def test_all_pods_are_as_pod_security_restricts_them(
    operator: Operator, resources: Resources, stages: Stages, wait_until: Wait
) -> None:
    enforced = "pod-security.kubernetes.io/enforce=restricted"
    resources.kubectl("label", "namespace", resources.namespace, enforced)
    resources.apply(TEST)
    stages.appears("probe")
    stages.is_ready("probe")  # its Job was let make a pod
    template = json.loads(resources.get("configmap", "nightly-run")["data"]["executor.json"])
    template["metadata"]["name"] = "executor"
    template["spec"]["containers"][0]["image"] = "spark"
    resources.apply(template | {"spec": template["spec"] | {"serviceAccountName": "default"}})
    with pytest.raises(KubectlError, match="violates PodSecurity"):
        resources.apply(template | {"metadata": {"name": "other"}, "spec": HARMFUL})


def test_spark_drivers_make_executors_and_the_operator_makes_no_pods(
    operator: Operator, resources: Resources, stages: Stages, wait_until: Wait
) -> None:
    """Check the line of docs/security-kubernetes.md about Spark drivers, and attempt it."""
    resources.apply(TEST)
    stages.appears("probe")

    def attempt(account: str) -> str:
        who = f"--as=system:serviceaccount:{resources.namespace}:{account}"
        return resources.kubectl("run", f"by-{account}", "--image=spark", "--dry-run=server", who)

    wait_until(lambda: "created" in attempt("nightly-spark"))  # permissions take effect late
    for account in ("headrace-operator", "nightly-executor"):
        with pytest.raises(KubectlError, match='cannot create resource "pods"'):
            attempt(account)


def test_only_a_tests_own_pods_reach_those_of_spark_where_that_is_wanted(
    api_server: ApiServer, namespace: str, tmp_path: Path, resources: Resources, wait_until: Wait
) -> None:
    give_rights(api_server, namespace)
    wanted = ["--test-network-policy"]
    with running_operator(api_server, namespace, tmp_path, arguments=wanted):
        resources.apply(TEST)
        policy = wait_until(
            lambda: resources.get("networkpolicies", "-l", "headrace.dev/mirror-test=nightly")[
                "items"
            ]
        )[0]
    assert policy["metadata"]["name"] == "nightly-spark"
    assert policy["metadata"]["ownerReferences"][0]["kind"] == "MirrorTest"
    rule, of_metrics = policy["spec"]["ingress"]
    assert [port["port"] for port in rule["ports"]] == [7078, 7079]
    assert of_metrics == {"ports": [{"port": 8080, "protocol": "TCP"}]}
