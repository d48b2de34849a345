"""Wrong manifests, each with one mistake, and the sentence that names it."""

from collections.abc import Callable
from typing import Any, NamedTuple

from support.manifests import (
    EAST,
    WEST,
    Document,
    flow,
    mirror_test,
    mirror_test_of_another,
)

from headrace.api.client_settings import OWNED

HALF = {"atPercent": 50, "action": "KillDriver"}
AT_9_S = {"atSeconds": 9, "action": "KillDriver"}
USER = {"secretName": "east-user", "key": "password"}


def preserving(spec: Document) -> Document:
    """Return a flow that preserves offsets, with these fields."""
    return flow(offsets={"mode": "Preserved"}, **spec)


class Bad(NamedTuple):
    """A manifest with one mistake."""

    document: Document
    field: str
    """The field to blame; ``headrace validate`` may say more exactly which item of it."""
    sentence: str
    """Sentence that both print."""
    ours: str = ""
    """Sentence of ``headrace validate`` if Kubernetes has a text of its own, or cannot count."""


NEEDS_TOPIC = "must be a topic's name: letters, digits, '.', '_', '-'"
NEEDS_LABEL = "must be a DNS label: a-z, 0-9 and '-', a letter or digit at both ends"
NEEDS_SERVERS = "must be host:port, or several of them separated by commas"
NEEDS_PASSWORD = "is required with type: Plain, ScramSha256 or ScramSha512"
NEEDS_TEMPLATE = (
    "must be a topic's name with {topic} in it, and perhaps {source} for the source's alias"
)
OTHER_BROKERS = "must differ from spec.source.bootstrapServers: a mirror joins two clusters"
LEFT_OUT = "a record that is left out is not preserved"
BESIDE_AUDIT = "must be left out beside audit"
PASSWORD = {"password": {"secretName": "login"}}
TOKEN = {"token": {"secretName": "login", "key": "token"}}
BY_PASSWORD = {"type": "Basic", "username": "u"} | PASSWORD
EITHER = "must have either atPercent or atSeconds"


OAUTH = {
    "tokenEndpoint": "https://[::1]:8443/realms/kafka/token?p=1",
    "clientId": "headrace",
    "clientSecret": {"secretName": "idp", "key": "secret"},
    "trustedCertificates": [{"secretName": "idp", "key": "ca.crt"}],
}


def source(**more: Any) -> Document:
    return flow(source=EAST | more)


RESOURCES_OF_PODS: tuple[tuple[Callable[[Document], Document], str], ...] = (
    (lambda drivers: flow(drivers=drivers), "spec.drivers"),
    (lambda pod: mirror_test(spark={"driver": pod}), "spec.spark.driver"),
    (lambda pod: mirror_test(spark={"executor": pod}), "spec.spark.executor"),
)
POD_TEMPLATES: tuple[tuple[Callable[[Document], Document], str], ...] = (
    (lambda pods: flow(drivers={"podTemplate": pods}), "spec.drivers"),
    (lambda pods: mirror_test(podTemplate=pods), "spec"),
)

_AT_LEAST = "should be greater than or equal to {}"
_AT_MOST = "should be less than or equal to {}"
_LEAST = "must be at least {}"
_INTEGER = "must be of type integer"
_WHOLE = "must be a whole number"
_CHOICE = "Unsupported value"
_PATTERN = "should match"
_LABEL_VALUE = "a letter or digit at both ends"
_A_QUANTITY = "must be a quantity as Kubernetes writes it, like 500m, 2 or 1Gi"
_NO_STEPS: tuple[Document, ...] = ({}, {"chaos": []})
_MEDIA = 'must be "" or Memory; did you mean Memory?'
_SPREAD: Document = {"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule"}
_VOLUME: Document = {"name": "v", "emptyDir": {}}


def _flow(spec: Document) -> Document:
    return flow(**spec)


def _drivers(drivers: Document) -> Document:
    return flow(drivers=drivers)


def _mirror_test(spec: Document) -> Document:
    return mirror_test(**spec)


def _rows(*rows: tuple[Document, str, str, str]) -> tuple[tuple[Document, str, str, str], ...]:
    return rows


def _mounted(*mounts: Document) -> Document:
    return {"volumes": [_VOLUME], "volumeMounts": [{"name": "v", **one} for one in mounts]}


_IMAGES: tuple[tuple[Callable[[Document], Document], str], ...] = (
    (_drivers, "spec.drivers"),
    (lambda spark: mirror_test(spark=spark), "spec.spark"),
)

