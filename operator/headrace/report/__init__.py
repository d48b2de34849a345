"""Renders a mirror test's result as a page.

``page`` and ``plots`` render ``report.html``. Only the maker of a page imports ``page``: it loads
matplotlib.
"""
