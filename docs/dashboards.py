"""Writes the chart's Grafana dashboards, ``charts/headrace/files/dashboards/*.json``.

``python docs/dashboards.py`` makes them from ``docs/dashboards.yaml``. It also writes the panels of
the dashboard *Flow* for the page that ``headrace run`` serves.
"""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import yaml

PAGES = Path(__file__).with_suffix(".yaml")
FOLDER = Path(__file__).parents[1] / "charts" / "headrace" / "files" / "dashboards"
OF_RUNS = Path(__file__).parents[1] / "operator/headrace/standalone/dashboard/panels.json"
COLUMNS = 24
"""Columns of a dashboard in Grafana."""
SOURCE = {"type": "prometheus", "uid": "${datasource}"}
_STAT_OPTIONS = {
    "colorMode": "value",
    "graphMode": "none",
    "reduceOptions": {"calcs": ["lastNotNull"]},
}
_LINE_OPTIONS = {
    "legend": {"displayMode": "list", "placement": "bottom"},
    "tooltip": {"mode": "multi", "sort": "desc"},
}

_Json = dict[str, Any]


def documents() -> dict[str, str]:
    """Return the dashboards as Grafana imports them, by file name."""
    pages = yaml.safe_load(PAGES.read_text())
    return {f"{page['name']}.json": json.dumps(_page(page), indent=2) + "\n" for page in pages}


def panels_of_runs() -> str:
    """Return the panels of a flow except for those that only Kubernetes has."""
    (page,) = (page for page in yaml.safe_load(PAGES.read_text()) if page["name"] == "flow")
    panels = [panel for panel in page["panels"] if not panel.get("ofKubernetes")]
    return json.dumps(panels, indent=2) + "\n"


def _page(page: _Json) -> _Json:
    variables = [_variable(name, query) for name, query in page["variables"].items()]
    places = _places(page["panels"])
    return {
        "uid": f"headrace-{page['name']}",
        "title": page["title"],
        "tags": ["headrace"],
        "schemaVersion": 39,  # Grafana 10.4; later ones raise it by themselves
        "editable": True,
        "graphTooltip": 1,
        "refresh": "30s",
        "time": {"from": "now-1h", "to": "now"},
        "timezone": "",
        "templating": {"list": [_datasource(), *variables]},
        "panels": [
            {"id": number, "gridPos": place, **_panel(panel)}
            for number, (panel, place) in enumerate(zip(page["panels"], places, strict=True), 1)
        ],
    }


def _places(panels: Sequence[_Json]) -> list[_Json]:
    """Return the positions from left to right, row by row; stats are half as high."""
    places: list[_Json] = []
    x = y = row = 0
    for panel in panels:
        width, height = panel.get("width", 12), 4 if panel.get("kind") == "stat" else 8
        if x + width > COLUMNS:
            x, y, row = 0, y + row, 0
        places.append({"x": x, "y": y, "w": width, "h": height})
        x, row = x + width, max(row, height)
    return places


def _panel(panel: _Json) -> _Json:
    stat = panel.get("kind") == "stat"
    return {
        "type": panel.get("kind", "timeseries"),
        "title": panel["title"],
        "description": panel["says"],
        "datasource": SOURCE,
        "fieldConfig": {"defaults": _defaults(panel), "overrides": []},
        "options": _options(panel),
        "targets": [
            {
                "refId": chr(ord("A") + index),
                "datasource": SOURCE,
                "expr": expression,
                "legendFormat": legend,
                "instant": stat,
                "range": not stat,
            }
            for index, (legend, expression) in enumerate(panel["queries"].items())
        ],
    }


def _options(panel: _Json) -> _Json:
    if panel.get("kind") != "stat":
        return _LINE_OPTIONS
    return _STAT_OPTIONS | ({"textMode": "name"} if panel.get("names") else {})


def _defaults(panel: _Json) -> _Json:
    defaults: _Json = {"unit": panel.get("unit", "short")}
    if panel.get("kind") != "stat":
        defaults["min"] = 0
    if panel.get("stacked"):
        defaults["custom"] = {"stacking": {"mode": "normal"}, "fillOpacity": 40}
    if words := panel.get("values"):
        named = {str(at): {"text": text, "color": color} for at, (text, color) in words.items()}
        defaults["mappings"] = [{"type": "value", "options": named}]
    if (bad := panel.get("redFrom")) is not None:
        steps = [{"color": "green", "value": None}, {"color": "red", "value": bad}]
        defaults["thresholds"] = {"mode": "absolute", "steps": steps}
    return defaults


def _datasource() -> _Json:
    label = "Data source"
    return {"name": "datasource", "label": label, "type": "datasource", "query": "prometheus"}


def _variable(name: str, query: str) -> _Json:
    return {
        "name": name,
        "type": "query",
        "datasource": SOURCE,
        "query": {"query": query, "refId": name},
        "definition": query,
        "refresh": 2,  # when the time range changes
        "sort": 1,
        "includeAll": True,  # each found value: `.*` would match series without such a label
        "multi": True,
        "current": {"text": ["All"], "value": ["$__all"]},
    }


if __name__ == "__main__":
    FOLDER.mkdir(exist_ok=True)
    for name, text in documents().items():
        (FOLDER / name).write_text(text)
    OF_RUNS.write_text(panels_of_runs())
