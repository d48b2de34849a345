"""Which images there are."""

import tomllib
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
VERSION: str = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]

BASE = "python:3.11-slim-bookworm"
"""What the Dockerfiles start from: their ``ARG BASE``."""


@dataclass(frozen=True)
class Image:
    """One image; ``target`` is a stage of its Dockerfile where it is not the last."""

    name: str
    dockerfile: str
    target: str | None = None

    @property
    def tag(self) -> str:
        """Name and version, without a registry."""
        return f"{self.name}:{VERSION}"

    @property
    def archive(self) -> Path:
        """Where ``save`` puts it: a docker-archive."""
        return ROOT / "dist" / "images" / f"{self.name}-{VERSION}.tar"


PRODUCT = (
    Image("headrace", "operator/Dockerfile"),
    Image("headrace-spark", "spark-jobs/Dockerfile"),
)
TOOLCHAIN = Image("headrace-toolchain", "spark-jobs/Dockerfile", target="toolchain")
"""What fetches the jars of the next; a stage that was built with the one before."""
KAFKA = Image("headrace-kafka", "tests/cluster/kafka/Dockerfile")
