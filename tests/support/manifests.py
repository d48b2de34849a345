"""Manifests: the smallest ones, and any that are valid."""

from collections.abc import Callable
from typing import Any

from hypothesis import strategies as st

Document = dict[str, Any]
Say = Callable[[object], list[str]]
"""The mistakes of a document, as the fixture ``say`` finds them."""

EAST: Document = {"alias": "east", "bootstrapServers": "east:9092"}
WEST: Document = {"alias": "west", "bootstrapServers": "west:9092"}

NOWHERE: Document = {
    "nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": []}}
}
"""Affinity that the API server refuses in a pod, and not in a manifest of headrace."""

SERVER_DEFAULTS: Document = {
    "replicationPolicy.type": "Default",
    "delivery.mode": "AtLeastOnce",
    "offsets.mode": "Translated",
    "batchVerification": "Sampled",
    "startFrom.mode": "Earliest",
    "tasks.max": 8,
    "tasks.standbys": 0,
    "tasks.assignor": "sticky",
    "topicConfigs.enabled": True,
    "topicDeletion.mode": "Disabled",
    "acls.enabled": False,
    "checkpoints.enabled": True,
    "checkpoints.applyToGroups": False,
    "heartbeats.enabled": True,
    "heartbeats.onSource": True,
    "offsetSyncs.location": "Target",
    "onDataLoss": "Fail",
    "onRecordError.action": "Fail",
    "drivers.replicas": 2,
    "state": "Running",
    "sourceWatch.enabled": False,
}
"""Defaults that the API server writes into a flow, by their path in the spec."""

LABEL = st.from_regex(r"[a-z0-9]([a-z0-9-]{0,20}[a-z0-9])?", fullmatch=True)
COUNT = st.integers(1, 10**6)
# Names that YAML would read as something else, and expressions full of its own characters.
REGEXES = st.sampled_from([".*", "yes", "7", "1e3", "null", "a: b", "#c", "2026-01-31", "[{]"])
SETTINGS = st.dictionaries(
    st.sampled_from(["client.rack", "client.id"]), st.text(max_size=5) | st.integers(0, 9)
)


def flow(name: str = "orders", **spec: Any) -> Document:
    """Return a ReplicationFlow; without ``spec`` the smallest."""
    smallest = {"source": EAST, "target": WEST, "topics": {"include": ["orders"]}}
    return document("ReplicationFlow", name, smallest | spec)


def mirror_test(name: str = "orders", /, **spec: Any) -> Document:
    """Return a MirrorTest of a flow."""
    return document("MirrorTest", name, {"flowName": "orders"} | spec)


def mirror_test_of_another(name: str = "orders", /, **spec: Any) -> Document:
    """Return a MirrorTest of a mirror that another party runs."""
    return document("MirrorTest", name, {"source": EAST, "target": WEST} | spec)


def task(flow: str = "orders", index: int = 0, **spec: Any) -> Document:
    """Return a ReplicationTask."""
    identity = {"flowName": flow, "type": "SourceTask", "index": index}
    return document("ReplicationTask", f"{flow}-source-task-{index}", identity | spec)


def document(kind: str, name: str, spec: Document) -> Document:
    """Return an object as a user writes it."""
    head = {"apiVersion": "headrace.dev/v1beta1", "kind": kind, "metadata": {"name": name}}
    return head | {"spec": spec}


def path_of(kind: str, namespace: str, name: str = "") -> str:
    """Return the API server's path of the objects of a kind, or of one of them."""
    here = f"/apis/headrace.dev/v1beta1/namespaces/{namespace}/{kind.lower()}s"
    return f"{here}/{name}" if name else here


def some_of(**fields: st.SearchStrategy[Any]) -> st.SearchStrategy[Document]:
    """Any of these fields."""
    return st.fixed_dictionaries({}, optional=fields)


@st.composite
def flows(draw: st.DrawFn) -> Document:
    """Any valid ReplicationFlow, more or less."""
    source, target = draw(st.lists(LABEL, min_size=2, max_size=2, unique=True))
    spec = draw(
        some_of(
            delivery=st.just({"mode": "AtLeastOnce"}),
            state=st.sampled_from(["Running", "Paused", "Stopped"]),
            tasks=some_of(max=COUNT, movementBudget=st.floats(0, 1)),
            replicationPolicy=some_of(separator=st.sampled_from([".", "_", "-", "0"])),
            checkpoints=some_of(enabled=st.booleans(), intervalSeconds=COUNT),
            pausedPartitions=st.just([{"topic": "7", "partitions": "0"}]),
        )
    )
    timestamp = draw(st.none() | st.just("2026-01-31T12:00:00.25+01:00"))
    if timestamp:
        spec |= {"startFrom": {"mode": "Timestamp", "timestamp": timestamp}}
    spec |= {
        "source": {"alias": source, "bootstrapServers": "a:1", "config": draw(SETTINGS)},
        "target": {"alias": target, "bootstrapServers": "b:2"},
        "topics": {"include": draw(st.lists(REGEXES, min_size=1, max_size=4))},
    }
    return document("ReplicationFlow", draw(LABEL), spec)


@st.composite
def mirror_tests(draw: st.DrawFn) -> Document:
    """Any valid MirrorTest of a flow, more or less."""
    bound = draw(some_of(messages=COUNT) | some_of(durationSeconds=COUNT))
    names = draw(some_of(topics=COUNT) | st.just({"names": ["7", "null"]}))
    spec = draw(
        some_of(
            settleSeconds=COUNT,
            budgets=some_of(missing=COUNT, duplicated=COUNT, latencyP99Ms=COUNT),
            load=some_of(messagesPerSecond=COUNT).map(lambda load: load | bound | names),
        )
    )
    return document("MirrorTest", draw(LABEL), spec | {"flowName": draw(LABEL)})
