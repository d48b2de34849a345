"""The command of the check."""

from pathlib import Path

import pytest
from prose.__main__ import main


def test_the_hook_of_git_rejects_a_subject(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    message = tmp_path / "COMMIT_EDITMSG"
    message.write_text("# a comment\nprose: add a hook\n\nThe reason.\n")
    assert main(["--message", str(message)]) == 0
    message.write_text("prose: added a hook\n# a comment\n")
    assert main(["--message", str(message)]) == 1
    assert "does not open with an imperative: 'added'" in capsys.readouterr().out
