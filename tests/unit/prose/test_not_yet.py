"""The list of files that are not yet rewritten."""

import subprocess
from pathlib import Path

import pytest
from prose import not_yet, repository
from prose.rules import Finding

ONE = Finding(1, "goes on", "resume")


def test_a_listed_file_may_keep_its_findings_and_others_have_none() -> None:
    found = {"old.py": [ONE, ONE], "worse.py": [ONE, ONE], "new.py": [ONE], "good.py": []}
    allowed = {"old.py": 2, "worse.py": 1}
    assert not_yet.surplus(allowed, found) == {"worse.py": [ONE, ONE], "new.py": [ONE]}


def test_a_clean_or_deleted_file_must_leave_the_list() -> None:
    assert not_yet.clean({"a.py": 1, "b.py": 2, "c.py": 3}, {"a.py": [ONE], "b.py": []}) == [
        "b.py",
        "c.py",
    ]


def test_numbers_are_lowered_and_never_raised() -> None:
    found = {"fewer.py": [ONE], "more.py": [ONE] * 3, "clean.py": [], "new.py": [ONE]}
    allowed = {"fewer.py": 2, "more.py": 2, "clean.py": 2, "deleted.py": 1}
    text = not_yet.written(not_yet.lowered(allowed, found), 4)
    assert not_yet.read(text) == {"fewer.py": 1, "more.py": 2}
    assert not_yet.edition(text) == 4


def test_the_lower_of_two_lines_for_a_file_counts() -> None:
    assert not_yet.read("a.py 3\nb.py 1\na.py 2\n") == {"a.py": 2, "b.py": 1}


@pytest.fixture
def clone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the list of an empty repository."""
    for module in (repository, not_yet):
        monkeypatch.setattr(module, "ROOT", tmp_path)
    file = tmp_path / "tools" / "prose" / "not-yet-rewritten.txt"
    file.parent.mkdir(parents=True)
    monkeypatch.setattr(not_yet, "LIST", file)
    git(tmp_path, "init", "--quiet", "--initial-branch=main")
    return file


def git(folder: Path, *arguments: str) -> None:
    identity = ("-c", "user.name=A", "-c", "user.email=a@example.org", "-c", "commit.gpgsign=false")
    subprocess.run(["git", *identity, *arguments], cwd=folder, check=True, capture_output=True)


def committed(file: Path, allowed: dict[str, int], edition: int = 1) -> None:
    file.write_text(not_yet.written(allowed, edition))
    git(file.parents[2], "add", ".")
    git(file.parents[2], "commit", "--quiet", "-m", "prose: change the list")


def test_the_list_may_shrink_and_follow_a_moved_file(clone: Path) -> None:
    committed(clone, {"a.py": 3, "b.py": 2})
    committed(clone, {"a.py": 1, "moved/b.py": 2})
    assert not_yet.growth() is None


def test_the_list_may_not_grow(clone: Path) -> None:
    committed(clone, {"a.py": 3})
    committed(clone, {"a.py": 1})
    clone.write_text(not_yet.written({"a.py": 1, "b.py": 1}, 1))
    assert "allows 2 findings, but 1 in commit" in (not_yet.growth() or "")
    committed(clone, {"a.py": 1, "b.py": 1})
    assert "allows 2 findings, but 1 in commit" in (not_yet.growth() or "")


def test_a_new_edition_of_the_rules_counts_again(clone: Path) -> None:
    committed(clone, {"a.py": 1})
    committed(clone, {"a.py": 4}, edition=2)
    assert not_yet.growth() is None


def test_lines_of_a_branch_are_told_from_those_of_main(clone: Path) -> None:
    root = clone.parents[2]
    (root / "a.py").write_text("one\ntwo\n")
    committed(clone, {"a.py": 1})
    git(root, "switch", "--quiet", "--create", "branch")
    (root / "a.py").write_text("zero\none\ntwo\nthree\n")
    assert not_yet.added_lines("a.py") == {1, 4}
