"""Manifests as text, and headrace's error messages for them."""

from collections.abc import Callable
from pathlib import Path

import pytest
import yaml
from support.manifests import Say

from headrace.api import InvalidManifest, load


@pytest.fixture
def write(tmp_path: Path) -> Callable[[str, str], Path]:
    def write(name: str, text: str) -> Path:
        path = tmp_path / name
        path.write_text(text)
        return path

    return write


@pytest.fixture
def say(tmp_path: Path) -> Say:
    """Return a function that loads a document and returns its mistakes without the file's name."""

    def say(document: object) -> list[str]:
        file = tmp_path / "flow.yaml"
        file.write_text(document if isinstance(document, str) else yaml.safe_dump(document))
        with pytest.raises(InvalidManifest) as refused:
            load([file])
        sentences = [str(mistake) for mistake in refused.value.mistakes]
        assert str(refused.value) == "\n".join(sentences)
        return [sentence.removeprefix(f"{file}:") for sentence in sentences]

    return say
