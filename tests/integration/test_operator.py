"""The operator on a real API server: what it creates, repairs, refuses and reports.

No driver runs.
"""

import uuid
from collections.abc import Callable
from functools import partial
from operator import eq
from pathlib import Path
from typing import Any

import pytest
from cluster.api_server import ApiServer, OwnApiServer
from support.manifests import NOWHERE, mirror_test_of_another
from support.operators import ROOT, Operator, Resources, give_rights, running_operator
from support.patience import Unchanged

Wait = Callable[..., Any]

FLOW: dict[str, Any] = {
    "apiVersion": "headrace.dev/v1beta1",
    "kind": "ReplicationFlow",
    "metadata": {"name": "orders"},
    "spec": {
        "source": {"alias": "east", "bootstrapServers": "127.0.0.1:1"},
        "target": {"alias": "west", "bootstrapServers": "127.0.0.1:2"},
        "topics": {"include": ["orders"]},
    },
}
DRIVERS_BINDING = "rolebinding.rbac.authorization.k8s.io/orders-driver-"
"""Name of the binding to the role of all drivers, without the digest of that role."""
CHILDREN = {
    "serviceaccount/orders-driver",
    DRIVERS_BINDING,
    "role.rbac.authorization.k8s.io/orders-driver",
    "rolebinding.rbac.authorization.k8s.io/orders-driver",
    "poddisruptionbudget.policy/orders-driver",
    "deployment.apps/orders-driver",
    "replicationtask.headrace.dev/orders-source-connector-0",
    "replicationtask.headrace.dev/orders-checkpoint-connector-0",
    "replicationtask.headrace.dev/orders-heartbeat-connector-0",
}
KINDS = "serviceaccounts,roles,rolebindings,poddisruptionbudgets,deployments,replicationtasks"


def flow(**spec: Any) -> dict[str, Any]:
    return FLOW | {"spec": FLOW["spec"] | spec}


def children(resources: Resources) -> set[str]:
    names = resources.kubectl("get", KINDS, "-l", "headrace.dev/flow", "-o", "name").split()
    return {DRIVERS_BINDING if name.startswith(DRIVERS_BINDING) else name for name in names}


def ready(resources: Resources, name: str = "orders") -> tuple[str, str]:
    """Return status and reason of Ready."""
    condition = resources.condition(name, "Ready")
    return condition.get("status", ""), condition.get("reason", "")


def is_made(resources: Resources, wait_until: Wait) -> None:
    wait_until(lambda: children(resources) ^ CHILDREN, until=lambda less: not less)
    wait_until(lambda: ready(resources)[1], until=lambda why: why == "NoDrivers")


def test_a_flow_gets_its_children_and_says_what_it_waits_for(
    operator: Operator, resources: Resources, wait_until: Wait
) -> None:
    resources.apply(FLOW)
    is_made(resources, wait_until)
    assert ready(resources) == ("False", "NoDrivers")
    assert resources.condition("orders", "Reconciling")["status"] == "True"
    assert resources.flow("orders")["status"]["observedGeneration"] == 1
    metadata = resources.flow("orders")["metadata"]
    assert "finalizers" not in metadata
    assert metadata["annotations"].keys() == {"kubectl.kubernetes.io/last-applied-configuration"}
    row = resources.kubectl("get", "rflow").splitlines()[1].split()
    assert row[:3] == ["orders", "False", "NoDrivers"]
    assert operator.end() == 0
    # A new flow that waits for its first drivers is not worth an Event.
    assert resources.events("ReplicationFlow") == []


def test_what_somebody_changes_by_hand_is_as_it_was_a_moment_later(
    operator: Operator, resources: Resources, wait_until: Wait
) -> None:
    resources.apply(FLOW)
    is_made(resources, wait_until)
    resources.kubectl("scale", "deployment/orders-driver", "--replicas=7")
    resources.kubectl("delete", "role/orders-driver", "replicationtask/orders-source-connector-0")
    resources.kubectl("label", "--overwrite", "sa/orders-driver", "headrace.dev/flow=mine")
    wait_until(
        lambda: resources.get("deployment", "orders-driver")["spec"]["replicas"],
        until=lambda replicas: replicas == 2,
    )
    is_made(resources, wait_until)
    resources.kubectl(
        "patch", "rflow/orders", "--subresource=status", "--type=merge",
        "-p", '{"status": {"readyReplicas": 99, "observedGeneration": 77}}',
    )  # fmt: skip
    wait_until(
        lambda: resources.flow("orders")["status"],
        until=lambda status: (status["readyReplicas"], status["observedGeneration"]) == (0, 1),
    )


