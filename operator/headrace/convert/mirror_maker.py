"""Conversion of settings of MirrorMaker 2's connectors to fields of a flow."""

import re
from collections.abc import Callable
from fnmatch import fnmatchcase

from headrace.convert.draft import Draft, Setting, Settings

Handler = Callable[[Draft, Setting], None]

_CONNECT = "is a setting of Kafka Connect, which headrace does not use"
_REST = "headrace has no REST interface: use `headrace status`, or kubectl"
_FETCHES = "headrace limits its fetches itself"
_SENDS = "headrace sends the source's batches unchanged, and limits its requests itself"
_TOPICS_OF_ITS_OWN = "headrace creates its topics with spec.target.replicationFactor replicas"
_REASONS = {
    "offset.lag.max": "headrace translates offsets exactly, so there is no lag to limit",
    "emit.offset-syncs.enabled": "headrace always keeps the offset pairs that it translates with",
    "consumer.poll.timeout.ms": _FETCHES,
    "heartbeats.replication.enabled": "headrace always copies heartbeats",
    "refresh.topics.enabled": "headrace always polls for topics, every discovery.topicsSeconds",
    "refresh.groups.enabled": "headrace always polls for groups, every discovery.groupsSeconds",
    "sync.group.offsets.interval.seconds": (
        "headrace sets group offsets with each checkpoint, every checkpoints.intervalSeconds"
    ),
    "replication.policy.internal.topic.separator.enabled": (
        "headrace's internal topics always have the separator of replicationPolicy"
    ),
    "topic.filter.class": "headrace selects topics by topics.include and topics.exclude only",
    "group.filter.class": "headrace selects groups by groups.include and groups.exclude only",
    "config.property.filter.class": "headrace selects settings by topicConfigs.exclude only",
    "use.defaults.from": "headrace copies only settings that a topic overrides, never defaults",
    "forwarding.admin.class": "headrace creates topics itself",
    "metric.reporters": "headrace serves metrics for Prometheus",
    "admin.timeout.ms": "headrace chooses the timeouts of its requests itself",
    "errors.tolerance": "use onRecordError: {action: Skip} or {action: DeadLetter}",
    "errors.*": "use onRecordError: {action: Skip} or {action: DeadLetter}",
    "transforms*": "headrace has no transforms: filter records with recordFilter",
    "predicates*": "headrace has no transforms: filter records with recordFilter",
    "key.converter*": "headrace copies keys byte for byte",
    "value.converter*": "headrace copies values byte for byte",
    "header.converter*": "headrace copies headers byte for byte",
    "listeners": _REST,
    "rest.*": _REST,
    "admin.listeners*": _REST,
    "dedicated.mode.enable.internal.rest": _REST,
    "config.providers*": "headrace resolves no placeholders: values go into Secrets",
    "*.storage.*": _CONNECT,
    "offset.flush.*": _CONNECT,
    "plugin.*": _CONNECT,
    "scheduled.rebalance.max.delay.ms": "headrace moves only the tasks of a lost driver, at once",
    "group.id": _CONNECT,
    "task.shutdown.graceful.timeout.ms": _CONNECT,
    "*.topic.replication.factor": _TOPICS_OF_ITS_OWN,
}
_CLIENT_REASONS = {
    "compression.type": "the copies keep the compression that the source's batches have",
    "batch.size": _SENDS,
    "linger.ms": _SENDS,
    "buffer.memory": _SENDS,
    "max.request.size": _SENDS,
    "max.in.flight.requests.per.connection": _SENDS,
    "acks": "headrace always waits for all in-sync replicas",
    "enable.idempotence": "headrace always sends idempotently",
    "fetch.*": _FETCHES,
    "max.partition.fetch.bytes": _FETCHES,
    "max.poll.*": _FETCHES,
    "receive.buffer.bytes": _FETCHES,
    "group.id": "headrace joins no consumer group",
}
_CLIENT = re.compile(
    r"(?:(?:source|target)\.(?:cluster\.)?)?(consumer|producer|admin)\.(?:override\.)?(.+)"
)
_POLICIES = {
    "org.apache.kafka.connect.mirror.DefaultReplicationPolicy": "Default",
    "org.apache.kafka.connect.mirror.IdentityReplicationPolicy": "Identity",
    "io.strimzi.kafka.connect.mirror.IdentityReplicationPolicy": "Identity",
}


