"""kopf as we set it up."""

from collections.abc import Sized
from itertools import islice

from headrace.controller.kopf_watch import EndlessBackoffs


def test_kopf_never_runs_out_of_backoffs_whichever_request_it_is() -> None:
    backoffs = EndlessBackoffs()
    assert not isinstance(backoffs, Sized)
    for _ in range(2):
        waits = list(islice(backoffs, 1000))
        assert len(waits) == 1000
        assert (waits[0], max(waits)) == (1, 8)
