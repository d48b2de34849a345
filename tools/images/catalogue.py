"""The images of this repository."""

import tomllib
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path

from headrace.errors import Fatal

ROOT = Path(__file__).parents[2]
VERSION: str = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]

BASE = "python:3.11-slim-bookworm"
"""Base image of the Dockerfiles: their ``ARG BASE``."""


@dataclass(frozen=True)
class Image:
    """An image; ``target`` is a stage of its Dockerfile if it is not the last."""

    name: str
    dockerfile: str
    target: str | None = None
    platform: str = ""
    """Such as ``linux/arm64``; empty: the builder's."""

    @property
    def tag(self) -> str:
        """Name and version, without a registry; of another platform with its name after it."""
        return f"{self.name}:{self._version}"

    @property
    def archive(self) -> Path:
        """Path of the docker-archive that ``save`` writes."""
        return ROOT / "dist" / "images" / f"{self.name}-{self._version}.tar"

    @property
    def _version(self) -> str:
        return "-".join([VERSION, *self.platform.split("/")[1:]])


PRODUCT = (
    Image("headrace", "operator/Dockerfile"),
    Image("headrace-spark", "spark-jobs/Dockerfile"),
)
TOOLCHAIN = Image("headrace-toolchain", "spark-jobs/Dockerfile", target="toolchain")
"""Image that fetches the jars of the next; its stage was built with the one before."""
KAFKA = Image("headrace-kafka", "tests/cluster/kafka/Dockerfile")

_PLATFORMS = ("linux/amd64", "linux/arm64")
"""Platforms for which the lock has wheels, and for which a JRE exists."""


def of_platform(images: Iterable[Image], platform: str) -> tuple[Image, ...]:
    """Return these images for ``platform``; empty is the builder's own. Raises Fatal for others."""
    if platform and platform not in _PLATFORMS:
        raise Fatal(f"PLATFORM={platform}: must be {' or '.join(_PLATFORMS)}")
    return tuple(replace(image, platform=platform) for image in images)
