"""Defaults of MirrorTest, and the errors for invalid tests."""

import pytest
from support.manifests import EAST, WEST, Document, Say, mirror_test, mirror_test_of_another

from headrace.api import Load, MirrorTest

HALF = {"atPercent": 50, "action": "KillDriver"}
AT_9_S = {"atSeconds": 9, "action": "KillDriver"}


def test_a_load_is_bounded_by_a_number_or_by_time() -> None:
    assert (Load().messages, Load().topics) == (1_000_000, 3)
    by_time = Load(duration_seconds=60, names=("a", "b"))
    assert (by_time.messages, by_time.topics) == (None, None)
    assert Load.model_validate(by_time.model_dump()) == by_time


@pytest.mark.parametrize(
    "template",
    ["{topic}", "{source}.{topic}", "copy-of-{topic}", "{topic}{topic}"],
)
def test_names_on_the_target(template: str) -> None:
    spec = MirrorTest.model_validate(mirror_test_of_another(targetTopic=template)).spec
    assert spec.target_topic == template


@pytest.mark.parametrize(
    "template",
    [
        "",
        "orders",
        "{source}",
        "{topic",
        "{}",
        "{topic}.{cluster}",
        "{topic!r}",
        "{topic:>9}",
        "{topic.upper}",
        "{topic} {source}",
        "{{topic}}",
        "{{}}{topic}",
    ],
)
def test_what_names_no_topic(say: Say, template: str) -> None:
    (message,) = say(mirror_test_of_another(targetTopic=template))
    assert message.endswith(
        f'spec.targetTopic: got "{template}", must be a topic\'s name with {{topic}} in it, '
        "and perhaps {source} for the source's alias"
    )