def test_nothing_is_written_when_nothing_changed(
    operator: Operator, resources: Resources, wait_until: Wait
) -> None:
    resources.apply(FLOW)
    is_made(resources, wait_until)
    wait_until(lambda: resources.flow("orders")["status"].get("replicas") == 2)
    wait_until(lambda: resources.versions(KINDS), until=Unchanged())
    writes = operator.writes()
    assert writes > 0
    # The flow changes, but not its wanted state; the operator compares all of it.
    resources.kubectl("annotate", "rflow/orders", "somebody=looked")
    wait_until(lambda: resources.versions(KINDS), until=Unchanged())
    assert operator.writes() == writes, operator.log


def test_scale_is_the_drivers(operator: Operator, resources: Resources, wait_until: Wait) -> None:
    resources.apply(FLOW)
    is_made(resources, wait_until)
    resources.kubectl("scale", "rflow/orders", "--replicas=5")
    wait_until(
        lambda: resources.get("deployment", "orders-driver")["spec"]["replicas"],
        until=lambda replicas: replicas == 5,
    )
    assert "app.kubernetes.io/component=driver" in resources.flow("orders")["status"]["selector"]


def test_a_paused_reconciliation_leaves_everything_alone_and_says_so(
    operator: Operator, resources: Resources, wait_until: Wait
) -> None:
    resources.apply(FLOW)
    is_made(resources, wait_until)
    pause = "headrace.dev/pause-reconciliation"
    resources.kubectl("annotate", "rflow/orders", f"{pause}=true")
    wait_until(
        lambda: resources.condition("orders", "ReconciliationPaused").get("status"),
        until=partial(eq, "True"),
    )
    assert ready(resources) == ("False", "NoDrivers"), "its units are looked after"
    resources.kubectl("scale", "deployment/orders-driver", "--replicas=7")
    resources.kubectl("patch", "rflow/orders", "--type=merge", "-p", '{"spec":{"state":"Stopped"}}')
    wait_until(lambda: ready(resources)[1], until=partial(eq, "Stopping"))
    assert resources.flow("orders")["status"]["observedGeneration"] == 1, "nothing was applied"
    assert resources.get("deployment", "orders-driver")["spec"]["replicas"] == 7
    resources.kubectl("annotate", "rflow/orders", f"{pause}-")
    wait_until(
        lambda: resources.get("deployment", "orders-driver")["spec"]["replicas"],
        until=lambda replicas: replicas == 0,
    )


@pytest.mark.long
def test_an_upgrade_rolls_out_one_flow_after_the_other(
    resources: Resources, tmp_path: Path, wait_until: Wait
) -> None:
    """Roll out without a kubelet: a roll-out does not end before its flow is deleted."""
    api_server = resources.api_server
    give_rights(api_server, resources.namespace)
    urgent = FLOW | {"metadata": {"name": "urgent"}}
    urgent |= {"spec": flow(drivers={"rolloutPriority": 1})["spec"]}
    pinned = FLOW | {"metadata": {"name": "pinned"}}
    pinned |= {"spec": flow(drivers={"image": "mine", "rolloutPriority": 2})["spec"]}

    def deployment(name: str) -> Any:
        return resources.get("deployment", f"{name}-driver")

    def image(name: str) -> str:
        template = deployment(name)["spec"]["template"]
        found: str = template["spec"]["containers"][0]["image"]
        return found

    def pods(name: str) -> int:
        return len(resources.get("pods", "-l", f"headrace.dev/flow={name}")["items"])

    with running_operator(
        api_server, resources.namespace, tmp_path, arguments=["--driver-image=headrace:1"]
    ):
        resources.apply(FLOW, urgent, pinned)
        for name in ("orders", "urgent", "pinned"):
            wait_until(partial(pods, name), until=partial(eq, 2))
    newer = ["--driver-image=headrace:2", "--max-concurrent-rollouts=1"]
    with running_operator(api_server, resources.namespace, tmp_path, "operator-2", arguments=newer):
        wait_until(partial(image, "urgent"), until=partial(eq, "headrace:2"))
        before = deployment("orders")["spec"]["template"]
        resources.kubectl("scale", "rflow/orders", "--replicas=3")
        wait_until(lambda: deployment("orders")["spec"]["replicas"], until=partial(eq, 3))
        wait_until(
            lambda: resources.condition("orders", "DriversAvailable").get("message", ""),
            until=lambda message: message.endswith("their roll-out waits for its turn"),
        )
        assert deployment("orders")["spec"]["template"] == before
        resources.kubectl("delete", "rflow/urgent")
        wait_until(partial(image, "orders"), until=partial(eq, "headrace:2"))
        assert image("pinned") == "mine"


