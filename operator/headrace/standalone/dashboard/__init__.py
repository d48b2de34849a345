"""The flow's dashboard without Prometheus and Grafana: a page of the run's own.

It has the panels of the chart's dashboard *Flow*: ``panels.json`` is written from
``docs/dashboards.yaml`` by ``make generate``. The last hour is kept in memory.
"""

from headrace.standalone.dashboard.history import History, page, url

__all__ = ["History", "page", "url"]
