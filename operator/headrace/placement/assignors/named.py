"""Which assignors there are."""

from collections.abc import Sequence
from importlib.metadata import EntryPoint, entry_points

from headrace.assign import SHIPPED
from headrace.errors import InvalidSpec
from headrace.placement.assignors.decision import Decider
from headrace.placement.assignors.in_process import InProcess
from headrace.placement.assignors.plug_in import PlugIn

GROUP = "headrace.assignors"


def known_assignors() -> Sequence[str]:
    """All names that may be chosen here, sorted."""
    return sorted({*SHIPPED, *entry_points(group=GROUP).names})


def open_assignor(name: str, limit_s: float = 5.0) -> Decider:
    """The assignor of that name, ready to be asked; one of ours goes before a plug-in.

    A plug-in has ``limit_s`` to answer. Raises ``InvalidSpec`` when there is none of that name.
    """
    if name in SHIPPED:
        return InProcess(name, SHIPPED[name]())
    return PlugIn(name, _find(name).value, limit_s)


def check_assignor(name: str) -> None:
    """Raise ``InvalidSpec``, with the names that are known, when there is none of that name."""
    if name not in SHIPPED:
        _find(name)


def _find(name: str) -> EntryPoint:
    for entry in entry_points(group=GROUP, name=name):
        return entry
    raise InvalidSpec(
        f"spec.tasks.assignor: there is no assignor {name}; known here are "
        f"{', '.join(known_assignors())}. A plug-in is a Python package, installed beside "
        f"headrace, that names its assignor as an entry point of {GROUP}"
    )
