"""Parts of the sentences of a verdict."""

from headrace.mirror_test import Example


def messages(count: int) -> str:
    """How many, as the subject of a sentence with its verb."""
    return f"{count:,} message is" if count == 1 else f"{count:,} messages are"


def for_example(examples: tuple[Example, ...]) -> str:
    """The first one, as the end of a sentence."""
    if not examples:
        return ""
    first = examples[0]
    what = f" ({first.differs})" if first.differs else ""
    if first.differs == "offset" and first.source:
        what = f", and at {first.source.offset} on the source"
    at = (
        "" if first.offset is None else f" at {first.topic}-{first.partition} offset {first.offset}"
    )
    return f", for example number {first.seq} of producer {first.producer}{at}{what}"


def few(names: tuple[str, ...], most: int = 3) -> str:
    """The first names, and how many more there are."""
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more