def test_a_stopped_flow_has_no_pods_and_is_what_was_asked_for(
    operator: Operator, resources: Resources, wait_until: Wait
) -> None:
    resources.apply(flow(state="Stopped"))
    wait_until(lambda: ready(resources), until=partial(eq, ("True", "Stopped")))
    assert resources.get("deployment", "orders-driver")["spec"]["replicas"] == 0


def test_an_object_of_somebody_else_is_not_taken_over(
    operator: Operator, resources: Resources, wait_until: Wait
) -> None:
    mine = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "orders-driver"}}
    resources.apply(mine)
    resources.apply(FLOW)
    wait_until(lambda: ready(resources), until=partial(eq, ("False", "NameTaken")))
    assert "ServiceAccount orders-driver" in resources.condition("orders", "Stalled")["message"]
    assert "ownerReferences" not in resources.get("sa", "orders-driver")["metadata"]
    resources.kubectl("delete", "sa/orders-driver")
    is_made(resources, wait_until)  # it tries again every 15 s


@pytest.mark.parametrize(
    ("right", "sentence"),
    [
        ("create deployments", "may not create deployments.apps in namespace"),
        ("watch pods", "may not watch pods in namespace"),
    ],
)
def test_an_operator_without_a_right_says_which(
    *,
    api_server: ApiServer,
    resources: Resources,
    tmp_path: Path,
    wait_until: Wait,
    right: str,
    sentence: str,
) -> None:
    give_rights(api_server, resources.namespace, without=right)
    with running_operator(api_server, resources.namespace, tmp_path) as operator:
        resources.apply(FLOW)
        wait_until(lambda: ready(resources), until=partial(eq, ("False", "Forbidden")))
        assert sentence in resources.condition("orders", "Stalled")["message"]
        wait_until(lambda: sentence in operator.log)
        give_rights(api_server, resources.namespace)
        wait_until(lambda: children(resources) ^ CHILDREN, until=lambda less: not less)


def test_an_operator_that_cannot_stand_for_election_is_not_ready(
    api_server: ApiServer, resources: Resources, tmp_path: Path, wait_until: Wait
) -> None:
    give_rights(api_server, resources.namespace, without="get leases")
    with running_operator(api_server, resources.namespace, tmp_path) as operator:
        wait_until(lambda: "cannot stand for election" in operator.log)
        answer = wait_until(
            lambda: operator.get("/readyz"), until=lambda said: "may not get leases" in said
        )
        assert answer.startswith("the Lease headrace-operator was not reached yet: "), answer
        assert operator.get("/healthz") == "ok\n"
        give_rights(api_server, resources.namespace)
        wait_until(lambda: operator.get("/readyz"), until=partial(eq, "ok\n"))


def test_an_operator_says_at_its_start_what_it_may_not_see_and_goes_on_when_it_may(
    api_server: ApiServer, resources: Resources, tmp_path: Path, wait_until: Wait
) -> None:
    give_rights(api_server, resources.namespace, without="watch roles")
    with running_operator(api_server, resources.namespace, tmp_path) as operator:
        resources.apply(FLOW)
        is_made(resources, wait_until)
        wait_until(lambda: "may not watch roles.rbac.authorization.k8s.io in" in operator.log)
        give_rights(api_server, resources.namespace)
        resources.kubectl("scale", "deployment/orders-driver", "--replicas=7")
        wait_until(
            lambda: resources.get("deployment", "orders-driver")["spec"]["replicas"],
            until=partial(eq, 2),
        )
        resources.kubectl("delete", "role/orders-driver")
        is_made(resources, wait_until)


