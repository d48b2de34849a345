"""Which settings of a copy keep it from being one: what its source takes, the target would refuse,
change or delete."""

from collections.abc import Iterator, Mapping
from math import inf
from typing import NamedTuple

_UNLIMITED = str(2**63 - 1)


AS_GIVEN = {"compression.type": "producer", "message.timestamp.type": "CreateTime"}
"""With which brokers keep batches as they are given; a copy with its source's offsets has them."""


class Unfit(NamedTuple):
    """A setting of a copy."""

    setting: str
    wanted: str
    """Its value as it should be."""
    why: str
    """Half a sentence, of the copies."""


def unfit_settings(source: Mapping[str, str], copy: Mapping[str, str]) -> Iterator[Unfit]:
    """Both have all settings in effect; what one of them does not know is not compared."""
    for setting, consequence in _LIMITS.items():
        if setting in source and setting in copy:
            wanted, there = source[setting], copy[setting]
            if _number(there) < _number(wanted):
                why = f"{there} is less than the source's {wanted}: {consequence}"
                yield Unfit(setting, wanted, why)
    yield from _too_young(source, copy)
    for setting, consequence in _CHANGES.items():
        wanted, there = source.get(setting, ""), copy.get(setting, "")
        if wanted and there and there != wanted and there not in _HARMLESS:
            yield Unfit(setting, wanted, f"{there}, the source has {wanted}: {consequence}")


def settings_of_other_offsets(
    source: Mapping[str, str], copy: Mapping[str, str], *, begins_later: bool = False
) -> Iterator[Unfit]:
    """With which a copy cannot have its source's offsets, and its records; as above.
    ``begins_later``: it has to be filled up to the first offset of its source."""
    for setting, wanted in AS_GIVEN.items():
        if (there := copy.get(setting, wanted)) != wanted:
            yield Unfit(setting, wanted, f"{there}, and must be {wanted}: {_CHANGES[setting]}")
    setting = "max.message.bytes"
    if setting in source and setting in copy and int(copy[setting]) < int(source[setting]):
        why = (
            f"{copy[setting]} is less than the source's {source[setting]}: what is larger can be "
            "neither copied nor left out"
        )
        yield Unfit(setting, source[setting], why)
    if begins_later and copy.get("cleanup.policy") == "compact":
        why = (
            "compact, and its source does not begin with offset 0: brokers delete the beginning "
            "only where it has delete, which may go once the copy has begun"
        )
        yield Unfit("cleanup.policy", "compact,delete", why)


def _too_young(source: Mapping[str, str], copy: Mapping[str, str]) -> Iterator[Unfit]:
    """A record may be as old as the source keeps it when it is copied, however young it was when
    the source took it."""
    for setting in ("message.timestamp.before.max.ms", "message.timestamp.difference.max.ms"):
        there = _number(copy.get(setting, "-1"))
        if there < _number(source.get("retention.ms", "0")) and there < int(_UNLIMITED):
            why = (
                f"{copy[setting]} is less than what the source keeps "
                f"(retention.ms={source['retention.ms']}): older records are refused"
            )
            yield Unfit(setting, _UNLIMITED, why)


def _number(value: str) -> float:
    """-1 is no limit."""
    return inf if value == "-1" else int(value)


_LIMITS = {
    "max.message.bytes": "larger records are refused",
    "message.timestamp.after.max.ms": "records with later timestamps are refused",
    "retention.ms": "records are deleted sooner",
    "retention.bytes": "records are deleted sooner",
}
_CHANGES = {
    "cleanup.policy": "other records are deleted, and where it compacts, those without a key are "
    "refused",
    "compression.type": "each batch is compressed again",
    "message.timestamp.type": "records get other timestamps",
}
_HARMLESS = AS_GIVEN.values()
