"""Helm and promtool are there before the first test's clock runs."""

from pathlib import Path

import pytest
from support.helm import helm_binary
from support.prometheus import promtool_binary

from headrace.errors import HeadraceError


def pytest_collection_finish(session: pytest.Session) -> None:
    """Build them where their progress is seen."""
    needed = any(item.path.is_relative_to(Path(__file__).parent) for item in session.items)
    if needed and not session.config.option.collectonly:
        capture = session.config.pluginmanager.getplugin("capturemanager")
        with capture.global_and_fixture_disabled():
            try:
                helm_binary()
                promtool_binary()
            except HeadraceError as error:
                raise pytest.UsageError(str(error)) from error