@pytest.mark.long
def test_mirror_tests_are_taken_up_when_their_definition_comes_and_flows_do_not_wait_for_it(
    own_api_server: OwnApiServer, resources: Resources, tmp_path: Path, wait_until: Wait
) -> None:
    give_rights(own_api_server, resources.namespace)
    own_api_server.kubectl("delete", "crd", "mirrortests.headrace.dev", "--timeout=300s")
    try:
        with running_operator(own_api_server, resources.namespace, tmp_path) as operator:
            resources.apply(FLOW)
            is_made(resources, wait_until)
            wait_until(lambda: "could not list mirrortests.headrace.dev" in operator.log)
            assert "apply the definitions (CRDs) first" in operator.log
            own_api_server.install_crds(ROOT / "crds")
            source, target = FLOW["spec"]["source"], FLOW["spec"]["target"]
            resources.apply(
                {
                    "apiVersion": "headrace.dev/v1beta1",
                    "kind": "MirrorTest",
                    "metadata": {"name": "late"},
                    "spec": {"source": source, "target": target, "load": {"messages": 1}},
                }
            )
            wait_until(lambda: resources.get("mtest", "late").get("status"))
    finally:
        own_api_server.install_crds(ROOT / "crds")


def test_a_pod_template_that_the_api_server_refuses_is_stalled_with_its_words(
    operator: Operator, resources: Resources, wait_until: Wait
) -> None:
    resources.apply(flow(drivers={"podTemplate": {"affinity": NOWHERE}}))
    wait_until(lambda: ready(resources), until=partial(eq, ("False", "Refused")))
    assert "nodeSelectorTerms" in resources.condition("orders", "Stalled")["message"]


def test_children_go_with_their_flow_also_while_no_operator_runs(
    operator: Operator, resources: Resources, wait_until: Wait
) -> None:
    resources.apply(FLOW)
    is_made(resources, wait_until)
    assert operator.end() == 0
    resources.kubectl("delete", "rflow/orders", "--timeout=300s")
    wait_until(lambda: children(resources), until=lambda left: not left)


def test_a_flow_that_is_deleted_and_made_again_gets_children_of_its_own(
    operator: Operator, resources: Resources, wait_until: Wait
) -> None:
    resources.apply(FLOW)
    is_made(resources, wait_until)
    before = resources.uids(KINDS)
    resources.kubectl("delete", "rflow/orders", "--wait=false")
    resources.apply(FLOW)
    uid = resources.flow("orders")["metadata"]["uid"]
    wait_until(lambda: resources.owners(KINDS), until=lambda owners: owners == {uid})
    is_made(resources, wait_until)
    assert not before & resources.uids(KINDS)


def test_a_copy_of_a_unit_and_one_of_another_flow_are_left_out(
    operator: Operator, resources: Resources, wait_until: Wait
) -> None:
    resources.apply(FLOW)
    is_made(resources, wait_until)
    mine = resources.owner("orders")
    for name, owner in (
        ("orders-source-task-0", mine),
        ("a-copy", mine),
        ("orders-source-task-1", mine | {"uid": str(uuid.uuid4())}),
    ):
        resources.apply(
            {
                "apiVersion": "headrace.dev/v1beta1",
                "kind": "ReplicationTask",
                "metadata": {"name": name, "ownerReferences": [owner]},
                "spec": {
                    "flowName": "orders",
                    "type": "SourceTask",
                    "index": int(name[-1]) if name[-1].isdigit() else 0,
                },
            }
        )
    wait_until(lambda: "a-copy" in operator.log)
    wait_until(
        lambda: resources.flow("orders")["status"].get("tasks", {}).get("total"),
        until=partial(eq, 1),
    )
    wait_until(lambda: "it says that it is orders-source-task-0: delete it" in operator.log)


