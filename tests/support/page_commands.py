"""Blocks of commands on the pages, and the test that runs each of them.

A test takes its blocks from the page by ``command``, so it runs what the page prints.
"""

import re
import textwrap
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[2]
PAGES = [
    ROOT / "README.md",
    ROOT / "CONTRIBUTING.md",
    ROOT / "charts" / "headrace" / "README.md",
    *sorted((ROOT / "docs").glob("*.md")),
]
_LANGUAGES = "console|sh|bash|shell"
_BLOCK = re.compile(rf"(?ms)^( *)```(?:{_LANGUAGES})\n(.*?)^\1```")


class CommandBlock(NamedTuple):
    """A block of commands of a page."""

    page: str
    """Path of the page in the repository."""
    text: str


class NotRun(str):
    """Reason why no test runs a block as it is printed."""


def blocks() -> list[CommandBlock]:
    """Return all blocks of all pages, in their order."""
    return [
        CommandBlock(str(page.relative_to(ROOT)), textwrap.dedent(found[2]))
        for page in PAGES
        for found in _BLOCK.finditer(page.read_text())
    ]


def command(page: str, begin: str) -> str:
    """Return the block of ``docs/<page>.md``, or of another page, whose text begins like this."""
    path = page if "/" in page or page.isupper() else f"docs/{page}"
    (found,) = [b for b in blocks() if b.page == f"{path}.md" and b.text.startswith(begin)]
    return found.text


def with_words(text: str, words: Mapping[str, str]) -> str:
    """Return the text with other words for these whole words."""
    for word, other in words.items():
        text = re.sub(rf"(?<![\w.-]){re.escape(word)}(?![\w-])", other, text)
    return text


_LOCAL = "integration/test_page_commands.py::test_commands_of_this_machine"
_MIRROR_TEST = "integration/test_page_commands.py::test_commands_of_a_mirror_test"
_TESTER = "integration/test_page_commands.py::test_commands_of_kafka_mirror_tester"
_OBJECTS = "integration/test_page_commands_on_kubernetes.py::test_commands_on_objects"
_RELEASE = "integration/test_page_commands_on_kubernetes.py::test_commands_of_a_release"
_TRY = "integration/test_try_page.py::test_the_commands_of_the_page_do_what_it_says"
_SERVICE = "integration/test_service_page.py::test_the_commands_of_the_pages_do_what_they_say"

_DEMO = NotRun("It creates an environment. CI runs it as a step of its own.")
_INSTALL = NotRun("It installs 500 MB of packages, for which PyPI is needed.")
_REGISTRY = NotRun("It needs a registry, and Docker or cosign, which the tests do not install.")
_KAFKA = NotRun("It is a program of Kafka, which headrace does not contain.")
_REBUILD = NotRun(
    "It needs a target with other offsets. `integration/test_rebuild.py` runs the command."
)
_OTHER_MIRROR = NotRun(
    "It needs the offsets of MirrorMaker 2. `unit/cli/flow/test_mirror_maker.py` runs the command."
)
_SPARK_PODS = NotRun(
    "It needs pods with Spark. `integration/test_mirror_tests_on_kubernetes.py` runs such a test."
)

_AS_HEADRACE = "sudo -u headrace env XDG_RUNTIME_DIR=/run/headrace /opt/headrace/bin/headrace"

