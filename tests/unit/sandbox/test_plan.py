"""Options of a sandbox."""

from pathlib import Path

import pytest

from headrace.errors import InvalidSpec
from headrace.sandbox import ClusterPlan
from headrace.sandbox.layout import Layout


@pytest.mark.parametrize("name", ["", "East", "a.b", "-a", "a-", "../up", "a" * 64])
def test_a_name_has_to_be_a_dns_label(name: str) -> None:
    with pytest.raises(InvalidSpec, match="cannot name a sandbox or a cluster: lower-case"):
        ClusterPlan(name)


def test_a_cluster_has_a_broker() -> None:
    with pytest.raises(InvalidSpec, match="east is to have 0 brokers: at least 1"):
        ClusterPlan("east", brokers=0)


@pytest.mark.parametrize("port", [0, 80, 65534, 70000])
def test_all_its_ports_have_to_exist(port: int) -> None:
    with pytest.raises(InvalidSpec, match=f"cannot have 3 ports from {port} on"):
        ClusterPlan("east", brokers=3, port=port)
    assert ClusterPlan("east", brokers=3, port=65533).port == 65533


def test_a_sandbox_of_another_version_is_a_sentence(tmp_path: Path) -> None:
    (tmp_path / "sandbox.json").write_text('{"from": "the future"}')
    with pytest.raises(InvalidSpec, match="was written by another version of headrace"):
        Layout.read(tmp_path)