def convert_settings(draft: Draft, settings: Settings) -> None:
    """Convert each setting, or note why it has no counterpart."""
    for name, setting in settings.items():
        if handler := _HANDLERS.get(name):
            handler(draft, setting)
        elif found := _CLIENT.fullmatch(name):
            _client_setting(draft, setting, found[2])
        elif name.endswith(".topic.replication.factor"):
            _own_topics(draft, settings, setting)
        else:
            draft.note(setting, reason_of(name, _REASONS))


def reason_of(name: str, reasons: dict[str, str]) -> str:
    """Return the reason why a setting has no counterpart."""
    for pattern, reason in reasons.items():
        if fnmatchcase(name, pattern):
            return reason
    return "headrace has no counterpart"


def convert_client_setting(draft: Draft, setting: Setting, name: str) -> None:
    """Convert a setting of a cluster's clients that does not concern security."""
    found = _CLIENT.fullmatch(name)
    _client_setting(draft, setting, found[2] if found else name)


def _client_setting(draft: Draft, setting: Setting, name: str) -> None:
    match name, setting.value.lower():
        case "auto.offset.reset", "earliest" | "latest" as mode:
            draft.put("startFrom", {"mode": mode.capitalize()})
        case "isolation.level", "read_committed":
            pass  # headrace always reads committed records only
        case "isolation.level", _:
            draft.note(setting, "headrace reads committed records only")
        case _:
            reason = reason_of(name, _CLIENT_REASONS)
            draft.note(setting, reason.replace("headrace has no", "headrace's client has no"))


def patterns(draft: Draft, setting: Setting) -> list[str]:
    """Return the regular expressions of a list.

    Raises:
        InvalidSpec: An expression has a syntax that only Java supports.
    """
    found = [one.strip() for one in setting.value.split(",") if one.strip()]
    if setting.drops:
        draft.note(
            setting,
            f"properties files drop the backslashes of {setting.drops.strip()}: MirrorMaker 2 "
            f"reads {setting.value}, and so does this flow. Compare it with what was intended",
        )
    for one in found:
        if re.search(r"\[[^\]]*&&", one):
            raise draft.refuse(
                setting,
                f"{one} has an intersection (&&), which only Java supports: write it without",
            )
        try:
            re.compile(one)
        except (re.error, OverflowError, RecursionError) as error:
            raise draft.refuse(
                setting, f"{one} is no regular expression that headrace supports: {error}"
            ) from None
    return found


def _patterns(path: str) -> Handler:
    def convert(draft: Draft, setting: Setting) -> None:
        draft.put(path, patterns(draft, setting))
        if setting.has_placeholder:
            draft.stop(setting, "headrace resolves no placeholders: write the expressions")

    return convert


def _flag(path: str) -> Handler:
    def convert(draft: Draft, setting: Setting) -> None:
        value = setting.value.strip().lower()
        if setting.has_placeholder:
            draft.stop(setting, f"headrace resolves no placeholders: write spec.{path}")
        elif value in ("true", "false"):
            draft.put(path, value == "true")
        else:
            raise draft.refuse(setting, f"got {setting.value!r}, must be true or false")

    return convert


def _number(path: str, switch: str = "") -> Handler:
    """Return a handler for a number of at least 1.

    For a smaller number, the handler sets the field ``switch`` to false, as in MirrorMaker 2.
    """

    def convert(draft: Draft, setting: Setting) -> None:
        if setting.has_placeholder:
            draft.stop(setting, f"headrace resolves no placeholders: write spec.{path}")
        elif not re.fullmatch(r"\s*-?\d{1,18}\s*", setting.value, re.ASCII):
            raise draft.refuse(setting, f"got {setting.value!r}, must be a whole number")
        elif (number := int(setting.value)) >= 1:
            draft.put(path, number)
        elif switch:
            draft.put(switch, False)
        else:
            draft.note(setting, f"headrace cannot switch this off: spec.{path} is at least 1")

    return convert


