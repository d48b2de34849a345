"""Renders a mirror test's result as a page or as JUnit XML.

``pages`` and ``plots`` render ``report.html``. Import ``pages`` only to render a page: it loads
matplotlib. ``junit`` renders test cases for CI systems.
"""
