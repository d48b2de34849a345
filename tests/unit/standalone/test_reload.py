"""Changes of a run when its manifests are read again. No driver runs."""

import asyncio
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
import yaml

from headrace.api import ReplicationFlow
from headrace.standalone import StandaloneHerder
from headrace.standalone.control_handlers import answer
from headrace.standalone.manifests import ManifestFiles
from headrace.standalone.reload import PauseRecords, Reload


def flow(name: str = "f", **spec: Any) -> dict[str, Any]:
    return {
        "apiVersion": "headrace.dev/v1beta1",
        "kind": "ReplicationFlow",
        "metadata": {"name": name},
        "spec": {
            "source": {"alias": "east", "bootstrapServers": "127.0.0.1:1"},
            "target": {"alias": "west", "bootstrapServers": "127.0.0.1:2"},
            "topics": {"include": ["orders"]},
            "checkpoints": {"enabled": False},
            **spec,
        },
    }


class Scene:
    """Run of one file, without a driver."""

    def __init__(self, folder: Path, drivers: int | None = None) -> None:
        self.file, self.folder = folder / "flow.yaml", folder / "state"
        self.pauses = PauseRecords(self.folder)
        self.write(flow())
        files = ManifestFiles([self.file])
        declared = {one.metadata.name: one for one in files.read().flows}
        running = [self.pauses.applied(one) for one in declared.values()]
        self.herder = StandaloneHerder(running, 0)
        self.rolled: list[str] = []
        self.herder.roll_drivers = lambda: self.rolled.append("rolled")  # type: ignore[method-assign]
        self.scaled: list[int] = []
        self.herder.scale = lambda drivers: self.scaled.append(drivers) or 1  # type: ignore[method-assign,func-returns-value]
        self.served: list[str] = []

        async def serve(name: str) -> None:
            self.served.append(name)

        self.reload = Reload(
            self.herder,
            files,
            declared,
            self.pauses,
            drivers=drivers,
            write_secrets=lambda manifest: None,
            serve=serve,
        )

    def write(self, *flows: dict[str, Any]) -> None:
        self.file.write_text(yaml.safe_dump_all(flows))

    def read(self, *flows: dict[str, Any]) -> None:
        self.write(*flows)
        asyncio.run(self.reload.run_once())

    def ask(self, verb: str, **arguments: Any) -> dict[str, Any]:
        return asyncio.run(answer(self.herder, "f", verb, arguments))

    def at_next_start(self, *flows: dict[str, Any]) -> ReplicationFlow:
        self.write(*flows)
        (read,) = ManifestFiles([self.file]).read().flows
        return self.pauses.applied(read)

    @property
    def spec(self) -> Any:
        return self.herder.flow("f").spec


@pytest.fixture
def scene(tmp_path: Path) -> Scene:
    return Scene(tmp_path)


def test_what_changed_is_applied_and_nothing_else(scene: Scene) -> None:
    scene.read(flow())
    assert scene.herder.flow("f").metadata.generation == 1
    scene.read(flow(topics={"include": ["orders", "payments"]}, tasks={"max": 3}))
    assert (scene.spec.topics.include, scene.spec.tasks.max) == (("orders", "payments"), 3)
    assert scene.herder.flow("f").metadata.generation == 2
    assert (scene.rolled, scene.scaled, scene.reload.notices()) == ([], [], [])


@pytest.mark.parametrize(
    "changed",
    [{"replicationPolicy": {"type": "Identity"}}, {"headers": {"remove": ["trace"]}}],
)
def test_clusters_policy_and_header_changes_are_for_new_drivers(
    scene: Scene, changed: dict[str, Any]
) -> None:
    scene.read(flow(**changed))
    assert scene.rolled == ["rolled"]


def test_the_number_of_drivers_follows_the_manifests_unless_it_was_given(tmp_path: Path) -> None:
    scene = Scene(tmp_path)
    scene.read(flow(drivers={"replicas": 4}))
    scene.read(flow(drivers={"replicas": 4}, tasks={"max": 3}))
    assert scene.scaled == [4]
    given = Scene(tmp_path, drivers=2)
    given.read(flow(drivers={"replicas": 4}))
    assert given.scaled == []


