"""Labels, annotations and field managers that headrace's parts agree on in a cluster."""

import hashlib
import re

FLOW_LABEL = "headrace.dev/flow"
"""On everything of a flow: its name, as ``label_value`` has it. As an annotation of a resolved
mirror test: the flow that it was resolved from."""
MIRROR_TEST_LABEL = "headrace.dev/mirror-test"
"""On everything of a MirrorTest: its name, as ``label_value`` has it."""
TYPE_LABEL = "headrace.dev/type"
"""On a ReplicationTask: its spec.type."""
SOURCE_LABEL = "headrace.dev/source-cluster"
"""On a source task: the id of the Kafka cluster that it reads, as ``label_value`` has it."""
TARGET_LABEL = "headrace.dev/target-cluster"
"""On a source task: the id of the Kafka cluster that it writes to, as ``label_value`` has it."""
TOPICS_ANNOTATION = "headrace.dev/target-topics"
"""On a source task: the topics that it writes to, one a line."""
COMPONENT_LABEL = "app.kubernetes.io/component"
"""On pods and Leases: ``driver``, ``operator``."""
DRIVER_COMPONENT = "driver"

RESTART_ANNOTATION = "headrace.dev/restart"
"""On a ReplicationTask, with any value: its driver restarts the unit, and removes it."""
MOVE_ANNOTATION = "headrace.dev/move-to"
"""On a ReplicationTask: the driver that is to run it; the operator acts on it, and removes it."""
RESET_ANNOTATION = "headrace.dev/reset"
"""On a ReplicationFlow: partitions that its drivers copy again from ``spec.startFrom``, each with
the time of that wish (``Resets``). It may stay: a time counts once."""
PAUSE_ANNOTATION = "headrace.dev/pause-reconciliation"
"""On a ReplicationFlow, ``"true"``: the operator changes nothing of the flow but the owners of its
units."""
PAUSED_BY_ANNOTATION = "headrace.dev/paused-by"
"""Annotation of a flow: the name of the MirrorTest whose chaos has paused it, until it is resumed.
"""
KILL_ANNOTATION = "headrace.dev/kill-operator"
"""On a MirrorTest: empty, the operator that leads ends as by kill -9 and leaves its name here; the
next one adds its own. Obeyed where ``spec.chaos`` has KillOperator, while the test runs."""
LED_NEXT = ", then "
"""Between the two names; an operator that has just been started again may add the same one."""
COMMIT_INTERVAL_ANNOTATION = "headrace.dev/commit-interval-ms"
"""On a resolved mirror test of a flow of ExactlyOnce: its ``spec.commitIntervalMs``."""
END_LOAD_ANNOTATION = "headrace.dev/end-load"
"""On a MirrorTest, with any value: its load ends, and what was sent until then is judged."""

CONNECTOR_MANAGER = "headrace-connector"
"""Field manager of what a task replicates."""
OPERATOR_MANAGER = "headrace-operator"
"""Field manager of where a unit runs, and of all that the operator makes."""
DRIVER_MANAGER = "headrace-driver"
"""Field manager of a driver's Lease."""


def standby_label(driver: str) -> str:
    """Key of a label (without a value) on a ReplicationTask that ``driver`` stands by for.

    The operator sets it beside spec.standbyDriverNames: a list cannot be selected by, and a driver
    must not have to watch all tasks of its flow.
    """
    return f"standby.headrace.dev/{driver}"


def label_value(text: str) -> str:
    """``text`` as the value of a label; one that is too long or oddly spelt ends in its hash."""
    if len(text) <= 63 and re.fullmatch(r"[A-Za-z0-9]([A-Za-z0-9_.-]*[A-Za-z0-9])?", text):
        return text
    start = re.sub(r"[^A-Za-z0-9_.-]", "-", text)[:54].strip("_.-")
    return f"{start or 'x'}-{hashlib.sha256(text.encode()).hexdigest()[:8]}"
