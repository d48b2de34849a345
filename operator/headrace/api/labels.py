"""Labels, annotations and field managers that the parts of headrace share in Kubernetes.

A *resolved* mirror test contains the values of its flow (``mirror_test/run.py``).
"""

import hashlib
import re

FLOW_LABEL = "headrace.dev/flow"
"""Label of all objects of a flow: its name, as :func:`label_value` writes it. It is also an
annotation of a resolved mirror test, which names the flow that it was resolved from."""
MIRROR_TEST_LABEL = "headrace.dev/mirror-test"
"""Label of all objects of a MirrorTest: its name, as :func:`label_value` writes it."""
TYPE_LABEL = "headrace.dev/type"
"""Label of a ReplicationTask: its spec.type."""
SOURCE_LABEL = "headrace.dev/source-cluster"
"""Label of a source task: the id of the source cluster, as :func:`label_value` writes it."""
TARGET_LABEL = "headrace.dev/target-cluster"
"""Label of a source task: the id of the target cluster, as :func:`label_value` writes it."""
TOPICS_ANNOTATION = "headrace.dev/target-topics"
"""Annotation of a source task: the topics that it writes to, one per line."""
COMPONENT_LABEL = "app.kubernetes.io/component"
"""Label of pods and Leases: ``driver`` or ``operator``."""
DRIVER_COMPONENT = "driver"

RESTART_ANNOTATION = "headrace.dev/restart"
"""Annotation of a ReplicationTask, with any value. Its driver restarts the unit and removes the
annotation."""
MOVE_ANNOTATION = "headrace.dev/move-to"
"""Annotation of a ReplicationTask: the driver that must run it. The operator moves the unit and
removes the annotation."""
RESET_ANNOTATION = "headrace.dev/reset"
"""Annotation of a ReplicationFlow: partitions that its drivers copy again from ``spec.startFrom``,
each with the time of the request (``Resets``). It may remain, because each time has an effect only
once."""
PAUSE_ANNOTATION = "headrace.dev/pause-reconciliation"
"""Annotation of a ReplicationFlow. With ``"true"``, the operator changes only the owners of the
flow's units."""
PAUSED_BY_ANNOTATION = "headrace.dev/paused-by"
"""Annotation of a flow while it is paused by the chaos of a MirrorTest: the name of the test."""
KILL_ANNOTATION = "headrace.dev/kill-operator"
"""Annotation of a MirrorTest. If it is empty, the leading operator kills itself as by kill -9 and
writes its name here. The next leader appends its own name. It has an effect only while a test runs
whose ``spec.chaos`` has KillOperator."""
LED_NEXT = ", then "
"""Separator of the names in ``KILL_ANNOTATION``. Both are equal if one operator leads again."""
COMMIT_INTERVAL_ANNOTATION = "headrace.dev/commit-interval-ms"
"""Annotation of a resolved mirror test of a flow with ExactlyOnce: its
``spec.commitIntervalMs``."""
FLOW_CHANGES_ANNOTATION = "headrace.dev/flow-changes"
"""Annotation of a resolved audit of a flow: the fields of the flow by which copies differ from the
source on purpose, as JSON."""
END_LOAD_ANNOTATION = "headrace.dev/end-load"
"""Annotation of a MirrorTest, with any value. Its load ends, and the messages sent until then are
judged."""

CONNECTOR_MANAGER = "headrace-connector"
"""Field manager of the work of a task."""
OPERATOR_MANAGER = "headrace-operator"
"""Field manager of the owner of a unit, and of all objects that the operator creates."""
DRIVER_MANAGER = "headrace-driver"
"""Field manager of a driver's Lease."""


def standby_label(driver: str) -> str:
    """Return the key of the label on ReplicationTasks for which ``driver`` stands by.

    The label has no value. The operator sets it together with spec.standbyDriverNames. A selector
    cannot match an item of a list, and a driver must not have to watch all tasks of its flow.
    """
    return f"standby.headrace.dev/{driver}"


def label_value(text: str) -> str:
    """Return ``text`` as the value of a label. Long or invalid text ends in its hash."""
    if len(text) <= 63 and re.fullmatch(r"[A-Za-z0-9]([A-Za-z0-9_.-]*[A-Za-z0-9])?", text):
        return text
    start = re.sub(r"[^A-Za-z0-9_.-]", "-", text)[:54].strip("_.-")
    return f"{start or 'x'}-{hashlib.sha256(text.encode()).hexdigest()[:8]}"
