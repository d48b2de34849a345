"""Policies by entry point: valid answers, and the errors for wrong ones."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from support.policy_plug_in import install

from headrace.api import Policy
from headrace.errors import Fatal, InvalidSpec
from headrace.replication import ReplicationPolicy, TopicFilter, policy_for
from headrace.replication.policies import known_policies


@pytest.fixture(autouse=True)
def installed(tmp_path: Path) -> Iterator[None]:
    install(tmp_path)
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(tmp_path)
        yield


def opened(name: str, separator: str = ".") -> ReplicationPolicy:
    return policy_for(Policy(type=name, separator=separator), "east")


def test_a_plug_in_names_topics() -> None:
    policy = opened("suffix", separator="_")
    assert policy.target_topic("orders") == "orders_east"
    assert policy.source_topic("orders_east") == "orders"
    assert policy.source_topic("orders") is None
    topics = TopicFilter([".*"], [], policy, "west")
    assert [topics.matches(topic) for topic in ("orders", "orders.west")] == [True, False]


def test_those_that_are_installed_are_known() -> None:
    assert known_policies()[:4] == ["Default", "Identity", "RenameMap", "absent"]
    with pytest.raises(
        InvalidSpec, match=r"no policy sufix; known here are .*, suffix\. A plug-in"
    ):
        opened("sufix")


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("absent", r"policy absent \(odd_policies:Absent\) cannot be made: AttributeError"),
        ("broken", r"policy broken .* cannot be made: RuntimeError\('no licence'\)"),
        ("half", "policy half .* has no method source_topic"),
    ],
)
def test_one_that_cannot_be_made_is_refused(name: str, sentence: str) -> None:
    with pytest.raises(InvalidSpec, match=sentence):
        opened(name)


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("raises", r"policy raises: target_topic\('orders'\) raised KeyError"),
        ("slash", r"target_topic\('orders'\) returned 'a/orders', which is no topic's name"),
        ("internal", r"returned __orders, the name of an internal topic"),
        ("mixes", "returned all, and takes that for the copy of first: .* must give orders back"),
    ],
)
def test_an_answer_that_would_mix_topics_up_is_an_error(name: str, sentence: str) -> None:
    with pytest.raises(Fatal, match=sentence):
        opened(name).target_topic("orders")
