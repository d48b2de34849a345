"""Errors as displayed to users."""

import errno

import pytest

from headrace.errors import Fatal, HeadraceError, from_exception

NO_SPACE = OSError(errno.ENOSPC, "No space left on device", "/var/lib/headrace/ca.pem")


@pytest.mark.parametrize(
    ("error", "shown"),
    [
        (NO_SPACE, "/var/lib/headrace/ca.pem: No space left on device"),
        (OSError("timed out"), "timed out"),
        (KeyError("topic"), "internal error, please report it: KeyError('topic')"),
    ],
)
def test_only_a_defect_of_headrace_is_an_internal_error(error: Exception, shown: str) -> None:
    assert str(from_exception(error)) == shown


def test_an_error_of_ours_is_shown_as_it_is() -> None:
    ours: HeadraceError = Fatal("topic orders is not there")
    assert from_exception(ours) is ours
