"""The source topics of a test's load."""

from headrace.api import MirrorTest


def load_topics(test: MirrorTest) -> tuple[str, ...]:
    """Those that it names, or so many of its own."""
    load = test.spec.load
    return load.names or tuple(f"{test.metadata.name}-{n}" for n in range(load.topics or 0))
