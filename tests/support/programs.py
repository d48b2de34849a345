"""Programs that take minutes to build, once: before the first test's clock runs."""

from collections.abc import Callable

import pytest

from headrace.errors import HeadraceError


def build_programs(session: pytest.Session, *programs: Callable[[], object]) -> None:
    """Build these, where their progress is seen, for tests that are to run.

    Of ``pytest_collection_finish``.
    """
    if session.config.option.collectonly:
        return
    capture = session.config.pluginmanager.getplugin("capturemanager")
    with capture.global_and_fixture_disabled():
        try:
            for build in programs:
                build()
        except HeadraceError as error:
            raise pytest.UsageError(str(error)) from error
