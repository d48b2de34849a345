"""Renders a mirror test's result as a page.

``pages`` and ``plots`` render ``report.html``. Import ``pages`` only to render a page: it loads
matplotlib.
"""
