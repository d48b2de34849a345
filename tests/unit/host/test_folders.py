"""Locations of headrace's own files."""

from pathlib import Path

import pytest

from headrace.host import cache_home, state_home


def test_xdg_variables_decide(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", "/somewhere/cache")
    monkeypatch.setenv("XDG_STATE_HOME", "/somewhere/state")
    assert cache_home() == Path("/somewhere/cache/headrace")
    assert state_home() == Path("/somewhere/state/headrace")


@pytest.mark.parametrize("given", ["", "relative/folder"])
def test_defaults_are_in_the_home_folder(given: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/somebody")
    monkeypatch.setenv("XDG_CACHE_HOME", given)
    monkeypatch.setenv("XDG_STATE_HOME", given)
    assert cache_home() == Path("/home/somebody/.cache/headrace")
    assert state_home() == Path("/home/somebody/.local/state/headrace")