def _tasks(draft: Draft, setting: Setting) -> None:
    known = draft.spec.get("tasks", {}).get("max", 0)
    _number("tasks.max")(draft, setting)
    if known > draft.spec.get("tasks", {}).get("max", 0):
        draft.put("tasks.max", known)


def _replication_factor(draft: Draft, setting: Setting) -> None:
    if setting.value.strip() != "-1":  # the brokers' default, which is also headrace's
        _number("target.replicationFactor")(draft, setting)


def _own_topics(draft: Draft, settings: Settings, setting: Setting) -> None:
    """Add a note if an internal topic's replication factor differs from that of copied topics."""
    factor = settings.get("replication.factor")
    if setting.value.strip() != (factor.value.strip() if factor else "-1"):
        draft.note(setting, _TOPICS_OF_ITS_OWN)


def _policy(draft: Draft, setting: Setting) -> None:
    if setting.value == "":
        return
    if policy := _POLICIES.get(setting.value):
        draft.put("replicationPolicy.type", policy)
    else:
        draft.stop(
            setting,
            f"headrace does not have the policy {setting.value}: choose a replicationPolicy.type, "
            "or write a plug-in in Python that names topics as that policy does",
        )


def _separator(draft: Draft, setting: Setting) -> None:
    draft.put("replicationPolicy.separator", setting.value)


def _location(draft: Draft, setting: Setting) -> None:
    location = setting.value.strip().capitalize()
    if location not in ("Source", "Target"):
        raise draft.refuse(setting, f"got {setting.value!r}, must be source or target")
    draft.put("offsetSyncs.location", location)


def _exactly_once(draft: Draft, setting: Setting) -> None:
    if setting.value.strip().lower() in ("enabled", "required"):
        draft.put("delivery", {"mode": "ExactlyOnce"})
    elif setting.value.strip().lower() == "preparing":
        draft.note(setting, "headrace needs no preparation: set delivery.mode: ExactlyOnce")


_HANDLERS: dict[str, Handler] = {
    "topics": _patterns("topics.include"),
    "topics.exclude": _patterns("topics.exclude"),
    "topics.blacklist": _patterns("topics.exclude"),
    "groups": _patterns("groups.include"),
    "groups.exclude": _patterns("groups.exclude"),
    "groups.blacklist": _patterns("groups.exclude"),
    "tasks.max": _tasks,
    "replication.factor": _replication_factor,
    "refresh.topics.interval.seconds": _number("discovery.topicsSeconds"),
    "refresh.groups.interval.seconds": _number("discovery.groupsSeconds"),
    "sync.topic.configs.enabled": _flag("topicConfigs.enabled"),
    "sync.topic.configs.interval.seconds": _number(
        "topicConfigs.intervalSeconds", "topicConfigs.enabled"
    ),
    "config.properties.exclude": _patterns("topicConfigs.exclude"),
    "config.properties.blacklist": _patterns("topicConfigs.exclude"),
    "sync.topic.acls.enabled": _flag("acls.enabled"),
    "sync.topic.acls.interval.seconds": _number("acls.intervalSeconds", "acls.enabled"),
    "emit.checkpoints.enabled": _flag("checkpoints.enabled"),
    "emit.checkpoints.interval.seconds": _number(
        "checkpoints.intervalSeconds", "checkpoints.enabled"
    ),
    "sync.group.offsets.enabled": _flag("checkpoints.applyToGroups"),
    "emit.heartbeats.enabled": _flag("heartbeats.enabled"),
    "emit.heartbeats.interval.seconds": _number("heartbeats.intervalSeconds", "heartbeats.enabled"),
    "offset-syncs.topic.location": _location,
    "replication.policy.class": _policy,
    "replication.policy.separator": _separator,
    "exactly.once.source.support": _exactly_once,
    "exactly.once.support": _exactly_once,
}