def test_of_two_flows_that_write_one_target_topic_the_later_one_waits(
    operator: Operator, resources: Resources, wait_until: Wait
) -> None:
    names = ("first", "second")
    for name in names:
        resources.apply(flow() | {"metadata": {"name": name}})
        wait_until(lambda name=name: ready(resources, name)[1], until=partial(eq, "NoDrivers"))
        resources.apply(
            {
                "apiVersion": "headrace.dev/v1beta1",
                "kind": "ReplicationTask",
                "metadata": {
                    "name": f"{name}-source-task-0",
                    "labels": {"headrace.dev/target-cluster": "abc", "headrace.dev/flow": name},
                    "annotations": {"headrace.dev/target-topics": "east.a\neast.b"},
                    "ownerReferences": [resources.owner(name)],
                },
                "spec": {"flowName": name, "type": "SourceTask"},
            }
        )
    wait_until(lambda: ready(resources, "second"), until=partial(eq, ("False", "TargetTopicTaken")))
    message = resources.condition("second", "Stalled")["message"]
    assert "flow first" in message
    assert "topic east.a" in message
    assert ready(resources, "first")[1] == "NoDrivers"


def test_of_two_flows_whose_records_would_go_round_the_later_one_waits(
    operator: Operator, resources: Resources, wait_until: Wait
) -> None:
    """Compare the topics of their units: the patterns alone do not show the cycle.

    The later flow starts when the other one is stopped or deleted.
    """
    here, there = ({"alias": f"k{n}", "bootstrapServers": f"127.0.0.1:{n}"} for n in (1, 2))
    named = {"replicationPolicy": {"type": "Identity"}}
    away_and_back = {
        "away": flow(source=here, target=there, **named, topics={"include": ["orders-.*"]}),
        "back": flow(source=there, target=here, **named, topics={"include": [".*-eu"]}),
    }
    ids = {"away": ("abc", "def"), "back": ("def", "abc")}

    def put(name: str, **more: Any) -> None:
        made = away_and_back[name]
        resources.apply(made | {"metadata": {"name": name}, "spec": made["spec"] | more})

    def reasons() -> dict[str, str]:
        return {name: ready(resources, name)[1] for name in away_and_back}

    for name, (source, target) in ids.items():
        put(name)
        labels = {"headrace.dev/source-cluster": source, "headrace.dev/target-cluster": target}
        resources.apply(
            {
                "apiVersion": "headrace.dev/v1beta1",
                "kind": "ReplicationTask",
                "metadata": {
                    "name": f"{name}-source-task-0",
                    "labels": labels | {"headrace.dev/flow": name},
                    "annotations": {"headrace.dev/target-topics": "orders-eu"},
                    "ownerReferences": [resources.owner(name)],
                },
                "spec": {
                    "flowName": name,
                    "type": "SourceTask",
                    "partitions": [{"topic": "orders-eu", "partitions": "0"}],
                },
            }
        )
    waits = {"away": "NoDrivers", "back": "ReplicationLoop"}
    wait_until(reasons, until=partial(eq, waits))
    message = resources.condition("back", "Stalled")["message"]
    assert "records of orders-eu would go round" in message
    assert f"flow away of namespace {resources.namespace} copies that back" in message
    assert "stop one of the flows (spec.state: Stopped)" in message

    put("away", state="Stopped")
    wait_until(lambda: reasons()["back"], until=partial(eq, "NoDrivers"))
    put("away")
    wait_until(lambda: reasons()["back"], until=partial(eq, "ReplicationLoop"))
    resources.kubectl("delete", "rflow/away")
    wait_until(lambda: ready(resources, "back")[1], until=partial(eq, "NoDrivers"))


def test_a_second_operator_waits_and_takes_over(
    operator: Operator,
    api_server: ApiServer,
    resources: Resources,
    tmp_path: Path,
    wait_until: Wait,
) -> None:
    resources.apply(FLOW)
    is_made(resources, wait_until)
    with running_operator(api_server, resources.namespace, tmp_path, "operator-2") as second:
        wait_until(lambda: "waits to lead" in second.log)
        assert resources.leader() == "operator-1"
        assert operator.end() == 0
        wait_until(resources.leader, until=partial(eq, "operator-2"))
        resources.kubectl("delete", "role/orders-driver")
        is_made(resources, wait_until)


def test_network_policies_go_when_they_are_not_wanted_any_more(
    api_server: ApiServer, resources: Resources, tmp_path: Path, wait_until: Wait
) -> None:
    def policies() -> list[str]:
        return resources.kubectl("get", "networkpolicies", "-o", "name").split()

    policy = "networkpolicy.networking.k8s.io/orders-driver"
    give_rights(api_server, resources.namespace)
    with running_operator(
        api_server, resources.namespace, tmp_path, network_policy=True
    ) as operator:
        resources.apply(FLOW)
        wait_until(policies, until=partial(eq, [policy]))
        assert operator.end() == 0
    with running_operator(api_server, resources.namespace, tmp_path, "operator-2"):
        wait_until(policies, until=partial(eq, []))
        is_made(resources, wait_until)


