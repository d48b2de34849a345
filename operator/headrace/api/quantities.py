"""Amounts of resources as Kubernetes writes them (k8s.io/apimachinery, ``resource.Quantity``)."""

import re
from decimal import Decimal

_DECIMAL = {"n": -9, "u": -6, "m": -3, "": 0, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}
_BINARY = ("Ki", "Mi", "Gi", "Ti", "Pi", "Ei")
_PARTS = re.compile(r"([\d.]+(?:[eE][+-]?\d+)?)([a-zA-Z]*)")


def quantity(text: str) -> Decimal:
    """The amount, to be compared: of processors, bytes ..."""
    parts = _PARTS.fullmatch(text)
    assert parts, "the type of the field has checked it"
    number, suffix = Decimal(parts[1]), parts[2]
    if suffix in _BINARY:
        return number * Decimal(1024 ** (_BINARY.index(suffix) + 1))
    return number.scaleb(_DECIMAL[suffix])
