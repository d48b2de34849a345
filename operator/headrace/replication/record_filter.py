"""Which records a flow copies (``spec.recordFilter``). Pure."""

from collections.abc import Callable, Iterable, Mapping

from headrace.api import HEARTBEATS, RecordFilter, RecordHeader

Headers = Iterable[tuple[str, str | bytes | None]] | Mapping[str, str | bytes | None] | None
"""As Kafka's client gives them."""
Copies = Callable[[str, Headers], bool]
"""Whether a record of a topic, with these headers, is copied."""


def record_filter(wanted: RecordFilter | None) -> Copies | None:
    """None: every record is copied, and headers need not be read."""
    if wanted is None or not (wanted.headers.include or wanted.headers.exclude):
        return None
    include, exclude = (_Headers(one) for one in (wanted.headers.include, wanted.headers.exclude))

    def copies(topic: str, headers: Headers) -> bool:
        if topic == HEARTBEATS:
            return True
        found = list(headers.items() if isinstance(headers, Mapping) else headers or ())
        return not exclude.match(found) and (not include or include.match(found))

    return copies


class _Headers:
    def __init__(self, wanted: Iterable[RecordHeader]) -> None:
        self._any_value = {one.name for one in wanted if one.value is None}
        self._values = {(one.name, one.value.encode()) for one in wanted if one.value is not None}

    def __bool__(self) -> bool:
        return bool(self._any_value or self._values)

    def match(self, headers: Iterable[tuple[str, str | bytes | None]]) -> bool:
        """Whether one of the headers is one of these."""
        return any(
            name in self._any_value
            or (name, value.encode() if isinstance(value, str) else value) in self._values
            for name, value in headers
        )
