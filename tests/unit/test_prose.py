"""The repository's own prose and commit subjects are plain English."""

from prose.__main__ import check


def test_prose_and_commit_subjects_are_plain_english() -> None:
    """Run the check of ``make lint``: ``PYTHONPATH=tools python -m prose``."""
    problems, notes = check()
    assert problems == [], notes
