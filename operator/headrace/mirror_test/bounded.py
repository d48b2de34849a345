"""Keeps a result below 512 KiB, however large the test: it has to fit into a ConfigMap."""

from headrace.api import COMMIT_INTERVAL_ANNOTATION, FLOW_LABEL, MirrorTest
from headrace.mirror_test.faults import Fault
from headrace.mirror_test.result import Result

_LISTED = 100
"""Topics; 50 KB of those with the longest names, twice."""
_SENTENCES, _LETTERS = 20, 1_000
_UNITS = 800
"""Of all faults together, of which there are at most 100."""
_OF_THE_FLOW = {FLOW_LABEL, COMMIT_INTERVAL_ANNOTATION}


def bounded(result: Result) -> Result:
    """The result below 512 KiB, however large the test: it has to fit into a ConfigMap."""
    left_out = max(0, len(result.topics) - _LISTED)
    noted = (f"{left_out} more topics are not listed",) if left_out else ()
    return result.model_copy(
        update={
            "reasons": _few(result.reasons),
            "warnings": (*_few(result.warnings), *noted),
            "test": _without_what_grows(result.test),
            "topics": result.topics[:_LISTED],
            "faults": tuple(_short(fault, _UNITS // len(result.faults)) for fault in result.faults),
        }
    )


def _few(sentences: tuple[str, ...]) -> tuple[str, ...]:
    more = max(0, len(sentences) - _SENTENCES)
    shown = tuple(sentence[:_LETTERS] for sentence in sentences[:_SENTENCES])
    return (*shown, f"and {more} more of the kind") if more else shown


def _short(fault: Fault, most: int) -> Fault:
    units, error = fault.units[:most], fault.error
    if more := len(fault.units) - len(units):
        units = (*units, f"and {more} more")
    return fault.model_copy(update={"units": units, "error": error and error[:_LETTERS]})


def _without_what_grows(test: MirrorTest) -> MirrorTest:
    """Tools keep whole manifests in annotations; of topics as many as are listed."""
    metadata, load = test.metadata, test.spec.load
    kept = {key: text for key, text in metadata.annotations.items() if key in _OF_THE_FLOW}
    names = load.names and load.names[:_LISTED]
    return test.model_copy(
        update={
            "metadata": metadata.model_copy(update={"annotations": kept}),
            "spec": test.spec.model_copy(update={"load": load.model_copy(update={"names": names})}),
        }
    )