BAD = [
    # Rules about one value, with our sentences.
    *(
        Bad(source(alias=alias), "spec.source.alias", NEEDS_LABEL)
        for alias in ("East", "east_1", "-east", "east-", "a.b", "ö", "")
    ),
    *(
        Bad(source(bootstrapServers=servers), "spec.source.bootstrapServers", NEEDS_SERVERS)
        for servers in (
            "",
            "east",
            "east:",
            ":1",
            "a:0",
            "a:65536",
            "a:1,",
            "a:1,,b:2",
            "ssl://a:1",
        )
    ),
    *(
        Bad(
            flow(onRecordError={"action": "DeadLetter", "deadLetterTopic": topic}),
            "spec.onRecordError.deadLetterTopic",
            NEEDS_TOPIC,
        )
        for topic in ("", ".", "..", "a b", "ö", "a/b")
    ),
    *(
        Bad(
            flow(target=WEST | {"replicationFactor": n}),
            "spec.target.replicationFactor",
            f"should be {bound}",
            ours=ours,
        )
        for n, bound, ours in (
            (0, "greater than or equal to 1", "must be at least 1"),
            (-1, "greater than or equal to 1", "must be at least 1"),
            (32768, "less than or equal to 32767", "must be at most 32767"),
        )
    ),
    Bad(
        flow(replicationPolicy={"type": "a b"}),
        "spec.replicationPolicy.type",
        "must be Default, Identity, RenameMap or a plug-in's name",
    ),
    Bad(
        flow(replicationPolicy={"separator": "/"}),
        "spec.replicationPolicy.separator",
        "must be legal in a topic's name: letters, digits, '.', '_', '-'",
    ),
    Bad(
        flow(tasks={"assignor": "-"}),
        "spec.tasks.assignor",
        "must be an assignor's name, like sticky",
    ),
    Bad(
        source(tls={"trustedCertificates": [{"secretName": "A", "key": "ca.crt"}]}),
        "spec.source.tls.trustedCertificates[0].secretName",
        "must be a name as Kubernetes takes it: a-z, 0-9, '-' and '.', "
        "a letter or digit at both ends",
    ),
    Bad(
        source(tls={"trustedCertificates": [{"secretName": "a", "key": "a/b"}]}),
        "spec.source.tls.trustedCertificates[0].key",
        "must be a Secret's key: letters, digits, '-', '_', '.'",
    ),
    *(
        Bad(mirror_test_of_another(targetTopic=template), "spec.targetTopic", NEEDS_TEMPLATE)
        for template in ("", "orders", "{source}", "{topic", "{topic}.{cluster}", "{{topic}}")
    ),
    Bad(
        mirror_test(schedule="hourly"),
        "spec.schedule",
        "must be a cron schedule of five fields, like 0 * * * *",
    ),
    # Between fields.
    Bad(
        flow(target=WEST | {"alias": "east"}),
        "spec.target.alias",
        "must differ from spec.source.alias",
    ),
    Bad(
        flow(target=WEST | {"bootstrapServers": " EAST:9092"}),
        "spec.target.bootstrapServers",
        OTHER_BROKERS,
    ),
    Bad(
        flow(startFrom={"mode": "Timestamp"}),
        "spec.startFrom.timestamp",
        "is required with mode: Timestamp",
    ),
    Bad(
        flow(startFrom={"timestamp": "2026-01-31T12:00:00Z"}),
        "spec.startFrom.timestamp",
        "goes with mode: Timestamp only",
    ),
    Bad(
        flow(replicationPolicy={"type": "RenameMap"}),
        "spec.replicationPolicy.renames",
        "is required with type: RenameMap",
    ),
    Bad(
        flow(replicationPolicy={"renames": {"orders": "sales"}}),
        "spec.replicationPolicy.renames",
        "goes with type: RenameMap only",
    ),
    Bad(
        flow(onRecordError={"action": "DeadLetter"}),
        "spec.onRecordError.deadLetterTopic",
        "is required with action: DeadLetter",
    ),
    Bad(
        flow(onRecordError={"action": "Skip", "deadLetterTopic": "dead"}),
        "spec.onRecordError.deadLetterTopic",
        "goes with action: DeadLetter only",
    ),
    *(
        Bad(
            source(authentication={"type": "ScramSha512", **given}),
            f"spec.source.authentication.{absent}",
            NEEDS_PASSWORD,
        )
        for absent, given in (("username", {"password": USER}), ("password", {"username": "a"}))
    ),
    Bad(
        source(authentication={"type": "OAuthBearer"}),
        "spec.source.authentication.oauth",
        "is required with type: OAuthBearer",
    ),
    Bad(
        source(authentication={"type": "Plain", "username": "a", "password": USER, "oauth": OAUTH}),
        "spec.source.authentication.oauth",
        "is used with type: OAuthBearer only",
    ),
    *(
        Bad(
            source(authentication={"type": "OAuthBearer", "oauth": OAUTH, **more}),
            f"spec.source.authentication.{next(iter(more))}",
            "is not used with type: OAuthBearer, which takes oauth",
        )
        for more in ({"username": "a"}, {"password": USER})
    ),
    *(
        Bad(
            source(authentication={"type": "OAuthBearer", "oauth": OAUTH | oauth}),
            f"spec.source.authentication.oauth.{next(iter(oauth))}",
            sentence,
        )
        for oauth, sentence in (
            (
                {"tokenEndpoint": "idp.example/token"},
                "must be a URL that begins with https:// or http://",
            ),
            ({"scope": "a\nb"}, "must be printable ASCII"),
            (
                {"extensions": {"auth": "a"}},
                "must have names of letters (a-z, A-Z), other than auth",
            ),
        )
    ),
    *(
        Bad(source(config={setting: "1"}), "spec.source.config", f"cannot be set here: {why}")
        for setting, why in (OWNED | {"ssl.ca": "use tls", "sasl.x": "use authentication"}).items()
    ),
    Bad(
        source(config={"fetch.max.byte": "1"}),
        "spec.source.config",
        "supports only client.id, client.rack, ",
        ours="is not supported; did you mean fetch.max.bytes?",
    ),
    Bad(
        source(config={"error_cb": "1"}),
        "spec.source.config",
        "cannot be set here: it runs code in a driver",
    ),
    *(
        Bad(
            mirror_test_of_another(**{cluster: None}),
            f"spec.{cluster}",
            "is required where there is no flowName",
        )
        for cluster in ("source", "target")
    ),
    *(
        Bad(
            mirror_test(**{cluster: EAST}),
            f"spec.{cluster}",
            "must be left out beside flowName: the flow has it",
        )
        for cluster in ("source", "target")
    ),
    Bad(
        mirror_test(targetTopic="{topic}"),
        "spec.targetTopic",
        "must be left out beside flowName: the flow's policy has it",
    ),
    Bad(
        mirror_test_of_another(target=EAST | {"bootstrapServers": "west:9092"}),
        "spec.target.alias",
        "must differ from spec.source.alias",
    ),
    Bad(
        mirror_test_of_another(target=EAST | {"alias": "west"}),
        "spec.target.bootstrapServers",
        OTHER_BROKERS,
    ),
    Bad(
        mirror_test_of_another(chaos=[HALF]),
        "spec.chaos",
        "needs flowName: headrace breaks only flows of its own",
    ),
    Bad(
        mirror_test_of_another(budgets={"unequalOffsets": 0}, partitioning="ByKey"),
        "spec.budgets.unequalOffsets",
        "needs partitioning: Preserved: an offset is one of a partition",
    ),
    Bad(
        mirror_test_of_another(rehearsal={"groups": 3}),
        "spec.rehearsal",
        "needs flowName: headrace fails over only flows of its own",
    ),
    Bad(
        mirror_test(rehearsal={"groups": 3}, load={"durationSeconds": 0}),
        "spec.rehearsal",
        "needs a load that ends: the flow is failed over behind it",
    ),
    Bad(
        mirror_test_of_another(audit={}),
        "spec.audit.topics",
        "is required where there is no flowName",
    ),
    *(
        Bad(mirror_test(audit={}, **{field: value}), f"spec.{field}", BESIDE_AUDIT)
        for field, value in (("load", {"messages": 5}), ("rehearsal", {}))
    ),
    Bad(
        mirror_test(audit={"recheck": "Full"}),
        "spec.audit.recheck",
        "Full goes with startFrom.mode: LastAudit only",
    ),
    Bad(
        mirror_test(audit={"startFrom": {"mode": "LastAudit"}}, partitioning="Any"),
        "spec.audit.startFrom.mode",
        "LastAudit goes with partitioning: Preserved only",
    ),
    *(
        Bad(
            mirror_test(audit={"schemas": {"url": "https://registry", "authentication": login}}),
            f"spec.audit.schemas.authentication.{field}",
            sentence,
        )
        for login, field, sentence in (
            ({"type": "Basic"} | PASSWORD, "username", "is required with type: Basic"),
            ({"type": "Basic", "username": "u"}, "password", "is required with type: Basic"),
            ({"type": "Bearer"}, "token", "is required with type: Bearer"),
            (
                {"type": "Bearer", "username": "u"} | TOKEN,
                "username",
                "is used with type: Basic only",
            ),
            (BY_PASSWORD | TOKEN, "token", "is used with type: Bearer only"),
            (
                BY_PASSWORD | {"usernameFrom": {"secretName": "login"}},
                "usernameFrom",
                "must not be set beside username",
            ),
        )
    ),
    Bad(
        mirror_test(audit={}, budgets={"latencyP99Ms": 5}),
        "spec.budgets.latencyP99Ms",
        BESIDE_AUDIT,
    ),
    Bad(mirror_test(chaos=[{"action": "KillDriver"}]), "spec.chaos[0]", EITHER),
    Bad(mirror_test(chaos=[HALF | AT_9_S]), "spec.chaos[0]", EITHER),
    Bad(
        mirror_test(chaos=[HALF | {"action": "ScaleDrivers"}]),
        "spec.chaos[0].drivers",
        "is required with action: ScaleDrivers",
    ),
    Bad(
        mirror_test(chaos=[HALF | {"drivers": 2}]),
        "spec.chaos[0].drivers",
        "is for action: ScaleDrivers only",
    ),
    Bad(
        mirror_test(chaos=[HALF | {"action": "StopBroker"}]),
        "spec.chaos[0].cluster",
        "is required with action: KillBroker, StopBroker and StartBroker",
    ),
    *(
        Bad(
            mirror_test(chaos=[HALF | {field: value}]),
            f"spec.chaos[0].{field}",
            "is for action: KillBroker, StopBroker and StartBroker only",
        )
        for field, value in (("cluster", "Source"), ("broker", 2))
    ),
    Bad(
        mirror_test(chaos=[HALF | {"action": "RunCommand"}]),
        "spec.chaos[0].command",
        "is required with action: RunCommand",
    ),
    Bad(
        mirror_test(chaos=[HALF | {"command": ["true"]}]),
        "spec.chaos[0].command",
        "is for action: RunCommand only",
    ),
    Bad(
        mirror_test_of_another(chaos=[HALF | {"action": "PauseFlow", "seconds": 9}]),
        "spec.chaos",
        "needs flowName: headrace breaks only flows of its own",
    ),
    Bad(
        mirror_test_of_another(chaos=[HALF | {"action": "AddTopic"}]),
        "spec.chaos",
        "AddTopic needs load.durationSeconds: a number of messages is shared out beforehand",
        ours="needs load.durationSeconds: a number of messages is shared out beforehand",
    ),
    Bad(
        mirror_test_of_another(
            chaos=[HALF | {"action": "AddPartitions", "partitions": 2}], partitioning="ByKey"
        ),
        "spec.chaos",
        "AddPartitions needs partitioning: Preserved or Any; more partitions move keys, and the "
        "test could not say which partition is right",
        ours="the test could not say which partition is right",
    ),
    *(
        Bad(
            mirror_test(chaos=[HALF, AT_9_S, earlier]),
            "spec.chaos",
            f"must be in the order of time: an {at} is before one above it",
            ours="above it",
        )
        for at, earlier in (
            ("atPercent", HALF | {"atPercent": 40}),
            ("atSeconds", AT_9_S | {"atSeconds": 8}),
        )
    ),
    Bad(
        mirror_test(chaos=[HALF], load={"durationSeconds": 60}),
        "spec.chaos",
        "needs load.messages to be a part of; beside durationSeconds use atSeconds",
    ),
    Bad(
        mirror_test(chaos=[AT_9_S], load={"durationSeconds": 8}),
        "spec.chaos",
        "must not be after the end of the load, at load.durationSeconds, or of a window",
        ours="must not be after the end of the load, at 8",
    ),
    Bad(
        mirror_test(chaos=[AT_9_S | {"atSeconds": 601}], load={"durationSeconds": 0}),
        "spec.chaos",
        "must not be after the end of the load, at load.durationSeconds, or of a window",
        ours="must not be after the end of a window, at 600",
    ),
    Bad(
        mirror_test(chaos=[AT_9_S | {"action": "AddTopic"}], load={"durationSeconds": 0}),
        "spec.chaos",
        "AddTopic or AddPartitions needs a load that ends",
        ours="needs a load that ends: topics and partitions would be added without end",
    ),
    Bad(
        mirror_test(schedule="@daily", load={"durationSeconds": 0}),
        "spec.schedule",
        "needs a load that ends: leave it out beside load.durationSeconds: 0",
    ),
    Bad(
        mirror_test(spark={"driver": {"resources": {"requests": {"memory": "2Gi"}}}}),
        "spec.spark.driver.resources.requests",
        "must be as limits.memory: the JVM's heap is made for one size",
    ),
    Bad(
        mirror_test(load={"topics": 3, "names": ["a"]}),
        "spec.load.topics",
        "must be left out when names are given, and only then",
    ),
    Bad(
        mirror_test(load={"messages": 9, "durationSeconds": 60}),
        "spec.load.messages",
        "must be left out when durationSeconds is given, and only then",
    ),
    Bad(
        mirror_test("x" * 44, schedule="@daily"),
        "spec.schedule",
        "needs a metadata.name of at most 43 characters: runs are named after it and the time",
    ),
    *(
        Bad(
            flow(topics={"include": ["orders", regex]}),
            "spec.topics.include[1]",
            "must be a regular expression",
            ours=f"must be a regular expression: {why}",
        )
        for regex, why in (
            ("a(b", "missing ), unterminated subpattern at position 1"),
            ("*", "nothing to repeat at position 0"),
            (r"a\.[b", "unterminated character set at position 3"),
        )
    ),
    # In Kubernetes' own words.
    *(
        Bad(
            make("x" * 53),
            "metadata.name",
            "may not be more than 52 bytes",
            ours="must have at most 52 characters: what belongs to it is named after it",
        )
        for make in (flow, mirror_test)
    ),
    Bad(
        mirror_test(load={"names": ["a", "b", "a"]}),
        "spec.load.names",
        'Duplicate value: "a"',
        ours="must not name a twice",
    ),
    Bad(
        flow(delivery={"mode": "Once"}),
        "spec.delivery.mode",
        'supported values: "AtLeastOnce", "ExactlyOnce"',
        ours="must be AtLeastOnce or ExactlyOnce",
    ),
    Bad(
        flow(tasks={"max": 0}),
        "spec.tasks.max",
        "should be greater than or equal to 1",
        ours="must be at least 1",
    ),
    Bad(
        flow(drivers={"replicas": 1001}),
        "spec.drivers.replicas",
        "should be less than or equal to 1000",
        ours="must be at most 1000",
    ),
    Bad(
        flow(topics={}),
        "spec.topics.include",
        "Required value",
        ours="is required",
    ),
    Bad(
        flow(topics={"include": []}),
        "spec.topics.include",
        "should have at least 1 items",
        ours="must not be empty",
    ),
    *(
        Bad(
            flow(target=WEST | {"compression": compression}),
            "spec.target.compression.level",
            allowed,
        )
        for compression, allowed in [
            ({"type": "Gzip", "level": 10}, "must be at most 9 with type Gzip"),
            ({"type": "Lz4", "level": 13}, "must be at most 12 with type Lz4"),
            ({"type": "Zstd", "level": 23}, "must be at most 22 with type Zstd"),
            (
                {"type": "None", "level": 1},
                "is allowed only with type Gzip, Lz4 or Zstd: the other types have no levels",
            ),
            (
                {"level": 1},
                "is allowed only with type Gzip, Lz4 or Zstd: the other types have no levels",
            ),
        ]
    ),
    Bad(
        preserving({"target": WEST | {"compression": {"type": "Lz4"}}}),
        "spec.target.compression.type",
        "must not be None or Gzip or Snappy or Lz4 or Zstd with offsets.mode: Preserved: batches "
        "are appended as the source has them",
    ),
    Bad(
        preserving({"headers": {"remove": ["trace"]}}),
        "spec.headers",
        "does not go with offsets.mode: Preserved: a take-over compares the target's records with "
        "the source's",
    ),
    Bad(
        flow(headers={"remove": ["a" * 256]}),
        "spec.headers.remove[0]",
        "Too long: may not be more than 255",
        ours="must have at most 255 characters",
    ),
    *(
        Bad(
            preserving({field: {inner: value} if inner else value}),
            f"spec.{field}.{inner}" if inner else f"spec.{field}",
            f"must not be {words} with offsets.mode: Preserved: {why}",
        )
        for field, inner, value, words, why in [
            (
                "delivery",
                "mode",
                "ExactlyOnce",
                "ExactlyOnce",
                "the markers of its transactions take offsets; nothing is doubled with AtLeastOnce "
                "either",
            ),
            ("onRecordError", "action", "Skip", "Skip or DeadLetter", LEFT_OUT),
            (
                "onDataLoss",
                "",
                "Continue",
                "Restart or Continue",
                "both leave the target with other offsets than the source",
            ),
            (
                "startFrom",
                "mode",
                "Latest",
                "Latest or Timestamp or Offsets",
                "copies begin with the first offset that the source has",
            ),
        ]
    ),
    Bad(
        flow(
            offsets={"mode": "Preserved"}, recordFilter={"headers": {"exclude": [{"name": "test"}]}}
        ),
        "spec.recordFilter",
        f"does not go with offsets.mode: Preserved: {LEFT_OUT}",
    ),
    Bad(
        flow(batchVerification=False),  # YAML takes Off for it
        "spec.batchVerification",
        'must be of type string: "boolean"',
        ours="must be Disabled, Sampled or Full",
    ),
    Bad(
        source(config={"client.id": True}),
        "spec.source.config",
        "must be of type integer,string",
        ours="must be text or a whole number: put it in quotes",
    ),
    Bad(
        flow(drivers={"resources": {"requests": {"cpu": "two"}}}),
        "spec.drivers.resources.requests.cpu",
        "should match",
        ours="must be a quantity as Kubernetes writes it, like 500m, 2 or 1Gi",
    ),
    *(
        Bad(
            document({"resources": {"requests": {name: more}, "limits": {name: less}}}),
            f"{field}.resources.requests",
            f"{name} must not be above the limit",
        )
        for document, field in RESOURCES_OF_PODS
        for name, more, less in (("cpu", 2, "500m"), ("cpu", "2001m", "2"))
    ),
    Bad(
        flow(drivers={"resources": {"requests": {"memory": "1.5Gi"}, "limits": {"memory": "1G"}}}),
        "spec.drivers.resources.requests",
        "memory must not be above the limit",
    ),
    *(
        Bad(
            mirror_test(spark={"driver": {"resources": {"limits": {"memory": amount}}}}),
            "spec.spark.driver.resources.limits",
            "must be at least 1Gi: 512Mi are for Python, the rest is the JVM's",
        )
        for amount in (100, "512Mi", "1G")
    ),
    *(
        Bad(
            flow(drivers={"resources": {part: {"memory": amount}}}),
            f"spec.drivers.resources.{part}",
            "memory must be at least 1Mi: a number without a unit is a number of bytes",
        )
        for part in ("requests", "limits")
        for amount in (100, "512", "900k")
    ),
    *(
        Bad(
            document({"metadata": {"labels": {"team": "a", label: "mine"}}}),
            f"{field}.podTemplate.metadata.labels",
            "must not have a label of headrace's own",
            ours="pod-template-hash",
        )
        for document, field in POD_TEMPLATES
        for label in (
            "headrace.dev/flow",
            "headrace.dev/stage",
            "app.kubernetes.io/component",
            "pod-template-hash",
        )
    ),
    *(
        Bad(
            flow(drivers={"podTemplate": {"tolerations": [toleration]}}),
            f"spec.drivers.podTemplate.tolerations[0].{field}",
            sentence,
            ours=ours,
        )
        for toleration, field, sentence, ours in (
            (
                {"key": "a", "operator": "In"},
                "operator",
                "Unsupported value",
                "must be Equal or Exists",
            ),
            (
                {"key": "a", "operator": "Exists", "value": "b"},
                "value",
                "must be left out beside the operator Exists",
                "",
            ),
            (
                {"operator": "Equal", "value": "b"},
                "key",
                "is required unless the operator is Exists",
                "",
            ),
            ({"effect": "NoSchedule"}, "key", "is required unless the operator is Exists", ""),
            (
                {"key": "a", "effect": "NoSchedule", "tolerationSeconds": 3},
                "tolerationSeconds",
                "needs the effect NoExecute",
                "",
            ),
        )
    ),
    *(
        Bad(
            mirror_test(**{field: value}),
            f"spec.{field}",
            "needs schedule: without one it has no effect",
        )
        for field, value in (
            ("timeZone", "Europe/Berlin"),
            ("startingDeadlineSeconds", 60),
            ("concurrencyPolicy", "Replace"),
        )
    ),
    *(
        Bad(
            mirror_test(suspend=True, **load),
            "spec.suspend",
            "needs schedule or load.durationSeconds: 0: without one it has no effect",
        )
        for load in ({}, {"load": {"messages": 5}}, {"load": {"durationSeconds": 60}})
    ),
    *(
        Bad(
            flow(pausedPartitions=[{"topic": "orders", "partitions": partitions}]),
            "spec.pausedPartitions[0].partitions",
            "should match",
            ours='must be partition numbers like "0-3,7"',
        )
        for partitions in ("", "a", "1-", "0,,1", "1000000")
    ),
    *(
        Bad(
            flow(startFrom={"mode": "Timestamp", "timestamp": moment}),
            "spec.startFrom.timestamp",
            "must be of type date-time",
            ours="must be a moment in RFC 3339, like 2026-01-31T12:00:00Z",
        )
        for moment in ("2026-01-31", "2026-01-31T12:00:00", "2026-02-31T12:00:00Z")
    ),
    # Numbers, choices and lengths, in Kubernetes' own words.
    *(
        Bad(make(spec), f"spec.{field}", sentence, ours=ours)
        for make, spec, field, sentence, ours in (
            (_drivers, {"replicas": -1}, "drivers.replicas", _AT_LEAST.format(0), _LEAST.format(0)),
            (_drivers, {"replicas": 1.5}, "drivers.replicas", _INTEGER, _WHOLE),
            (_drivers, {"replicas": "2"}, "drivers.replicas", _INTEGER, _WHOLE),
            (_drivers, {"leaseSeconds": "6s"}, "drivers.leaseSeconds", _INTEGER, _WHOLE),
            (_drivers, {"logLevel": "debug"}, "drivers.logLevel", _CHOICE, "did you mean DEBUG?"),
            (_drivers, {"logFormat": "JSON"}, "drivers.logFormat", _CHOICE, "did you mean json?"),
            (_flow, {"state": "paused"}, "state", _CHOICE, "did you mean Paused?"),
            (_flow, {"onDataLoss": "restart"}, "onDataLoss", _CHOICE, "did you mean Restart?"),
            (_flow, {"tasks": {"max": -3}}, "tasks.max", _AT_LEAST.format(1), _LEAST.format(1)),
            (
                _flow,
                {"tasks": {"standbys": -1}},
                "tasks.standbys",
                _AT_LEAST.format(0),
                _LEAST.format(0),
            ),
            (
                _flow,
                {"tasks": {"movementBudget": 1.5}},
                "tasks.movementBudget",
                _AT_MOST.format(1),
                "must be at most 1",
            ),
            (
                _flow,
                {"bandwidth": {"bytesPerSecond": "10M"}},
                "bandwidth.bytesPerSecond",
                _INTEGER,
                _WHOLE,
            ),
            (
                _flow,
                {"bandwidth": {"bytesPerSecond": 10}},
                "bandwidth.bytesPerSecond",
                _AT_LEAST.format(1024),
                _LEAST.format(1024),
            ),
            (
                _flow,
                {"checkpoints": {"intervalSeconds": "1m"}},
                "checkpoints.intervalSeconds",
                _INTEGER,
                _WHOLE,
            ),
            (
                _flow,
                {"acls": {"enabled": "yes"}},
                "acls.enabled",
                "must be of type boolean",
                "must be true or false",
            ),
            (
                _mirror_test,
                {"partitioning": "bykey"},
                "partitioning",
                _CHOICE,
                "did you mean ByKey?",
            ),
            (
                _mirror_test,
                {"load": {"producers": 1001}},
                "load.producers",
                _AT_MOST.format(1000),
                "must be at most 1000",
            ),
            (
                _mirror_test,
                {"load": {"messageSizeBytes": "1k"}},
                "load.messageSizeBytes",
                _INTEGER,
                _WHOLE,
            ),
            (
                _mirror_test,
                {"load": {"messages": -5}},
                "load.messages",
                _AT_LEAST.format(1),
                _LEAST.format(1),
            ),
            (
                _mirror_test,
                {"budgets": {"missing": -1}},
                "budgets.missing",
                _AT_LEAST.format(0),
                _LEAST.format(0),
            ),
            (_mirror_test, {"settleSeconds": "2m"}, "settleSeconds", _INTEGER, _WHOLE),
        )
    ),
    # Values that Kubernetes would refuse in a pod.
    *(
        Bad(document({field: value}), f"{at}.{blamed or field}", sentence, ours=ours)
        for document, at in _IMAGES
        for field, value, blamed, sentence, ours in (
            ("image", "", "", "should be at least 1 chars", "must not be empty"),
            ("image", "a b", "", _PATTERN, "must be the name of an image, without spaces"),
        )
    ),
    *(
        Bad(document(pods), f"{at}.podTemplate.{field}", sentence, ours=ours)
        for document, at in POD_TEMPLATES
        for pods, field, sentence, ours in _rows(
            ({"metadata": {"labels": {"a": "b c"}}}, "metadata.labels", _PATTERN, _LABEL_VALUE),
            (
                {"metadata": {"labels": {"a": "b" * 64}}},
                "metadata.labels",
                "may not be more than 63",
                "at most 63 characters",
            ),
            ({"nodeSelector": {"a": "b c"}}, "nodeSelector", _PATTERN, _LABEL_VALUE),
            (
                {"tolerations": [{"key": "a b", "operator": "Exists"}]},
                "tolerations[0].key",
                _PATTERN,
                "before a '/'",
            ),
            (
                {"tolerations": [{"key": "a", "value": "b c"}]},
                "tolerations[0].value",
                _PATTERN,
                _LABEL_VALUE,
            ),
            (
                {"topologySpreadConstraints": [_SPREAD, _SPREAD]},
                "topologySpreadConstraints",
                "Duplicate value",
                "must not name zone, DoNotSchedule twice",
            ),
            (
                {"topologySpreadConstraints": [_SPREAD | {"topologyKey": "a b"}]},
                "topologySpreadConstraints[0].topologyKey",
                _PATTERN,
                "before a '/'",
            ),
            (
                {"topologySpreadConstraints": [_SPREAD | {"maxSkew": 0}]},
                "topologySpreadConstraints[0].maxSkew",
                _AT_LEAST.format(1),
                _LEAST.format(1),
            ),
            (
                {
                    "topologySpreadConstraints": [
                        _SPREAD | {"whenUnsatisfiable": "ScheduleAnyway", "minDomains": 2}
                    ]
                },
                "topologySpreadConstraints[0].minDomains",
                "needs whenUnsatisfiable: DoNotSchedule",
                "",
            ),
            *(
                (
                    {
                        "topologySpreadConstraints": [
                            _SPREAD | {"labelSelector": {"matchExpressions": [{"key": "a", **one}]}}
                        ]
                    },
                    "topologySpreadConstraints[0].labelSelector.matchExpressions[0].values",
                    "is required with the operators In and NotIn, and only there",
                    "",
                )
                for one in ({"operator": "In"}, {"operator": "Exists", "values": ["b"]})
            ),
            (
                {"schedulerName": "my scheduler"},
                "schedulerName",
                "must be a name as Kubernetes takes it",
                "at both ends",
            ),
            (
                {"hostAliases": [{"ip": "300.1.1.1"}]},
                "hostAliases[0].ip",
                "must be an IP address",
                "",
            ),
            (
                {"hostAliases": [{"ip": "10.0.0.1", "hostnames": ["a b"]}]},
                "hostAliases[0].hostnames[0]",
                _PATTERN,
                "must be the name of a host",
            ),
            ({"dnsPolicy": "None"}, "dnsConfig", "is required with dnsPolicy: None", ""),
            (
                {"dnsPolicy": "clusterfirst"},
                "dnsPolicy",
                _CHOICE,
                "did you mean ClusterFirst?",
            ),
            (
                {"securityContext": {"runAsUser": 0}},
                "securityContext.runAsUser",
                _AT_LEAST.format(1),
                _LEAST.format(1),
            ),
            (
                {"securityContext": {"runAsUser": 2**31}},
                "securityContext.runAsUser",
                _AT_MOST.format(2147483647),
                "must be at most 2147483647",
            ),
        )
    ),
    *(
        Bad(_drivers(drivers), f"spec.drivers.{field}", sentence, ours=ours)
        for drivers, field, sentence, ours in (
            (
                {"env": [{"name": "A"}, {"name": "A"}]},
                "env",
                "Duplicate value",
                "must not name A twice",
            ),
            (
                {"env": [{"name": "A="}]},
                "env[0].name",
                _PATTERN,
                "must be printable ASCII without '='",
            ),
            (
                {"volumes": [_VOLUME, _VOLUME]},
                "volumes",
                "Duplicate value",
                "must not name v twice",
            ),
            (
                {"volumes": [{"name": "v"}]},
                "volumes[0]",
                "must have exactly one of secret, configMap",
                "persistentVolumeClaim, emptyDir",
            ),
            (
                _mounted({"mountPath": "x"}),
                "volumeMounts[0].mountPath",
                "must be an absolute path outside of",
                "which headrace mounts",
            ),
            (
                _mounted({"mountPath": "/x:y"}),
                "volumeMounts[0].mountPath",
                "must not have a ':'",
                "",
            ),
            (
                _mounted({"mountPath": "/x", "subPath": "../a"}),
                "volumeMounts[0].subPath",
                "must be a relative path without '..'",
                "",
            ),
            (
                _mounted({"mountPath": "/x"}, {"mountPath": "/x"}),
                "volumeMounts",
                "Duplicate value",
                "must not name /x twice",
            ),
            *(
                (
                    {"podDisruptionBudget": {field: -1}},
                    f"podDisruptionBudget.{field}",
                    "must be a number of pods, or a share such as 25%",
                    "",
                )
                for field in ("maxUnavailable", "minAvailable")
            ),
            *(
                (
                    {"resources": {part: {"cpu": -1}}},
                    f"resources.{part}",
                    "must be a quantity as Kubernetes writes it, like 500m, 2 or 1Gi",
                    "",
                )
                for part in ("requests", "limits")
            ),
            (
                {"podDisruptionBudget": {"maxUnavailable": "150%"}},
                "podDisruptionBudget.maxUnavailable",
                _PATTERN,
                "must be a number of pods, or a share such as 25%",
            ),
            (
                {"resources": {"limits": {"memory": "1GB"}}},
                "resources.limits.memory",
                _PATTERN,
                "like 500m, 2 or 1Gi",
            ),
            (
                {"resources": {"requests": {"cpu": "-1"}}},
                "resources.requests.cpu",
                _PATTERN,
                "like 500m, 2 or 1Gi",
            ),
        )
    ),
    *(
        Bad(
            mirror_test(spark={"driver": {"resources": {part: {"cpu": -1}}}}),
            f"spec.spark.driver.resources.{part}.cpu",
            "must be a quantity as Kubernetes writes it, like 500m, 2 or 1Gi",
        )
        for part in ("requests", "limits")
    ),
    # Lists that name something twice, and choices in other letters.
    Bad(
        flow(headers={"remove": ["a", "a"]}),
        "spec.headers.remove",
        "Duplicate value",
        ours="must not name a twice",
    ),
    Bad(
        flow(headers={"add": [{"name": "a", "value": "1"}, {"name": "a", "value": "2"}]}),
        "spec.headers.add",
        "Duplicate value",
        ours="must not name a twice",
    ),
    *(
        Bad(
            flow(replicationPolicy={"type": type}),
            "spec.replicationPolicy.type",
            "must be spelled Default, Identity or RenameMap",
        )
        for type in ("identity", "DEFAULT")
    ),
    Bad(
        flow(topics={"include": [""]}),
        "spec.topics.include[0]",
        "should be at least 1 chars",
        ours="must not be empty",
    ),
    *(
        Bad(
            mirror_test(schedule=schedule),
            "spec.schedule",
            "must be a cron schedule of five fields, like 0 * * * *",
        )
        for schedule in (
            "61 * * * *",
            "0 24 * * *",
            "0 0 * * MONDAY",
            "*/0 * * * *",
            "H * * * *",
            "0 0 0 * * *",
            "@reboot",
        )
    ),
    *(
        Bad(
            mirror_test(schedule="@daily", timeZone=zone),
            "spec.timeZone",
            "must be the name of a time zone, like Europe/Berlin or Etc/UTC",
        )
        for zone in ("", "+02:00", "../etc/passwd")
    ),
    Bad(
        mirror_test(chaos=[HALF | {"action": "KillPod", "selector": {"a": "b c"}}]),
        "spec.chaos[0].selector",
        _PATTERN,
        ours=_LABEL_VALUE,
    ),
    Bad(
        mirror_test(chaos=[HALF | {"action": "RunCommand", "command": [""]}]),
        "spec.chaos[0].command",
        "must begin with the name of a program",
    ),
    # Fields without the effect that their user expects.
    *(
        Bad(
            pods({"resources": {"limits": {name: "0"}}}),
            f"{at}.resources.limits",
            f"{name} must be above 0: leave it out for no limit",
        )
        for pods, at in RESOURCES_OF_PODS
        for name in (("cpu", "ephemeral-storage") if at == "spec.drivers" else ("cpu",))
    ),
    Bad(
        _drivers({"resources": {"requests": {"ephemeral-storage": -1}}}),
        "spec.drivers.resources.requests",
        _A_QUANTITY,
    ),
    *(
        Bad(
            make({"startFrom": {"mode": "Timestamp", "timestamp": time}}),
            f"{at}.startFrom.timestamp",
            "must be in the years 1970 to 2099",
        )
        for make, at in ((_flow, "spec"), (lambda audit: mirror_test(audit=audit), "spec.audit"))
        for time in ("9999-01-01T00:00:00Z", "1969-12-31T23:59:59.999Z", "2100-01-01T00:00:00Z")
    ),
    Bad(
        flow(
            recordFilter={
                "headers": {
                    "include": [{"name": "a", "value": "b"}, {"name": "a"}],
                    "exclude": [{"name": "b"}, {"name": "a"}],
                }
            }
        ),
        "spec.recordFilter.headers.exclude",
        "must not be in include as well: no record with that header would be copied",
    ),
    Bad(
        mirror_test(flowName="x" * 53),
        "spec.flowName",
        "may not be more than 52 bytes",
        ours="must have at most 52 characters",
    ),
    *(
        Bad(
            mirror_test(load=load),
            "spec.load.windowSeconds",
            "needs durationSeconds: 0: another load has no windows",
        )
        for load in ({"windowSeconds": 60}, {"windowSeconds": 60, "durationSeconds": 60})
    ),
    *(
        Bad(
            mirror_test(budgets={field: 3}),
            f"spec.budgets.{field}",
            "needs rehearsal: only consumer groups that fail over are judged",
        )
        for field in ("rereadPerGroup", "skipped")
    ),
    *(
        Bad(
            mirror_test(budgets={"recoverySeconds": 3}, **without),
            "spec.budgets.recoverySeconds",
            "needs chaos: only a recovery from a fault has a time",
        )
        for without in _NO_STEPS
    ),
    *(
        Bad(
            mirror_test(**{field: 5}),
            f"spec.{field}",
            "needs schedule or load.durationSeconds: 0: without one it has no effect",
        )
        for field in ("successfulTestsHistoryLimit", "failedTestsHistoryLimit")
    ),
    *(
        Bad(
            make({"dnsPolicy": "None", "dnsConfig": config}),
            f"{at}.podTemplate.dnsConfig.nameservers",
            "is required with dnsPolicy: None",
        )
        for make, at in POD_TEMPLATES
        for config in ({}, {"searches": ["a"]})
    ),
    *(
        Bad(_drivers({"volumes": [{"name": "v"} | kind]}), f"spec.drivers.volumes[0].{at}", *say)
        for kind, at, *say in (
            ({"secret": {}}, "secret.secretName", "Required value", "is required"),
            ({"configMap": {"items": []}}, "configMap.name", "Required value", "is required"),
            ({"emptyDir": {"sizeLimit": "lots"}}, "emptyDir.sizeLimit", _PATTERN, _A_QUANTITY),
            ({"emptyDir": {"sizeLimit": -1}}, "emptyDir.sizeLimit", _A_QUANTITY),
            ({"emptyDir": {"medium": "memory"}}, "emptyDir.medium", _CHOICE, _MEDIA),
            (
                {"persistentVolumeClaim": {"claimName": "A"}},
                "persistentVolumeClaim.claimName",
                "must be a name as Kubernetes takes it: a-z, 0-9, '-' and '.', a letter or digit "
                "at both ends",
            ),
            (
                {"secret": {"secretName": "a", "defaultMode": 644}},
                "secret.defaultMode",
                _AT_MOST.format(511),
                "must be at most 511",
            ),
        )
    ),
]
"""Manifests that `headrace validate` and the API server refuse."""

