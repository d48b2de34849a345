"""Images of another platform, and signed digests, with programs that only record calls."""

import json
from pathlib import Path

import pytest
from images.catalogue import PRODUCT, VERSION, of_platform
from images.engine import Buildah, Docker, Engine

from headrace.errors import Fatal

DIGEST = f"sha256:{'a' * 64}"
OTHER = f"sha256:{'b' * 64}"
NAME = "registry.example:5000/team/headrace:1"


class Notes:
    """Program that records its arguments, and answers as an engine after a push."""

    def __init__(self, folder: Path, name: str) -> None:
        self.path, self._file = folder / name, folder / "notes"
        known = [f"headrace@{OTHER}", f"{NAME.rpartition(':')[0]}@{DIGEST}"]
        self.path.write_text(
            f"""#!/bin/sh
echo "$*" >> {self._file}
case "$1" in
  image) echo '{json.dumps(known)}' ;;
  push) [ "$2" != --digestfile ] || echo {DIGEST} > "$3" ;;
esac
"""
        )
        self.path.chmod(0o755)

    @property
    def last(self) -> list[str]:
        return self._file.read_text().splitlines()[-1].split()


@pytest.fixture(params=[Docker, Buildah])
def engine(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> tuple[Engine, Notes]:
    notes = Notes(tmp_path, request.param.__name__.lower())
    monkeypatch.setattr(Buildah, "program", str(notes.path))
    return (Docker(str(notes.path)) if request.param is Docker else Buildah()), notes


def test_an_image_of_another_platform_has_a_tag_of_its_own(engine: tuple[Engine, Notes]) -> None:
    builder, notes = engine
    (image, spark) = of_platform(PRODUCT, "linux/arm64")
    builder.build(image, {})
    assert notes.last[notes.last.index("--platform") + 1] == "linux/arm64"
    assert notes.last[notes.last.index("-t") + 1] == f"headrace:{VERSION}-arm64"
    assert any(one.startswith("--pull") for one in notes.last), "the base of that platform"
    assert spark.archive.name == f"headrace-spark-{VERSION}-arm64.tar"


def test_an_image_of_this_machine_is_built_as_ever(engine: tuple[Engine, Notes]) -> None:
    builder, notes = engine
    assert of_platform(PRODUCT, "") == PRODUCT
    builder.build(PRODUCT[0], {})
    assert not [one for one in notes.last if one.startswith(("--platform", "--pull"))]
    assert notes.last[notes.last.index("-t") + 1] == f"headrace:{VERSION}"


def test_a_platform_that_has_no_packages_is_refused() -> None:
    with pytest.raises(Fatal, match="PLATFORM=arm64: must be linux/amd64 or linux/arm64"):
        of_platform(PRODUCT, "arm64")


def test_a_push_returns_the_digest_of_the_registry(engine: tuple[Engine, Notes]) -> None:
    builder, _ = engine
    assert builder.push(PRODUCT[0], NAME) == DIGEST
