"""A load without end (``durationSeconds: 0``) is sent in windows: each is a run by itself."""

from headrace.api import Load, MirrorTest
from headrace.mirror_test.load_topics import load_topics


def window_load(test: MirrorTest) -> Load:
    """The load of one window: into the topics of the first, so that none are added."""
    load = test.spec.load
    return Load.model_validate(
        load.model_dump(by_alias=True, exclude_unset=True, exclude={"topics", "window_seconds"})
        | {"names": load_topics(test), "durationSeconds": load.window_seconds}
    )


def window_of(test: MirrorTest) -> MirrorTest:
    """The test of one window."""
    spec = test.spec.model_copy(update={"load": window_load(test)})
    return test.model_copy(update={"spec": spec})