def test_an_operator_for_all_namespaces(
    own_api_server: OwnApiServer, resources: Resources, tmp_path: Path, wait_until: Wait
) -> None:
    give_rights(own_api_server, resources.namespace, everywhere=True)
    other = Resources(own_api_server, f"{resources.namespace}-b")
    other.kubectl("create", "namespace", other.namespace)
    try:
        with running_operator(own_api_server, resources.namespace, tmp_path, everywhere=True):
            for one in (resources, other):
                one.apply(FLOW)
                is_made(one, wait_until)
    finally:
        other.kubectl("delete", "namespace", other.namespace, "--wait=false")


def test_an_operator_of_two_namespaces_and_of_some_flows(
    own_api_server: OwnApiServer, resources: Resources, tmp_path: Path, wait_until: Wait
) -> None:
    """Run a canary operator, which ignores the flows that it does not select."""
    give_rights(own_api_server, resources.namespace)
    other = Resources(own_api_server, f"{resources.namespace}-b")
    third = Resources(own_api_server, f"{resources.namespace}-c")
    for one in (other, third):
        one.kubectl("create", "namespace", one.namespace)
    give_rights(own_api_server, other.namespace, account_of=resources.namespace)
    labels = {"headrace.dev/channel": "canary"}
    canary = FLOW | {"metadata": {"name": "orders", "labels": labels}}
    stable = FLOW | {"metadata": {"name": "stable"}}
    served = [f"--namespace={other.namespace}", "--selector=headrace.dev/channel=canary"]
    try:
        with running_operator(
            own_api_server, resources.namespace, tmp_path, arguments=served
        ) as operator:
            for one in (third, resources, other):
                one.apply(stable, canary)
            is_made(resources, wait_until)
            is_made(other, wait_until)
            for one in (resources, other):
                assert "status" not in one.flow("stable")
            assert children(third) == set()
            resources.kubectl("label", "rflow/stable", "headrace.dev/channel=canary")
            wait_until(lambda: ready(resources, "stable")[1], until=bool)
            assert "Traceback" not in operator.log
    finally:
        for one in (other, third):
            one.kubectl("delete", "namespace", one.namespace, "--wait=false")


def test_without_mirror_tests_no_rights_on_them_are_needed(
    api_server: ApiServer, resources: Resources, tmp_path: Path, wait_until: Wait
) -> None:
    give_rights(api_server, resources.namespace, mirror_tests=False)
    alone = ["--no-mirror-tests"]
    with running_operator(api_server, resources.namespace, tmp_path, arguments=alone) as operator:
        resources.apply(mirror_test_of_another("nightly"), FLOW)
        is_made(resources, wait_until)
        assert "cannot list all kinds of objects" not in operator.log
        assert "Traceback" not in operator.log
        assert "status" not in resources.get("mtest", "nightly")


def test_a_leader_that_cannot_renew_its_lease_ends(
    operator: Operator, own_api_server: OwnApiServer, resources: Resources, wait_until: Wait
) -> None:
    wait_until(lambda: "event=leads" in operator.log)  # the Lease names it a moment earlier
    own_api_server.freeze()
    try:
        wait_until(operator.process.poll, until=lambda code: code is not None)
    finally:
        own_api_server.thaw()
    assert operator.process.poll() == 1
    assert "was not renewed" in operator.log


def test_pods_that_the_api_server_does_not_take_are_said(
    operator: Operator, resources: Resources, wait_until: Wait
) -> None:
    resources.apply(flow(drivers={"podTemplate": {"priorityClassName": "nowhere"}}))
    wait_until(
        lambda: resources.condition("orders", "Ready").get("message", ""),
        until=lambda message: (
            message.startswith("the API server takes no driver pod: pods ")
            and "no PriorityClass with name nowhere was found" in message
        ),
    )
    resources.apply(flow())
    wait_until(
        lambda: resources.condition("orders", "Ready").get("message", ""),
        until=lambda message: "takes no driver pod" not in message,
    )
