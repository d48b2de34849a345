"""Two flows that write one target topic: the later one has to wait."""

from datetime import UTC, datetime, timedelta

from headrace.api import (
    FlowState,
    ObjectMeta,
    ReplicationFlow,
    ReplicationTask,
    ReplicationTaskSpec,
    TaskType,
)
from headrace.api.labels import TARGET_LABEL, TOPICS_ANNOTATION
from headrace.controller.target_topics import FlowName, taken_target, written_targets

BEGAN = datetime(2026, 1, 1, tzinfo=UTC)


def flow(name: str, day: int, namespace: str = "shop") -> ReplicationFlow:
    made = ReplicationFlow.model_validate(
        {
            "metadata": {"name": name, "namespace": namespace},
            "spec": {
                "source": {"alias": "east", "bootstrapServers": "e:9092"},
                "target": {"alias": "west", "bootstrapServers": "w:9092"},
                "topics": {"include": [".*"]},
            },
        }
    )
    at = {"creation_timestamp": BEGAN + timedelta(day)}
    return made.model_copy(update={"metadata": made.metadata.model_copy(update=at)})


def task(cluster: str, *topics: str) -> ReplicationTask:
    return ReplicationTask(
        metadata=ObjectMeta(
            name="x",
            labels={TARGET_LABEL: cluster} if cluster else {},
            annotations={TOPICS_ANNOTATION: "\n".join(topics)},
        ),
        spec=ReplicationTaskSpec(flow_name="x", type=TaskType.SOURCE_TASK),
    )


FIRST, SECOND, ELSEWHERE = flow("b", 0), flow("a", 1), flow("c", 2, "depot")
ALL = [SECOND, ELSEWHERE, FIRST]


def test_the_older_flow_has_it_in_whatever_namespace() -> None:
    tasks = {
        ("shop", "b"): [task("k1", "east.x"), task("k1", "east.y")],
        ("shop", "a"): [task("k2", "east.x", "east.y")],
        ("depot", "c"): [task("k1", "east.z", "east.y")],
    }

    def written(name: FlowName) -> frozenset[tuple[str, str]]:
        return written_targets(tasks[name])

    assert taken_target(FIRST, ALL, written) is None
    assert taken_target(SECOND, ALL, written) is None  # another cluster
    taken = taken_target(ELSEWHERE, ALL, written)
    assert taken is not None
    assert (taken.by, taken.topic) == (FIRST, "east.y")
    stopped = FIRST.spec.model_copy(update={"state": FlowState.STOPPED})
    others = [SECOND, FIRST.model_copy(update={"spec": stopped})]
    assert taken_target(ELSEWHERE, others, written) is None


def test_heartbeats_and_tasks_that_say_nothing_are_no_one_s() -> None:
    assert written_targets([task("k1", "east.heartbeats", "heartbeats"), task("", "a")]) == set()