COMMANDS: dict[str, dict[str, str]] = {
    "README.md": {
        "make demo": _DEMO,
        ".venv/bin/headrace validate": _LOCAL,
    },
    "charts/headrace/README.md": {
        "helm install headrace": _RELEASE,
        "helm install shop": _RELEASE,
    },
    "docs/audits.md": {
        "headrace job": _OBJECTS,
        "openssl genpkey": _LOCAL,
        "headrace test": _LOCAL,
    },
    "docs/benchmarks.md": {
        "make bench-audit": NotRun("It takes hours on an idle machine."),
        "make bench-mirror": NotRun("It takes up to 90 minutes on an idle machine."),
    },
    "docs/checkpoints.md": {
        "kafka-consumer-groups.sh --bootstrap-server": _KAFKA,
        "$ headrace": _LOCAL,
    },
    "docs/cli.md": {
        "source <(headrace": _LOCAL,
    },
    "docs/coming-from-mirrormaker-2.md": {
        "headrace convert": _LOCAL,
        "headrace flow": _OTHER_MIRROR,
    },
    "docs/fail-over.md": {
        "headrace failover FLOW --dry-run": _LOCAL,
        "headrace failover FLOW\n": _LOCAL,
        'kubectl patch rflow/orders --type=merge -p \'{"spec": {"sourceWatch"': _OBJECTS,
        'kubectl patch rflow/orders --type=merge -p \'{"spec": {"state"': _OBJECTS,
        "headrace job": _OBJECTS,
        "headrace failover FLOW --source-is-gone": NotRun(
            "It needs a source that has ended. `integration/test_fail_over.py` runs the command."
        ),
    },
    "docs/from-strimzi.md": {
        "kubectl get": _OBJECTS,
        "kubectl patch": _OBJECTS,
        "headrace flow": _OTHER_MIRROR,
        "headrace job": _OBJECTS,
    },
    "docs/images.md": {
        "make push": _REGISTRY,
        "cosign generate-key-pair": _REGISTRY,
        "IMAGE=registry.example/team/headrace@sha256:...                #": _REGISTRY,
    },
    "docs/install.md": {
        "helm install headrace": _RELEASE,
        "helm install shop": _RELEASE,
        "kubectl create": _RELEASE,
    },
    "docs/migrate-v1beta1.md": {
        "headrace convert": _LOCAL,
        "kubectl get": _RELEASE,
        "kubectl -n": _RELEASE,
        "kubectl delete": _RELEASE,
        "helm upgrade": _RELEASE,
        "kubectl apply": _RELEASE,
    },
    "docs/mirror-test-formats.md": {
        "python3 -m": _INSTALL,
        ".venv/bin/python spark-jobs/produce.py": _MIRROR_TEST,
        "export PYSPARK_PYTHON=$PWD/.venv/bin/python": NotRun(
            "It needs a Maven repository. `integration/test_mirror_test.py` uses spark-submit."
        ),
        ".venv/bin/python spark-jobs/probe.py": _TESTER,
    },
    "docs/mirror-tests-on-kubernetes.md": {
        "kubectl apply": _SPARK_PODS,
    },
    "docs/mirror-tests.md": {
        "headrace validate": _MIRROR_TEST,
        "headrace verify": NotRun("The block of docs/use-in-ci.md runs it with more options."),
    },
    "docs/mirrors-of-others.md": {
        "unshare -n": NotRun("It needs root, and takes an hour."),
    },
    "docs/monitoring.md": {
        "helm upgrade": _RELEASE,
        "headrace run": _LOCAL,
    },
    "docs/operate.md": {
        "headrace flow pause": _OBJECTS,
        "headrace flow reset": _OBJECTS,
    },
    "docs/operator.md": {
        "headrace operator": NotRun(
            "It serves a fixed port. `integration/test_operator.py` runs the command."
        ),
    },
    "docs/permissions.md": {
        "headrace check": _LOCAL,
    },
    "docs/preserved-offsets.md": {
        "headrace flow rebuild FLOW TOPIC --dry-run": _REBUILD,
        "headrace flow rebuild FLOW TOPIC\n": _REBUILD,
    },
    "docs/rehearsals.md": {
        "headrace validate": NotRun(
            "It needs groups that read. `integration/test_rehearsal.py` runs such a test."
        ),
    },
    "docs/runbook.md": {
        "kubectl -n": _OBJECTS,
        "kubectl headrace task": _OBJECTS,
        "kubectl headrace flow reset": _OBJECTS,
        "headrace flow": _LOCAL,
        "kubectl headrace flow rebuild": _REBUILD,
        "kafka-transactions.sh --bootstrap-server": _KAFKA,
    },
    "docs/standalone-service.md": {
        "python3 -m": _SERVICE,
        f"{_AS_HEADRACE} status": _SERVICE,
        "ln -sfn": _SERVICE,
        f"{_AS_HEADRACE} flow": _SERVICE,
    },
    "docs/troubleshooting-standalone.md": {
        "kill -USR1": _SERVICE,
    },
    "docs/try.md": {
        "make demo": _DEMO,
        ".venv/bin/headrace sandbox up": _TRY,
        ".venv/bin/headrace sandbox flow": _TRY,
        "seq 1000": _TRY,
        ".venv/bin/headrace run": _TRY,
        "sed -i": _TRY,
        "kill $!": _TRY,
    },
    "docs/upgrade.md": {
        "helm upgrade": _RELEASE,
        "helm install canary": _RELEASE,
        "helm install headrace": _RELEASE,
        "helm uninstall": _RELEASE,
        "kubectl get": _RELEASE,
    },
    "docs/use-in-ci.md": {
        "python3 -m": _INSTALL,
        "headrace validate": _MIRROR_TEST,
        "headrace verify": _MIRROR_TEST,
        "headrace sandbox": NotRun(
            "It uses fixed ports. `integration/test_try_page.py` starts a sandbox on others."
        ),
        "kubectl apply": _SPARK_PODS,
    },
}
"""The test that runs a block, or the reason why no test does, by page and first words."""
