"""The pinned list of jars, and the check that they exist."""

from pathlib import Path

import pytest

from headrace.toolchain import JarSet, missing
from headrace.toolchain.jars import pinned


@pytest.fixture(autouse=True)
def empty_cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))


def test_every_set_is_pinned() -> None:
    for jar_set in JarSet:
        for jar in pinned(jar_set):
            assert len(bytes.fromhex(jar.sha256)) == 32
            assert jar.size_bytes > 1000


def test_file_names_are_unique_as_they_share_a_folder() -> None:
    jars = {jar for jar_set in JarSet for jar in pinned(jar_set)}
    assert len({jar.file_name for jar in jars}) == len(jars)


def test_brokers_are_of_the_version_that_is_documented() -> None:
    versions = {jar.name: jar.version for jar in pinned(JarSet.KAFKA_BROKER)}
    assert versions["kafka_2.13"] == versions["kafka-clients"] == "4.4.0"
    assert versions["slf4j-simple"] == versions["slf4j-api"] == "1.7.36"


def test_sparks_set_matches() -> None:
    assert {jar.name: jar.version for jar in pinned(JarSet.SPARK_KAFKA)} == {
        "spark-sql-kafka-0-10_2.13": "4.2.0",
        "spark-token-provider-kafka-0-10_2.13": "4.2.0",
        "kafka-clients": "3.9.2",
        "commons-pool2": "2.13.1",
    }


def test_an_empty_cache_misses_all_and_a_damaged_jar_counts_as_missing() -> None:
    assert missing(JarSet.SPARK_KAFKA) == pinned(JarSet.SPARK_KAFKA)
    damaged = pinned(JarSet.SPARK_KAFKA)[0]
    damaged.path.parent.mkdir(parents=True)
    damaged.path.write_bytes(b"half a jar")
    assert damaged in missing(JarSet.SPARK_KAFKA)
