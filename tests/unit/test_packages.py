"""Metadata of packages."""

import importlib
import pkgutil
import subprocess
import sys

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


def test_mirror_tests_and_flows_of_one_machine_need_no_package_of_the_operator() -> None:
    modules = [
        "headrace_spark.command",
        *(f"headrace.cli.{one}" for one in ("demo", "run", "sandbox", "flow.failover")),
        *(f"headrace.cli.mirror_test.{one}" for one in ("verify", "audit")),
    ]
    script = (
        "import importlib, sys\n"
        "sys.modules |= dict.fromkeys(('croniter', 'kopf', 'kubernetes'))\n"
        f"for name in {modules}: importlib.import_module(name)"
    )
    subprocess.run([sys.executable, "-c", script], check=True)