def test_a_flow_is_added_and_one_that_is_gone_is_stopped(scene: Scene) -> None:
    scene.read(flow("g"))
    assert scene.served == ["g"]
    assert [task.metadata.name for task in scene.herder.tasks("g")] == [
        "g-source-connector-0",
        "g-checkpoint-connector-0",
        "g-heartbeat-connector-0",
    ]
    assert scene.spec.state == "Stopped"
    scene.read(flow("g"), flow())
    assert scene.spec.state == "Running"
    assert scene.served == ["g"]


@pytest.mark.parametrize(
    ("edited", "why"),
    [
        ([flow(tasks={"max": 0})], "flow.yaml:15: spec.tasks.max: got 0, must be at least 1"),
        (
            [flow(source={"alias": "north", "bootstrapServers": "127.0.0.1:1"})],
            "flow f: spec.source.alias: east -> north: it is immutable",
        ),
        ([flow(topics={"include": ["a"]}), flow("g", tasks={"max": 0})], "must be at least 1"),
        ([], "holds no document"),
    ],
)
def test_a_bad_edit_keeps_all_flows_and_says_so(
    scene: Scene, edited: Sequence[dict[str, Any]], why: str
) -> None:
    before = scene.herder.flow("f")
    scene.read(*edited)
    assert scene.herder.flow("f") == before
    assert not scene.reload.happened
    (notice,) = scene.reload.notices()
    assert "not applied, flows unchanged: " in notice
    assert why in notice
    assert scene.ask("status")["notices"] == [notice]
    scene.read(flow())
    assert scene.reload.notices() == []


def test_a_changed_file_that_was_not_read_again_is_shown(scene: Scene) -> None:
    scene.write(flow(tasks={"max": 3}))
    (notice,) = scene.reload.notices()
    assert "flow.yaml changed and was not read again: `kill -HUP" in notice


def test_a_pause_survives_edits_of_other_fields_and_the_next_start(scene: Scene) -> None:
    scene.ask("set-state", state="Paused")
    scene.ask("pause-partitions", partitions="orders/0-3", paused=True)
    scene.read(flow(tasks={"max": 3}))
    assert scene.spec.state == "Paused"
    again = scene.at_next_start(flow(tasks={"max": 5})).spec
    paused = [str(item) for item in again.paused_partitions]
    assert (again.state, paused, again.tasks.max) == ("Paused", ["orders/0-3"], 5)


def test_a_pause_ends_by_resume_or_by_the_manifest(scene: Scene) -> None:
    scene.ask("set-state", state="Paused")
    assert scene.at_next_start(flow(state="Stopped")).spec.state == "Stopped"
    scene.read(flow(state="Stopped"))
    assert scene.spec.state == "Stopped"
    scene.read(flow())
    scene.ask("set-state", state="Paused")
    scene.ask("set-state", state="Running")
    assert scene.at_next_start(flow()).spec.state == "Running"
    assert list(scene.folder.iterdir()) == []


def unreadable(file: Path) -> None:
    file.write_text('{"now": 3}')


def old(file: Path) -> None:
    file.write_text('{"manifest": {"state": "Running"}, "now": {"state": "Paused"}}')


@pytest.mark.parametrize("write", [unreadable, old])
def test_a_record_that_cannot_be_read_pauses_nothing(
    scene: Scene, write: Callable[[Path], None]
) -> None:
    scene.ask("set-state", state="Paused")
    write(next(scene.folder.iterdir()))
    assert scene.at_next_start(flow()).spec.state == "Running"


def test_a_pause_that_cannot_be_recorded_does_not_happen(scene: Scene) -> None:
    scene.folder.write_text("a file stands where the folder should be")
    with pytest.raises(Exception, match=r"f is unchanged: it cannot be recorded in .*paused\.json"):
        scene.ask("set-state", state="Paused")
    assert scene.spec.state == "Running"
