"""Dashboard of a flow without Prometheus and Grafana, as a page that the run serves.

It has the panels of the chart's dashboard *Flow*: ``make generate`` writes ``panels.json`` from
``docs/dashboards.yaml``. The last hour is kept in memory.
"""

from headrace.standalone.dashboard.history import History, page, url

__all__ = ["History", "page", "url"]
