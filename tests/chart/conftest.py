"""Helm, promtool and a registry, which are built before the first test's time-out starts."""

from pathlib import Path

import pytest
from support.helm import helm_binary
from support.programs import build_programs
from support.prometheus import promtool_binary
from support.registry import registry_binary


def pytest_collection_finish(session: pytest.Session) -> None:
    if any(item.path.is_relative_to(Path(__file__).parent) for item in session.items):
        build_programs(session, helm_binary, promtool_binary, registry_binary)
