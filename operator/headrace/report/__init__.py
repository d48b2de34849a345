"""Renders a mirror test's result as a page.

``page`` and ``plots`` render ``report.html``. ``page`` is imported by who makes one: it loads
matplotlib.
"""

from headrace.report.summary import bounded, latency, points

__all__ = ["bounded", "latency", "points"]
