"""The chart's alerts, as promtool evaluates them."""

import json
import re
import shutil
from pathlib import Path
from typing import Any

import pytest
import yaml
from support.helm import CHART, render
from support.prometheus import promtool

CASES = Path(__file__).with_name("alerts.yaml")
ROOT = Path(__file__).parents[2]
RUNBOOK = ROOT / "docs" / "runbook.md"
ON = ("--set=podMonitor.enabled=true", "--set=prometheusRule.enabled=true")


def groups(*arguments: str) -> list[dict[str, Any]]:
    (rule,) = (one for one in render(*ON, *arguments) if one["kind"] == "PrometheusRule")
    found: list[dict[str, Any]] = rule["spec"]["groups"]
    return found


def alerts(*arguments: str) -> list[dict[str, Any]]:
    return [rule for group in groups(*arguments) for rule in group["rules"]]


@pytest.mark.parametrize("scope", ["Cluster", "Namespace"])
def test_promtool_finds_no_fault(tmp_path: Path, scope: str) -> None:
    rules = tmp_path / "rules.yaml"
    rules.write_text(yaml.safe_dump({"groups": groups(f"--set=scope={scope}")}))
    checked = promtool("check", "rules", "--lint=all", "--lint-fatal", rules)
    assert checked.returncode == 0, checked.stdout
    assert f"{len(alerts())} rules found" in checked.stdout


def test_promtool_finds_no_fault_in_the_example_for_a_service() -> None:
    example = ROOT / "examples" / "prometheus" / "alerts.yaml"
    checked = promtool("check", "rules", "--lint=all", "--lint-fatal", example)
    assert checked.returncode == 0, checked.stdout


@pytest.mark.parametrize(
    "arguments",
    [(), ("--set=scope=Namespace", "--set=watchNamespaces[0]=shop")],
    ids=["all", "one"],
)
def test_each_fires_at_its_fault_and_only_then(tmp_path: Path, arguments: tuple[str, ...]) -> None:
    (tmp_path / "rules.yaml").write_text(yaml.safe_dump({"groups": groups(*arguments)}))
    shutil.copy(CASES, tmp_path)
    tested = promtool("test", "rules", tmp_path / CASES.name)
    assert tested.returncode == 0, tested.stdout


def test_none_is_left_untested() -> None:
    tried = re.findall(r"alertname: (\w+)", CASES.read_text())
    assert {alert["alert"] for alert in alerts()} == set(tried)


def test_a_release_of_one_namespace_speaks_of_no_other() -> None:
    for alert in alerts("--set=scope=Namespace", "--set=watchNamespaces[0]=shop"):
        assert re.search(r'namespace=~"shop"|job="kafka/headrace-operator"', alert["expr"]), alert


def test_thresholds_are_values() -> None:
    values = {"lagSeconds": 7, "heartbeatSeconds": 8, "reconcileErrors": 9}
    changed = alerts(*(f"--set=prometheusRule.{name}={value}" for name, value in values.items()))
    ends = {alert["expr"].split()[-1] for alert in changed}
    assert {str(value) for value in values.values()} <= ends


def test_each_can_be_switched_off_and_have_another_severity() -> None:
    name, other = "HeadraceFlowNotReady", "HeadraceNoDrivers"
    before = {alert["alert"]: alert for alert in alerts()}
    off = {alert["alert"] for alert in alerts(f"--set=prometheusRule.disabled={{{name}}}")}
    assert off == set(before) - {name}
    changed = {one["alert"]: one for one in alerts(f"--set=prometheusRule.severity.{other}=page")}
    assert changed.pop(other)["labels"]["severity"] == "page"
    assert changed == {alert: rule for alert, rule in before.items() if alert != other}


def test_the_values_know_each_by_its_name() -> None:
    schema = json.loads((CHART / "values.schema.json").read_text())
    assert schema["definitions"]["alert"]["enum"] == [alert["alert"] for alert in alerts()]


def test_each_has_its_place_in_the_runbook() -> None:
    url = "https://wiki.example/runbook"
    headings = re.findall(r"^#+ (Headrace\w+)$", RUNBOOK.read_text(), re.MULTILINE)
    found = alerts(f"--set=prometheusRule.runbookUrl={url}")
    assert [alert["alert"] for alert in found] == headings
    for alert in found:
        assert alert["annotations"]["runbook_url"] == f"{url}#{alert['alert'].lower()}"