OF_THE_OPERATOR = [
    flow(topics={"include": ["(?P<a"]}),
    flow(pausedPartitions=[{"topic": "orders", "partitions": "3-0"}]),
    flow(pausedPartitions=[{"topic": "orders", "partitions": "0-3,9-7"}]),
    flow(
        replicationPolicy={"type": "RenameMap", "renames": {"a": "x", "b": "x"}},
        topics={"include": ["a", "b"]},
    ),
    flow(
        replicationPolicy={"type": "RenameMap", "renames": {"a": "b"}},
        topics={"include": ["a", "b"]},
    ),
    mirror_test(schedule="0 * * * *", timeZone="Berlin"),
    mirror_test(schedule="0 * * * *", timeZone="Europe/Atlantis"),
    flow(
        drivers={
            "resources": {
                "requests": {"ephemeral-storage": "2Gi"},
                "limits": {"ephemeral-storage": "1Gi"},
            }
        }
    ),
    source(authentication={"type": "OAuthBearer", "oauth": OAUTH | {"extensions": {"a-b": "c"}}}),
    flow(
        source=EAST | {"bootstrapServers": "a:1,b:2"},
        target=WEST | {"bootstrapServers": "b:2,a:1"},
    ),
    flow(replicationPolicy={"type": "RenameMap", "renames": {"a b": "c"}}),
    flow(drivers={"resources": {"limits": {"memroy": "1Gi"}}}),
    flow(drivers={"serviceAccount": {"annotations": {"a b": "c"}}}),
    *(
        document({"metadata": {entries: {"a b": "c"}}})
        for document, _ in POD_TEMPLATES
        for entries in ("labels", "annotations")
    ),
    flow(drivers={"podTemplate": {"nodeSelector": {"a b": "c"}}}),
    mirror_test(chaos=[HALF | {"action": "KillPod", "selector": {"a b": "c"}}]),
    mirror_test(schedule="0 0 30 2 *"),
    mirror_test(schedule="0 0 31 4,6 *"),
    *(
        mirror_test(schedule=schedule)
        for schedule in ("0 5-3 * * *", "50-10/5 * * * *", "0 0 * NOV-FEB *", "0 0 * * fri-mon")
    ),
    *(
        flow(pausedPartitions=[{"topic": "orders", "partitions": partitions}])
        for partitions in ("0-3,2", "7, 7", "0-3,2-5")
    ),
    source(bootstrapServers="a:1, A:1"),
    mirror_test_of_another(target=WEST | {"bootstrapServers": "a:1,b:2,a:1"}),
    *(
        flow(onRecordError={"action": "DeadLetter", "deadLetterTopic": topic}, **more)
        for topic, more in (
            ("east.orders", {}),
            ("east.a.b", {"topics": {"include": ["c", r"a\.b"]}}),
            ("orders", {"replicationPolicy": {"type": "Identity"}}),
            (
                "b",
                {
                    "replicationPolicy": {"type": "RenameMap", "renames": {"a": "c"}},
                    "topics": {"include": ["a", "b"]},
                },
            ),
            ("heartbeats", {}),
            ("east.heartbeats", {}),
            ("mm2-headrace-progress.east.internal", {}),
        )
    ),
]
"""Manifests that CEL cannot judge: `headrace validate` and the operator refuse them."""