@pytest.mark.parametrize(
    ("document", "sentences"),
    [
        (
            mirror_test(flowName=None),
            [
                "spec.source: is required where there is no flowName",
                "spec.target: is required where there is no flowName",
            ],
        ),
        (
            mirror_test(source=EAST, target=WEST, targetTopic="{topic}"),
            [
                "spec.source: must be left out beside flowName: the flow has it",
                "spec.target: must be left out beside flowName: the flow has it",
                'spec.targetTopic: got "{topic}", '
                "must be left out beside flowName: the flow's policy has it",
            ],
        ),
        (
            mirror_test_of_another(target=EAST),
            [
                'spec.target.alias: got "east", must differ from spec.source.alias',
                'spec.target.bootstrapServers: got "east:9092", must differ from '
                "spec.source.bootstrapServers: a mirror joins two clusters",
            ],
        ),
        (
            mirror_test_of_another(chaos=[HALF]),
            ["spec.chaos: needs flowName: headrace breaks only flows of its own"],
        ),
        (
            mirror_test(chaos=[{"action": "KillDriver"}]),
            ["spec.chaos[0]: must have either atPercent or atSeconds"],
        ),
        (
            mirror_test(chaos=[HALF | {"atSeconds": 5}]),
            ["spec.chaos[0]: must have either atPercent or atSeconds"],
        ),
        (
            mirror_test(chaos=[HALF | {"action": "KillDrivers"}]),
            [
                'spec.chaos[0].action: got "KillDrivers", must be KillDriver, DeleteDriverPod, '
                "FreezeDriver, ScaleDrivers, KillOperator, RollDrivers, KillBroker, StopBroker, "
                "StartBroker, RunCommand, AddTopic, AddPartitions, PauseFlow, DeletePod, KillPod "
                "or ScaleDeployment; did you mean KillDriver?"
            ],
        ),
        (
            mirror_test(chaos=[HALF | {"action": "KillPod"}]),
            ["spec.chaos[0].selector: is required with action: DeletePod and KillPod"],
        ),
        (
            mirror_test(chaos=[HALF | {"action": "DeletePod", "selector": {}}]),
            ["spec.chaos[0].selector: must not be empty"],
        ),
        (
            mirror_test(chaos=[HALF | {"action": "ScaleDeployment", "deployment": "mirror"}]),
            ["spec.chaos[0].replicas: is required with action: ScaleDeployment"],
        ),
        (
            mirror_test(chaos=[HALF | {"action": "ScaleDrivers"}]),
            ["spec.chaos[0].drivers: is required with action: ScaleDrivers"],
        ),
        (
            mirror_test(chaos=[HALF | {"drivers": 2}]),
            ["spec.chaos[0].drivers: got 2, is for action: ScaleDrivers only"],
        ),
        (
            mirror_test(chaos=[HALF | {"action": "ScaleDrivers", "drivers": 0}]),
            ["spec.chaos[0].drivers: got 0, must be at least 1"],
        ),
        (
            mirror_test(chaos=[HALF | {"action": "StopBroker"}]),
            [
                "spec.chaos[0].cluster: is required with action: KillBroker, StopBroker and "
                "StartBroker"
            ],
        ),
        (
            mirror_test(chaos=[HALF | {"broker": 2}]),
            [
                "spec.chaos[0].broker: got 2, is for action: KillBroker, StopBroker and "
                "StartBroker only"
            ],
        ),
        (
            mirror_test(chaos=[HALF | {"action": "RunCommand"}]),
            ["spec.chaos[0].command: is required with action: RunCommand"],
        ),
        (
            mirror_test(chaos=[HALF | {"command": ["true"]}]),
            ["spec.chaos[0].command: is for action: RunCommand only"],
        ),
        (
            mirror_test(spark={"driver": {"resources": {"requests": {"memory": "2Gi"}}}}),
            [
                'spec.spark.driver.resources.requests.memory: got "2Gi", must be as '
                "limits.memory: the JVM's heap is made for one size"
            ],
        ),
        (
            mirror_test(spark={"executor": {"resources": {"limits": {"memory": "512Mi"}}}}),
            [
                'spec.spark.executor.resources.limits.memory: got "512Mi", must be at least '
                "1Gi: 512Mi are for Python, the rest is the JVM's"
            ],
        ),
        (
            mirror_test(chaos=[HALF | {"action": "PauseFlow"}]),
            ["spec.chaos[0].seconds: is required with action: PauseFlow"],
        ),
        (
            mirror_test_of_another(chaos=[HALF | {"action": "PauseFlow", "seconds": 9}]),
            ["spec.chaos: needs flowName: headrace breaks only flows of its own"],
        ),
        (
            mirror_test(chaos=[HALF | {"action": "AddTopic"}]),
            [
                'spec.chaos[0].action: got "AddTopic", needs load.durationSeconds: a number of '
                "messages is shared out beforehand"
            ],
        ),
        (
            mirror_test_of_another(
                chaos=[HALF | {"action": "AddPartitions", "partitions": 2}], partitioning="ByKey"
            ),
            [
                'spec.chaos[0].action: got "AddPartitions", needs partitioning: Preserved or Any; '
                "more partitions move keys, and the test could not say which partition is right"
            ],
        ),
        (
            mirror_test(chaos=[HALF | {"atPercent": 101}]),
            ["spec.chaos[0].atPercent: got 101, must be at most 100"],
        ),
        (
            mirror_test(chaos=[HALF, AT_9_S, HALF | {"atPercent": 40}]),
            ["spec.chaos[2].atPercent: got 40, must not be before 50, above it"],
        ),
        (
            mirror_test(chaos=[HALF], load={"durationSeconds": 60}),
            [
                "spec.chaos[0].atPercent: got 50, needs load.messages to be a part of; "
                "beside durationSeconds use atSeconds"
            ],
        ),
        (
            mirror_test(
                chaos=[{"atSeconds": 61, "action": "KillDriver"}], load={"durationSeconds": 60}
            ),
            ["spec.chaos[0].atSeconds: got 61, must not be after the end of the load, at 60"],
        ),
        (
            mirror_test(
                chaos=[{"atSeconds": 601, "action": "AddTopic"}],
                load={"durationSeconds": 0},
                schedule="@daily",
            ),
            [
                'spec.chaos[0].action: got "AddTopic", needs a load that ends: topics and '
                "partitions would be added without end",
                "spec.chaos[0].atSeconds: got 601, must not be after the end of a window, at 600",
                'spec.schedule: got "@daily", needs a load that ends: leave it out beside '
                "load.durationSeconds: 0",
            ],
        ),
        (
            mirror_test(load={"topics": 3, "names": ["a"]}),
            ["spec.load.topics: got 3, must be left out when names are given, and only then"],
        ),
        (
            mirror_test(load={"messages": 9, "durationSeconds": 60}),
            [
                "spec.load.messages: got 9, "
                "must be left out when durationSeconds is given, and only then"
            ],
        ),
        (mirror_test(load={"names": []}), ["spec.load.names: must not be empty"]),
        (
            mirror_test(load={"names": ["a", "b", "a"]}),
            ["spec.load.names: must not name a twice"],
        ),
        (
            mirror_test(load={"messageSizeBytes": 63}),
            ["spec.load.messageSizeBytes: got 63, must be at least 64"],
        ),
        (
            mirror_test(load={"messagesPerSecond": 0}),
            ["spec.load.messagesPerSecond: got 0, must be at least 1"],
        ),
        (
            mirror_test(budgets={"missing": -1}),
            ["spec.budgets.missing: got -1, must be at least 0"],
        ),
        (
            mirror_test(budgets={"latencyP99": 5}),
            ["spec.budgets.latencyP99: unknown field; did you mean spec.budgets.latencyP99Ms?"],
        ),
        *(
            (
                mirror_test(budgets={"unequalOffsets": 3}, partitioning=promise),
                [
                    "spec.budgets.unequalOffsets: got 3, needs partitioning: Preserved: an offset "
                    "is one of a partition"
                ],
            )
            for promise in ("ByKey", "Any")
        ),
        (
            mirror_test(rehearsal={"groups": 101}),
            ["spec.rehearsal.groups: got 101, must be at most 100"],
        ),
        (
            mirror_test_of_another(rehearsal={}),
            ["spec.rehearsal: needs flowName: headrace fails over only flows of its own"],
        ),
        (
            mirror_test(rehearsal={}, load={"durationSeconds": 0}),
            ["spec.rehearsal: needs a load that ends: the flow is failed over behind it"],
        ),
        (
            mirror_test_of_another(audit={}),
            ["spec.audit.topics: is required where there is no flowName"],
        ),
        (
            mirror_test(audit={"recheck": "Full"}),
            ['spec.audit.recheck: got "Full", Full goes with startFrom.mode: LastAudit only'],
        ),
        (
            mirror_test(audit={"startFrom": {"mode": "LastAudit"}}, partitioning="Any"),
            [
                'spec.audit.startFrom.mode: got "LastAudit", LastAudit goes with partitioning: '
                "Preserved only"
            ],
        ),
        (
            mirror_test(
                audit={"startFrom": {"mode": "Timestamp"}},
                load={"messages": 5},
                chaos=[HALF],
                rehearsal={},
                schedule="@daily",
                budgets={"latencyP99Ms": 5},
            ),
            ["spec.audit.startFrom.timestamp: is required with mode: Timestamp"],
        ),
        (
            mirror_test(audit={}, load={"messages": 5}, rehearsal={}, budgets={"latencyP99Ms": 5}),
            [
                "spec.budgets.latencyP99Ms: got 5, must be left out beside audit",
                "spec.load: must be left out beside audit",
                "spec.rehearsal: must be left out beside audit",
            ],
        ),
        (
            mirror_test(schedule="hourly"),
            ['spec.schedule: got "hourly", must be a cron schedule of five fields, like 0 * * * *'],
        ),
        (
            mirror_test("x" * 44, schedule="@daily"),
            [
                'spec.schedule: got "@daily", needs a metadata.name of at most 43 characters: '
                "runs are named after it and the time"
            ],
        ),
    ],
)
def test_the_sentences(say: Say, document: Document, sentences: list[str]) -> None:
    assert [message.partition(" ")[2] for message in say(document)] == sentences


@pytest.mark.parametrize("schedule", ["0 * * * *", "*/5 1-3 * JAN MON", "@daily"])
def test_schedules(schedule: str) -> None:
    assert MirrorTest.model_validate(mirror_test(schedule=schedule)).spec.schedule == schedule


def test_two_steps_at_one_moment_keep_their_order() -> None:
    spec = MirrorTest.model_validate(mirror_test(chaos=[HALF, HALF])).spec
    assert [step.at_percent for step in spec.chaos] == [50, 50]
