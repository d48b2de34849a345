"""Number and order of flows that replace their drivers at a time."""

from dataclasses import dataclass, field

from headrace.api import ReplicationFlow
from headrace.controller.drivers import DriverPod
from headrace.controller.flow_children import Rollouts
from headrace.controller.target_topics import FlowName

OLD, NEW = DriverPod("a", "old"), DriverPod("b", "new")


def flow(name: str, priority: int = 0) -> ReplicationFlow:
    return ReplicationFlow.model_validate(
        {
            "metadata": {"name": name, "namespace": "shop"},
            "spec": {
                "source": {"alias": "east", "bootstrapServers": "e:9092"},
                "target": {"alias": "west", "bootstrapServers": "w:9092"},
                "topics": {"include": ["orders"]},
                "drivers": {"rolloutPriority": priority},
            },
        }
    )


@dataclass
class Fleet:
    """Flows by name, with their pods, which are old at first."""

    limit: int
    priorities: dict[str, int]
    now: float = 100.0
    woken: list[FlowName] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.pods = {name: [OLD] for name in self.priorities}
        self.rollouts = Rollouts(self.limit, self._everyone, self.woken.append, lambda: self.now)

    def _everyone(self) -> list[FlowName]:
        return [("shop", name) for name in self.pods]

    def asks(self, name: str) -> bool:
        asking = flow(name, self.priorities[name])
        return self.rollouts.can_start(asking, self.pods[name], "new")

    def all_ask(self) -> list[str]:
        return [name for name in self.pods if self.asks(name)]


def test_without_a_limit_all_roll_out_at_once() -> None:
    assert Fleet(0, {"a": 0, "b": 0}).all_ask() == ["a", "b"]


def test_flows_roll_out_by_priority_then_by_name() -> None:
    fleet = Fleet(1, {"b": 0, "c": 0, "a": 0, "urgent": 1})
    assert fleet.all_ask() == ["urgent"], "though the others asked before it"
    assert fleet.all_ask() == ["urgent"]
    order = []
    for _ in range(4):
        (rolling,) = fleet.all_ask()
        order.append(rolling)
        fleet.pods[rolling] = [OLD, NEW]
        assert fleet.all_ask() == [rolling], "until the last old pod goes"
        fleet.woken.clear()
        del fleet.pods[rolling]
        fleet.rollouts.forget(("shop", rolling))
        assert sorted(fleet.woken) == sorted(("shop", name) for name in fleet.pods)
    assert order == ["urgent", "a", "b", "c"]


def test_a_flow_whose_pods_are_all_of_one_template_needs_no_turn() -> None:
    fleet = Fleet(1, {"a": 0, "b": 0, "new": 0})
    fleet.pods["new"] = []
    assert fleet.all_ask() == ["new"], "not all were observed"
    assert fleet.all_ask() == ["a", "new"]
    fleet.pods["a"] = [NEW, DriverPod("c", "old", terminating=True)]
    assert fleet.all_ask() == ["a", "b", "new"]


def test_a_roll_out_that_another_operator_began_goes_on_and_is_counted() -> None:
    fleet = Fleet(1, {"a": 0, "z": 0})
    fleet.pods["z"] = [OLD, NEW]
    assert fleet.all_ask() == ["z"]
    assert fleet.all_ask() == ["z"]


def test_a_roll_out_that_does_not_end_holds_the_others_up_for_ten_minutes() -> None:
    fleet = Fleet(1, {"a": 0, "b": 0, "c": 0})
    fleet.all_ask()
    assert fleet.all_ask() == ["a"]
    fleet.now += 599
    assert fleet.all_ask() == ["a"]
    fleet.now += 1
    assert fleet.all_ask() == ["a", "b"], "a is still about to end"
