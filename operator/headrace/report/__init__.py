"""Renders the result of a mirror test as a page or as JUnit XML.

``pages`` and ``plots`` render ``report.html``. Import ``pages`` only to render a page, because it
loads matplotlib. ``junit`` renders test cases for CI systems. ``signing`` signs and verifies
``report.json``.
"""
