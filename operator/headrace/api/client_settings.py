"""Settings of Kafka clients, and the codec of batches on the target."""

from collections.abc import Iterator, Mapping
from difflib import get_close_matches
from enum import StrEnum
from fnmatch import fnmatchcase
from typing import NamedTuple

from headrace.api.model import AtLeastOne, Model, Rule, RuleViolation

_TLS = "use tls"
_PLACEMENT = "headrace assigns partitions itself and joins no consumer group"
_POSITION = "headrace keeps positions itself; see startFrom and onDataLoss"
_ACKNOWLEDGED = "a record counts only when all in-sync replicas have it"
_ONCE = "headrace sends idempotently and gives out transactional ids; see delivery"
_FOR_EVER = "headrace never gives a record up: one that timed out may have been written"
_QUEUE = "headrace bounds what is in flight, and the producer's queue must hold all of it, in order"
_CODE = "it runs code in a driver"
_CODEC = "batches keep their codec; see compression of spec.target"

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
    "compression.type": _CODEC,
    "compression.codec": _CODEC,
    "compression.level": _CODEC,
    "plugin.library.paths": _CODE,
    "on_delivery": _CODE,
    "logger": _CODE,
}
"""Settings that headrace sets itself, each with the reason or the field to use instead."""

OWNED_FAMILIES = {"ssl.*": _TLS, "sasl.*": "use authentication", "*_cb": _CODE}
"""Patterns of settings that headrace sets itself, with the same values as ``OWNED``."""


def owner_of(setting: str) -> str | None:
    """Return why a user may not set ``setting``, or what to use instead; None if it is allowed."""
    for family, why in OWNED_FAMILIES.items():
        if fnmatchcase(setting, family):
            return why
    return OWNED.get(setting)


def _rules() -> Iterator[Rule]:
    """Yield the rules that refuse settings that headrace sets itself, one for each reason."""
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


class Supported(NamedTuple):
    """A client setting that a user may set."""

    names: tuple[str, ...]
    """Name in Kafka's Java client, followed by the names in librdkafka."""
    effect: str
    default: str = ""
    least: int | None = None
    """Lowest value of a number, or None if the setting is text."""
    most: int = 2**31 - 1
    choices: tuple[str, ...] = ()

    def problem(self, value: str) -> str | None:
        """Return why a value is refused, or None."""
        if self.choices and value not in self.choices:
            return f"must be {' or '.join(self.choices)}"
        if self.least is not None and not (
            value.isascii() and value.isdigit() and self.least <= int(value) <= self.most
        ):
            return f"must be a whole number from {self.least} to {self.most}"
        return None


SUPPORTED = (
    Supported(("client.id",), "Name of the client in the brokers' logs and quotas.", "headrace"),
    Supported(
        ("client.rack",),
        "Rack of the drivers: a replica of the source in the same rack is read.",
        "the rack of the driver",
    ),
    Supported(
        ("request.timeout.ms", "socket.timeout.ms"),
        "Time for an answer. A connection without an answer is closed. A fetch from the source may "
        "last 5 s (or this time, if that is shorter) longer than fetch.max.wait.ms. After each "
        "expiry it may last three times as long, up to 5 minutes.",
        "30000",
        1_000,
        600_000,
    ),
    Supported(
        ("socket.connection.setup.timeout.ms",),
        "Time for TCP, TLS and login of a connection.",
        "10000",
        1_000,
        600_000,
    ),
    Supported(
        ("send.buffer.bytes", "socket.send.buffer.bytes"),
        "Size of the send buffer of a socket. 0: the operating system decides.",
        "0",
        0,
        100_000_000,
    ),
    Supported(
        ("receive.buffer.bytes", "socket.receive.buffer.bytes"),
        "Size of the receive buffer of a socket. 0: the operating system decides.",
        "0",
        0,
        100_000_000,
    ),
    Supported(
        ("broker.address.family",),
        "Addresses of brokers that are used: of IPv4, of IPv6 or both.",
        "any",
        choices=("any", "v4", "v6"),
    ),
    Supported(
        ("fetch.max.wait.ms", "fetch.wait.max.ms"),
        "Time that a broker waits for fetch.min.bytes.",
        "500",
        0,
        300_000,
    ),
    Supported(
        ("fetch.min.bytes",), "Bytes that a broker collects before it answers.", "1", 1, 100_000_000
    ),
    Supported(
        ("fetch.max.bytes",),
        "Largest response to a fetch. A single larger batch is fetched whole.",
        "4194304",
        1_024,
        104_857_600,
    ),
    Supported(
        ("max.partition.fetch.bytes", "fetch.message.max.bytes"),
        "Largest part of a response that one partition gets. A larger batch is fetched whole.",
        "1048576",
        1_024,
        104_857_600,
    ),
    Supported(
        ("debug",),
        "Contexts, separated by commas, that librdkafka logs: its clients serve progress, "
        "checkpoints, heartbeats and topics.",
    ),
)
"""Settings that a user may set in the ``config`` of a cluster."""
_BY_NAME = {name: one for one in SUPPORTED for name in one.names}
_ONLY = f"supports only {', '.join(_BY_NAME)}"


