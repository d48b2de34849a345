"""A mirror test on this machine whose load has no end: window after window, each with a verdict."""

import shutil
import time
from collections import Counter
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import click

from headrace.api import MirrorTest, Verdict
from headrace.errors import GaveUp, HeadraceError
from headrace.mirror_test import Result, documents, window_of

_WORST_FIRST = (Verdict.FAILED, Verdict.INCONCLUSIVE, Verdict.PASSED)
_RETRY_S = 10.0
"""After a window that could not be judged: what is away then may be back."""

OnVerdict = Callable[[Result], None]


def run_windows(
    test: MirrorTest,
    verify: Callable[[MirrorTest, Path], Result],
    folder: Path,
    on_verdict: OnVerdict,
    retry_s: float = _RETRY_S,
) -> Verdict:
    """Judge windows until somebody interrupts, or ends the load of one; the worst verdict.

    Each window has a folder below ``folder``; of those that ended, so many stay as the history
    limits say. A window without a verdict counts as Inconclusive, and the next one begins. Raises
    what the first one raises, and ``GaveUp`` when none has ended.
    """
    window, found = window_of(test), Counter[Verdict]()
    kept: dict[bool, list[Path]] = {True: [], False: []}
    spec = test.spec
    limits = {True: spec.successful_tests_history_limit, False: spec.failed_tests_history_limit}
    try:
        while True:
            at = folder / f"{datetime.now(UTC):%y%m%d-%H%M%S}-{found.total() + 1}"
            verdict = Verdict.INCONCLUSIVE
            try:
                result = verify(window, at)
                verdict = result.verdict
                on_verdict(result)
            except HeadraceError as error:
                if not found:
                    raise
                click.echo(f"Inconclusive: {error}")
                time.sleep(retry_s)
            found[verdict] += 1
            click.echo(f"windows: {_words(found)}")
            passed = verdict is Verdict.PASSED
            kept[passed].append(at)
            while len(kept[passed]) > limits[passed]:
                shutil.rmtree(kept[passed].pop(0), ignore_errors=True)
            if (at / documents.END_LOAD).exists():
                break
    except KeyboardInterrupt:
        if not found:
            raise GaveUp("interrupted before the end of a window: there is no verdict") from None
    return next(verdict for verdict in _WORST_FIRST if found[verdict])


def _words(found: Counter[Verdict]) -> str:
    return ", ".join(f"{found[verdict]:,} {verdict}" for verdict in reversed(_WORST_FIRST))
