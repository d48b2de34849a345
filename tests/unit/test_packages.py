"""Metadata of packages."""

import importlib
import pkgutil

import pytest

import headrace
import headrace_spark

PACKAGES = [
    package.name
    for root in (headrace, headrace_spark)
    for package in pkgutil.walk_packages(root.__path__, f"{root.__name__}.")
    if package.ispkg
]


@pytest.mark.parametrize("name", PACKAGES)
def test_a_package_has_the_names_that_it_exports(name: str) -> None:
    package = importlib.import_module(name)
    exported = getattr(package, "__all__", [])
    assert [one for one in exported if not hasattr(package, one)] == []


def test_rooms_are_among_the_packages() -> None:
    assert {"headrace.controller.resources", "headrace.k8s"} < set(PACKAGES)
