"""Table of conditions: every condition of a flow is in it, and chart and runbook follow it."""

import re
from pathlib import Path

from headrace.api import ALARMS, CONDITIONS, ConditionType, Reporter, reported_by

ROOT = Path(__file__).parents[3]
ALERTS = ROOT / "charts/headrace/templates/prometheusrule.yaml"
RUNBOOK = (ROOT / "docs/runbook.md").read_text()


def test_each_condition_of_a_flow_has_one_entry() -> None:
    types = [one.type for one in CONDITIONS]
    assert len(types) == len(set(types))
    assert set(ConditionType) - set(types) == {ConditionType.CAUGHT_UP}


def test_the_flow_repeats_what_tasks_and_connectors_report() -> None:
    both = reported_by(Reporter.TASK | Reporter.CONNECTOR)
    assert set(both) == {*reported_by(Reporter.TASK), *reported_by(Reporter.CONNECTOR)}
    assert set(both) <= ALARMS
    assert not set(both) & set(reported_by(Reporter.FLOW))


def test_the_chart_has_an_alert_for_each_entry_that_names_one() -> None:
    text = ALERTS.read_text()
    listed = {f"Headrace{name}" for name in re.findall(r'\(list "(\w+)" "\w+" "', text)}
    alerts = {*re.findall(r"alert: (Headrace\w+)$", text, re.MULTILINE), *listed}
    assert {one.alert for one in CONDITIONS if one.alert} <= alerts
    assert listed <= {one.alert for one in CONDITIONS}


def test_the_runbook_says_what_to_do_about_each_condition() -> None:
    rows = re.findall(r"^\| `(\w+)` \|", RUNBOOK, re.MULTILINE)
    titles = re.findall(r"^#+ (.+)$", RUNBOOK, re.MULTILINE)
    anchors = {title.lower().replace(" ", "-") for title in titles}
    for one in CONDITIONS:
        assert one.type.value in rows
        assert one.runbook in anchors
        if one.alert:
            assert one.runbook == one.alert.lower()
