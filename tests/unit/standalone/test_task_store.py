"""Rules of the API server on Kubernetes, in the local store."""

import pytest

from headrace.api import ReplicationTask, ReplicationTaskStatus, TaskType
from headrace.api.partitions import TopicPartition, TopicPartitions
from headrace.connect import TaskConflict
from headrace.standalone.task_store import TaskStore


def held(driver: str, incarnation: str, epoch: int) -> ReplicationTaskStatus:
    return ReplicationTaskStatus(driver_name=driver, driver_incarnation=incarnation, epoch=epoch)


@pytest.fixture
def store() -> TaskStore:
    store = TaskStore()
    store.put("orders", TaskType.SOURCE_CONNECTOR)
    return store


@pytest.fixture
def unit(store: TaskStore) -> ReplicationTask:
    return store.of_flow("orders")[0]


def test_a_write_with_an_old_version_is_a_conflict_that_shows_what_is(
    store: TaskStore, unit: ReplicationTask
) -> None:
    store.write_status(unit, held("driver-1", "aaa", 1))
    with pytest.raises(TaskConflict, match="changed since it was read") as conflict:
        store.write_status(unit, held("driver-2", "bbb", 2))
    assert conflict.value.current is not None
    assert conflict.value.current.status.driver_name == "driver-1"


def test_an_epoch_never_falls(store: TaskStore, unit: ReplicationTask) -> None:
    unit = store.write_status(unit, held("driver-1", "aaa", 5))
    with pytest.raises(TaskConflict, match="epoch 4 is below 5"):
        store.write_status(unit, held("driver-1", "aaa", 4))


def test_a_new_holder_needs_a_higher_epoch(store: TaskStore, unit: ReplicationTask) -> None:
    unit = store.write_status(unit, held("driver-1", "aaa", 5))
    with pytest.raises(TaskConflict, match="needs a higher epoch"):
        store.write_status(unit, held("driver-1", "bbb", 5))
    released = store.write_status(unit, ReplicationTaskStatus(epoch=5))
    with pytest.raises(TaskConflict, match="needs a higher epoch"):
        store.write_status(released, held("driver-2", "ccc", 5))
    assert store.write_status(released, held("driver-2", "ccc", 6)).status.epoch == 6


def test_an_assignment_changes_the_generation_and_a_status_does_not(
    store: TaskStore, unit: ReplicationTask
) -> None:
    store.assign(unit.metadata.name, "driver-1", ("driver-2",), "")
    assigned = store.of_flow("orders")[0]
    assert assigned.metadata.generation == (unit.metadata.generation or 0) + 1
    claimed = store.write_status(assigned, held("driver-1", "aaa", 1))
    assert claimed.metadata.generation == assigned.metadata.generation


def test_a_connector_writes_its_tasks_and_a_stale_one_is_refused(
    store: TaskStore, unit: ReplicationTask
) -> None:
    split = {n: TopicPartitions.pack([TopicPartition("a", n)]) for n in range(2)}
    second = store.write_status(unit, held("driver-1", "aaa", 2))
    assert store.put_tasks(second, TaskType.SOURCE_TASK, split)
    assert not store.put_tasks(second, TaskType.SOURCE_TASK, split)
    names = {task.metadata.name for task in store.of_flow("orders")}
    assert names == {"orders-source-connector-0", "orders-source-task-0", "orders-source-task-1"}

    first = second.model_copy(update={"status": held("driver-9", "zzz", 1)})
    with pytest.raises(TaskConflict, match="a later connector"):
        store.put_tasks(first, TaskType.SOURCE_TASK, {})

    assert store.put_tasks(second, TaskType.SOURCE_TASK, {0: split[0]})
    assert len(store.of_flow("orders")) == 2


def test_a_deleted_unit_is_gone_for_its_holder(store: TaskStore, unit: ReplicationTask) -> None:
    connector = store.write_status(unit, held("driver-1", "aaa", 1))
    store.put_tasks(connector, TaskType.SOURCE_TASK, {0: ()})
    task = next(t for t in store.of_flow("orders") if t.spec.type is TaskType.SOURCE_TASK)
    store.put_tasks(connector, TaskType.SOURCE_TASK, {})
    with pytest.raises(TaskConflict, match="no longer exists") as conflict:
        store.write_status(task, held("driver-1", "aaa", 1))
    assert conflict.value.current is None


def test_a_checkpoint_task_has_groups_and_is_written_when_they_change(store: TaskStore) -> None:
    connector = store.of_flow("orders")[0]
    kind = TaskType.CHECKPOINT_TASK
    assert store.put_tasks(connector, kind, {0: ["audit", "billing"]})
    assert not store.put_tasks(connector, kind, {0: ["audit", "billing"]})
    (task,) = [one for one in store if one.spec.type is kind]
    assert (task.spec.groups, task.spec.partitions) == (("audit", "billing"), ())
    assert store.put_tasks(connector, kind, {0: ["audit"]})
