"""Folder of Secrets of a command."""

from pathlib import Path

import pytest

from headrace.api import Secret
from headrace.cli.screen.options import secrets_folder
from headrace.errors import InvalidSpec

SECRET = Secret.model_validate(
    {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": "user"},
        "stringData": {"password": "p"},
    }
)


def test_secret_documents_are_in_a_folder_until_the_command_ends() -> None:
    with secrets_folder(None, [SECRET]) as folder:
        assert folder is not None
        assert (folder / SECRET.folder / "password").read_bytes() == b"p"
    assert not folder.exists()


def test_without_secret_documents_the_given_folder_is_used(tmp_path: Path) -> None:
    with secrets_folder(tmp_path, []) as folder:
        assert folder == tmp_path
    with secrets_folder(None, []) as none:
        assert none is None


def test_a_folder_and_secret_documents_together_are_refused(tmp_path: Path) -> None:
    with (
        pytest.raises(InvalidSpec, match="and --secrets names a folder"),
        secrets_folder(tmp_path, [SECRET]),
    ):
        pass
