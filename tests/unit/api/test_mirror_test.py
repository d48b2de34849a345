"""MirrorTest: its defaults, and the sentences for what makes no test."""

from typing import Any

import pytest

from headrace.api import Load, MirrorTest

EAST = {"alias": "east", "bootstrapServers": "east:9092"}
WEST = {"alias": "west", "bootstrapServers": "west:9092"}
HALF = {"atPercent": 50, "action": "KillDriver"}
AT_9_S = {"atSeconds": 9, "action": "KillDriver"}


def of_flow(**spec: Any) -> dict[str, Any]:
    return {
        "apiVersion": "headrace.dev/v1alpha1",
        "kind": "MirrorTest",
        "metadata": {"name": "orders"},
        "spec": {"flowName": "orders"} | spec,
    }


def of_another(**spec: Any) -> dict[str, Any]:
    document = of_flow()
    return document | {"spec": {"source": EAST, "target": WEST} | spec}


def test_defaults_are_those_of_the_design():
    spec = MirrorTest.model_validate(of_flow()).spec
    assert spec.model_dump(mode="json", by_alias=True, exclude_none=True) == {
        "flowName": "orders",
        "targetTopic": "{source}.{topic}",
        "partitioning": "Preserved",
        "load": {
            "topics": 3,
            "partitions": 8,
            "producers": 2,
            "messages": 1_000_000,
            "messageSizeBytes": 1024,
            "messageFormat": "Headers",
        },
        "budgets": {"missing": 0, "reordered": 0, "corrupted": 0},
        "settleSeconds": 120,
        "chaos": [],
        "suspend": False,
        "successfulTestsHistoryLimit": 3,
        "failedTestsHistoryLimit": 1,
        "spark": {"executors": 2},
    }


def test_a_load_is_bounded_by_a_number_or_by_time():
    assert (Load().messages, Load().topics) == (1_000_000, 3)
    by_time = Load(duration_seconds=60, names=("a", "b"))
    assert (by_time.messages, by_time.topics) == (None, None)
    assert Load.model_validate(by_time.model_dump()) == by_time


@pytest.mark.parametrize(
    "template",
    ["{topic}", "{source}.{topic}", "copy-of-{topic}", "{topic}{topic}"],
)
def test_names_on_the_target(template):
    spec = MirrorTest.model_validate(of_another(targetTopic=template)).spec
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
def test_what_names_no_topic(say, template):
    (said,) = say(of_another(targetTopic=template))
    assert said.endswith(
        f'spec.targetTopic: got "{template}", must be a topic\'s name with {{topic}} in it, '
        "and perhaps {source} for the source's alias"
    )


@pytest.mark.parametrize(
    ("document", "sentences"),
    [
        (
            of_flow(flowName=None),
            [
                "spec.source: is required where there is no flowName",
                "spec.target: is required where there is no flowName",
            ],
        ),
        (
            of_flow(source=EAST, target=WEST, targetTopic="{topic}"),
            [
                "spec.source: must be left out beside flowName: the flow has it",
                "spec.target: must be left out beside flowName: the flow has it",
                'spec.targetTopic: got "{topic}", '
                "must be left out beside flowName: the flow's policy has it",
            ],
        ),
        (
            of_another(target=EAST),
            [
                'spec.target.alias: got "east", must differ from spec.source.alias',
                'spec.target.bootstrapServers: got "east:9092", must differ from '
                "spec.source.bootstrapServers: a mirror joins two clusters",
            ],
        ),
        (
            of_another(chaos=[HALF]),
            ["spec.chaos: needs flowName: headrace breaks only drivers of its own"],
        ),
        (
            of_flow(chaos=[{"action": "KillDriver"}]),
            ["spec.chaos[0]: must have either atPercent or atSeconds"],
        ),
        (
            of_flow(chaos=[HALF | {"atSeconds": 5}]),
            ["spec.chaos[0]: must have either atPercent or atSeconds"],
        ),
        (
            of_flow(chaos=[HALF | {"action": "KillDrivers"}]),
            [
                'spec.chaos[0].action: got "KillDrivers", must be KillDriver, DeleteDriverPod, '
                "FreezeDriver, ScaleDrivers, KillOperator or RollDrivers; did you mean KillDriver?"
            ],
        ),
        (
            of_flow(chaos=[HALF | {"atPercent": 101}]),
            ["spec.chaos[0].atPercent: got 101, must be at most 100"],
        ),
        (
            of_flow(chaos=[HALF, AT_9_S, HALF | {"atPercent": 40}]),
            ["spec.chaos[2].atPercent: got 40, must not be before 50, above it"],
        ),
        (
            of_flow(chaos=[HALF], load={"durationSeconds": 60}),
            [
                "spec.chaos[0].atPercent: got 50, needs load.messages to be a part of; "
                "beside durationSeconds use atSeconds"
            ],
        ),
        (
            of_flow(
                chaos=[{"atSeconds": 61, "action": "KillDriver"}], load={"durationSeconds": 60}
            ),
            ["spec.chaos[0].atSeconds: got 61, must not be after the end of the load, at 60"],
        ),
        (
            of_flow(load={"topics": 3, "names": ["a"]}),
            ["spec.load.topics: got 3, must be left out when names are given, and only then"],
        ),
        (
            of_flow(load={"messages": 9, "durationSeconds": 60}),
            [
                "spec.load.messages: got 9, "
                "must be left out when durationSeconds is given, and only then"
            ],
        ),
        (of_flow(load={"names": []}), ["spec.load.names: must not be empty"]),
        (
            of_flow(load={"names": ["a", "b", "a"]}),
            ["spec.load.names: must name each topic once"],
        ),
        (
            of_flow(load={"messageSizeBytes": 63}),
            ["spec.load.messageSizeBytes: got 63, must be at least 64"],
        ),
        (
            of_flow(load={"messagesPerSecond": 0}),
            ["spec.load.messagesPerSecond: got 0, must be at least 1"],
        ),
        (of_flow(budgets={"missing": -1}), ["spec.budgets.missing: got -1, must be at least 0"]),
        (
            of_flow(budgets={"latencyP99": 5}),
            ["spec.budgets.latencyP99: unknown field; did you mean spec.budgets.latencyP99Ms?"],
        ),
        (
            of_flow(schedule="hourly"),
            ['spec.schedule: got "hourly", must be a cron schedule of five fields, like 0 * * * *'],
        ),
    ],
)
def test_the_sentences(say, document, sentences):
    assert [said.partition(" ")[2] for said in say(document)] == sentences


@pytest.mark.parametrize("schedule", ["0 * * * *", "*/5 1-3 * JAN MON", "@daily"])
def test_schedules(schedule):
    assert MirrorTest.model_validate(of_flow(schedule=schedule)).spec.schedule == schedule


def test_two_steps_at_one_moment_keep_their_order():
    spec = MirrorTest.model_validate(of_flow(chaos=[HALF, HALF])).spec
    assert [step.at_percent for step in spec.chaos] == [50, 50]
