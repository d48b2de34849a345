"""Kafka client settings that headrace decides, because the guarantees hang on them."""

from collections.abc import Iterator
from fnmatch import fnmatchcase

from headrace.api.extensions import Rule

_TLS = "use tls"
_PLACEMENT = "headrace assigns partitions itself and joins no consumer group"
_POSITION = "headrace keeps positions itself; see startFrom and onDataLoss"
_ACKNOWLEDGED = "a record counts only when all in-sync replicas have it"
_ONCE = "headrace sends idempotently and gives out transactional ids; see delivery"
_FOR_EVER = "headrace never gives a record up: one that timed out may have been written"
_QUEUE = "headrace bounds what is in flight, and the producer's queue must hold all of it, in order"
_CODE = "it runs code in a driver"

OWNED = {
    "bootstrap.servers": "use bootstrapServers",
    "metadata.broker.list": "use bootstrapServers",
    "security.protocol": "use tls and authentication",
    "enable.ssl.certificate.verification": _TLS,
    "isolation.level": "headrace reads committed records only",
    "check.crcs": "headrace always checks them",
    "group.id": _PLACEMENT,
    "group.instance.id": _PLACEMENT,
    "group.protocol": _PLACEMENT,
    "group.remote.assignor": _PLACEMENT,
    "partition.assignment.strategy": _PLACEMENT,
    "enable.auto.commit": _POSITION,
    "auto.commit.interval.ms": _POSITION,
    "enable.auto.offset.store": _POSITION,
    "auto.offset.reset": _POSITION,
    "enable.partition.eof": _POSITION,
    "acks": _ACKNOWLEDGED,
    "request.required.acks": _ACKNOWLEDGED,
    "delivery.report.only.error": _ACKNOWLEDGED,
    "enable.idempotence": _ONCE,
    "enable.gapless.guarantee": _ONCE,
    "transactional.id": _ONCE,
    "message.timeout.ms": _FOR_EVER,
    "delivery.timeout.ms": _FOR_EVER,
    "retries": _FOR_EVER,
    "message.send.max.retries": _FOR_EVER,
    "queue.buffering.max.messages": _QUEUE,
    "queue.buffering.max.kbytes": _QUEUE,
    "queuing.strategy": _QUEUE,
    "max.in.flight": _QUEUE,
    "max.in.flight.requests.per.connection": _QUEUE,
    "partitioner": "a record keeps the partition it has on the source",
    "allow.auto.create.topics": "headrace creates topics itself, with the source's partitions",
    "plugin.library.paths": _CODE,
    "on_delivery": _CODE,
    "logger": _CODE,
}
"""Setting -> why it is refused, or what to use instead."""

OWNED_FAMILIES = {"ssl.*": _TLS, "sasl.*": "use authentication", "*_cb": _CODE}
"""The same for settings whose names begin or end alike."""


def owner_of(setting: str) -> str | None:
    """Why a user may not set ``setting``, or what to use instead; None where it is free."""
    for family, why in OWNED_FAMILIES.items():
        if fnmatchcase(setting, family):
            return why
    return OWNED.get(setting)


def _rules() -> Iterator[Rule]:
    """A rule for each reason."""
    reasons = dict.fromkeys([*OWNED_FAMILIES.values(), *OWNED.values()])
    for why in reasons:
        names = [name for name, reason in OWNED.items() if reason == why]
        families = [family for family, reason in OWNED_FAMILIES.items() if reason == why]
        found = [f"k in {names}"] if names else []
        found += [
            f"k.startsWith('{family[:-1]}')"
            if family.endswith("*")
            else f"k.endsWith('{family[1:]}')"
            for family in families
        ]
        yield Rule(
            f"!has(self.config) || !self.config.exists(k, {' || '.join(found)})",
            f"{', '.join([*families, *names])} cannot be set here: {why}",
            at="config",
            reason="FieldValueForbidden",
        )


OWNED_RULES = tuple(_rules())
""":func:`owner_of` for the API server, about a cluster's ``config``."""
