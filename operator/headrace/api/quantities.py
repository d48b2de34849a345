"""Quantities and resources of containers, as Kubernetes writes them."""

import re
from collections.abc import Iterator
from decimal import Decimal
from typing import Annotated

from pydantic import Field

from headrace.api.model import Matching, Model, Rule, RuleViolation, Unquoted

_DECIMAL = {"n": -9, "u": -6, "m": -3, "": 0, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}
_BINARY = ("Ki", "Mi", "Gi", "Ti", "Pi", "Ei")
_PARTS = re.compile(r"([\d.]+(?:[eE][+-]?\d+)?)([a-zA-Z]*)")


def quantity(text: str) -> Decimal:
    """Return an amount, such as ``500m`` or ``1Gi``, as a number that can be compared."""
    parts = _PARTS.fullmatch(text)
    assert parts, "the type of the field has checked it"
    number, suffix = Decimal(parts[1]), parts[2]
    if suffix in _BINARY:
        return number * Decimal(1024 ** (_BINARY.index(suffix) + 1))
    return number.scaleb(_DECIMAL[suffix])


A_QUANTITY = "must be a quantity as Kubernetes writes it, like 500m, 2 or 1Gi"
Quantity = Annotated[
    Unquoted,
    Matching(
        r"\d+(\.\d*)?([eE][+-]?\d+|[KMGTPE]i|[numkMGTPE])?",
        A_QUANTITY,
        pattern=True,
    ),
]


_AMOUNT = "quantity(string(self.{part}['{name}']))"
_ABOVE_LIMIT = "must not be above the limit"
NO_LIMIT_OF_0 = "must be above 0: leave it out for no limit"
_TOO_LITTLE_MEMORY = "must be at least 1Mi: a number without a unit is a number of bytes"
_MIN_MEMORY = "1Mi"
_NOT_0 = ("cpu", "ephemeral-storage")
"""Resources whose limit must be above 0. The minimum of memory is ``_MIN_MEMORY``."""


def _not_above_limit(name: str) -> Rule:
    request = _AMOUNT.format(part="requests", name=name)
    limit = _AMOUNT.format(part="limits", name=name)
    both = f"'{name}' in self.?requests.orValue({{}}) && '{name}' in self.?limits.orValue({{}})"
    return Rule(
        f"!({both}) || {request}.compareTo({limit}) <= 0", f"{name} {_ABOVE_LIMIT}", at="requests"
    )


def _at_least(least: str, name: str, part: str, allowed: str) -> Rule:
    amount = _AMOUNT.format(part=part, name=name)
    return Rule(
        f"!('{name}' in self.?{part}.orValue({{}}))"
        f" || {amount}.compareTo(quantity('{least}')) >= 0",
        f"{name} {allowed}",
        at=part,
    )


def _limit_above_zero(name: str) -> Rule:
    amount = _AMOUNT.format(part="limits", name=name)
    return Rule(
        f"!('{name}' in self.?limits.orValue({{}})) || {amount}.compareTo(quantity('0')) > 0",
        f"{name} {NO_LIMIT_OF_0}",
        at="limits",
    )


_RESOURCES = ("cpu", "memory", "ephemeral-storage")
_UNKNOWN_RESOURCE = f"must be of {', '.join(_RESOURCES)}, hugepages-SIZE or a device's DOMAIN/NAME"


def _is_known(name: str) -> bool:
    return name in _RESOURCES or name.startswith("hugepages-") or name.find("/") > 0


class Resources(Model):
    """Resources of a container (Kubernetes' ResourceRequirements)."""

    requests: Annotated[dict[str, Quantity], Field(max_length=20)] = Field(default_factory=dict)
    """Requested amounts of cpu and memory."""
    limits: Annotated[dict[str, Quantity], Field(max_length=20)] = Field(default_factory=dict)
    """Maximum amounts of cpu and memory."""

    rules = (
        _not_above_limit("cpu"),
        _not_above_limit("memory"),
        *(
            rule
            for part in ("requests", "limits")
            for rule in (
                _at_least(_MIN_MEMORY, "memory", part, _TOO_LITTLE_MEMORY),
                # OpenAPI's patterns apply only to text
                *(_at_least("0", name, part, A_QUANTITY) for name in _NOT_0),
            )
        ),
        *map(_limit_above_zero, _NOT_0),
    )

    def _breaches(self) -> Iterator[RuleViolation]:
        for name, amount in self.requests.items():
            if name in self.limits and quantity(amount) > quantity(self.limits[name]):
                yield RuleViolation(("requests",), f"{name} {_ABOVE_LIMIT}")
        for part, amounts in (("requests", self.requests), ("limits", self.limits)):
            if not all(map(_is_known, amounts)):
                yield RuleViolation((part,), _UNKNOWN_RESOURCE)
            if "memory" in amounts and quantity(amounts["memory"]) < quantity(_MIN_MEMORY):
                yield RuleViolation((part,), f"memory {_TOO_LITTLE_MEMORY}")
        for name in _NOT_0:
            if name in self.limits and not quantity(self.limits[name]):
                yield RuleViolation(("limits",), f"{name} {NO_LIMIT_OF_0}")