def supported(setting: str) -> Supported | None:
    """Return the setting of that name if a user may set it."""
    return _BY_NAME.get(setting)


def config_problem(setting: str, value: str) -> str | None:
    """Return why a user may not set ``setting`` to ``value``, or None."""
    if owner := owner_of(setting):
        return f"cannot be set here: {owner}"
    if (known := supported(setting)) is not None:
        return known.problem(value)
    if meant := nearest(setting):
        return f"is not supported; did you mean {meant}?"
    return f"is not supported: config {_ONLY}"


CONFIG_RULES = (
    *_rules(),
    Rule(
        f"!has(self.config) || self.config.all(k, k in {[*_BY_NAME, *OWNED]}"
        + "".join(
            f" || k.startsWith('{family[:-1]}')"
            if family.endswith("*")
            else f" || k.endsWith('{family[1:]}')"
            for family in OWNED_FAMILIES
        )
        + ")",
        _ONLY,
        at="config",
    ),
)
"""Rules by which the API server refuses the names that :func:`config_problem` refuses."""


def nearest(setting: str) -> str | None:
    """Return the supported setting whose name is most like ``setting``, or None."""
    return next(iter(get_close_matches(setting, _BY_NAME, n=1, cutoff=0.6)), None)


def text_of(config: Mapping[str, str], name: str) -> str:
    """Return the value or default of a setting. ``name`` is its name in Kafka's client."""
    one = _BY_NAME[name]
    return next((config[alias] for alias in one.names if alias in config), one.default)


_ONLY_JAVA = {
    "send.buffer.bytes": "socket.send.buffer.bytes",
    "receive.buffer.bytes": "socket.receive.buffer.bytes",
    "fetch.max.wait.ms": "fetch.wait.max.ms",
}
"""Settings whose names differ: librdkafka's name, by the name in Kafka's Java client."""


def for_librdkafka(config: Mapping[str, str]) -> dict[str, str]:
    """Return a cluster's settings in the names of librdkafka."""
    return {_ONLY_JAVA.get(name, name): value for name, value in config.items()}


class CompressionType(StrEnum):
    """Codecs of record batches."""

    SOURCE = "Source"
    NONE = "None"
    GZIP = "Gzip"
    SNAPPY = "Snappy"
    LZ4 = "Lz4"
    ZSTD = "Zstd"


HIGHEST_LEVELS = {CompressionType.GZIP: 9, CompressionType.LZ4: 12, CompressionType.ZSTD: 22}
"""Highest level of each codec that has levels. The lowest level is 1."""
_NO_LEVEL = "is allowed only with type Gzip, Lz4 or Zstd: the other types have no levels"


def _too_high(codec: CompressionType) -> str:
    return f"must be at most {HIGHEST_LEVELS[codec]} with type {codec}"


class Compression(Model):
    """Compression of batches on the target."""

    type: CompressionType = CompressionType.SOURCE
    """Codec of the batches. Source keeps each batch's codec, and batches are copied unchanged. With
    another value, batches with a different codec are decompressed and compressed again, which costs
    CPU."""
    level: AtLeastOne | None = None
    """Compression level of batches that are compressed again: 1 to 9 with Gzip, 1 to 12 with Lz4,
    1 to 22 with Zstd. Without it, the codec's default. Batches that already have the codec keep
    their level."""

    rules = (
        Rule(
            "!has(self.level) || (has(self.type) && self.type in ['Gzip', 'Lz4', 'Zstd'])",
            _NO_LEVEL,
            at="level",
        ),
        *(
            Rule(
                f"!has(self.level) || !has(self.type) || self.type != '{codec}' "
                f"|| self.level <= {highest}",
                _too_high(codec),
                at="level",
            )
            for codec, highest in HIGHEST_LEVELS.items()
        ),
    )

    def _breaches(self) -> Iterator[RuleViolation]:
        if self.level is None:
            return
        if self.type not in HIGHEST_LEVELS:
            yield RuleViolation(("level",), _NO_LEVEL)
        elif self.level > HIGHEST_LEVELS[self.type]:
            yield RuleViolation(("level",), _too_high(self.type))


AS_ON_SOURCE = Compression()
"""Compression that keeps the codec of each batch."""
