"""Records of both clusters as DataFrames with few, small columns.

Payloads are hashed when they are read. Spark shuffles and stores about 100 bytes for each record,
regardless of the size of the messages.
"""

import json
from dataclasses import dataclass
from itertools import chain

from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from headrace.api import AuthenticationType, ClusterAccess, OAuth
from headrace.errors import InvalidSpec
from headrace.kafka import MECHANISMS, Credentials, protocol, read_credentials
from headrace_spark.messages import ADDRESS, HEADER_ID, HEADER_SENTINEL, HEADER_SEQ, HEADER_TOPIC

# TLS and SASL options of Spark's Kafka source.
#
# They contain passwords and are passed from Python to the JVM and to executors. They are not shown
# anywhere: Kafka hides them in its logs, and ``session.py`` makes Spark hide them.

_OAUTH = "org.apache.kafka.common.security.oauthbearer"

_LOGIN_MODULES = {
    AuthenticationType.PLAIN: "org.apache.kafka.common.security.plain.PlainLoginModule",
    AuthenticationType.SCRAM_SHA_256: "org.apache.kafka.common.security.scram.ScramLoginModule",
    AuthenticationType.SCRAM_SHA_512: "org.apache.kafka.common.security.scram.ScramLoginModule",
}


def security_options(cluster: ClusterAccess) -> dict[str, str]:
    """Return the security options of Spark's Kafka source.

    Raises:
        SecretMissing: A Secret or a key of it does not exist.
        InvalidSpec: The private key cannot be read.
    """
    credentials = read_credentials(cluster)
    settings = {"security.protocol": protocol(cluster)}
    login = cluster.spec.authentication
    if login is not None and login.oauth is not None:
        settings |= _token_settings(login.oauth, credentials)
    elif login is not None:
        module = _LOGIN_MODULES[login.type]
        settings |= {
            "sasl.mechanism": MECHANISMS[login.type],
            "sasl.jaas.config": (
                f"{module} required username={_quoted(credentials.username)} "
                f"password={_quoted(credentials.password)};"
            ),
        }
    if credentials.trusted:
        settings |= {
            "ssl.truststore.type": "PEM",
            "ssl.truststore.certificates": credentials.trusted,
        }
    if credentials.certificate:
        settings |= {
            "ssl.keystore.type": "PEM",
            "ssl.keystore.certificate.chain": credentials.certificate,
            "ssl.keystore.key": _pkcs8(cluster, credentials.private_key),
        }
    return {f"kafka.{name}": value for name, value in settings.items()}


def _token_settings(oauth: OAuth, credentials: Credentials) -> dict[str, str]:
    """Return the settings with which Kafka's client requests tokens (KIP-768).

    Kafka clients since 3.9.1 request tokens only from URLs that the system property
    ``org.apache.kafka.sasl.oauthbearer.allowed.urls`` allows.
    """
    options = {"clientId": oauth.client_id, "clientSecret": credentials.client_secret}
    if oauth.scope is not None:
        options["scope"] = oauth.scope
    options |= {f"extension_{name}": value for name, value in oauth.extensions.items()}
    if credentials.token_trusted:
        options["ssl.truststore.type"] = "PEM"
        options["ssl.truststore.certificates"] = credentials.token_trusted
    written = " ".join(f"{name}={_quoted(value)}" for name, value in options.items())
    return {
        "sasl.mechanism": MECHANISMS[AuthenticationType.OAUTH_BEARER],
        "sasl.oauthbearer.token.endpoint.url": oauth.token_endpoint,
        "sasl.oauthbearer.header.urlencode": "true",
        "sasl.login.callback.handler.class": f"{_OAUTH}.OAuthBearerLoginCallbackHandler",
        "sasl.jaas.config": f"{_OAUTH}.OAuthBearerLoginModule required {written};",
    }


def _quoted(text: str) -> str:
    """Return text quoted for a JAAS configuration."""
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'"{escaped}"'


def _pkcs8(cluster: ClusterAccess, key: str) -> str:
    """Return a private key in PKCS #8, the only format that Kafka's Java client reads.

    cert-manager uses another format by default. Raise ``InvalidSpec`` if the key cannot be read.
    """
    try:
        private_key = load_pem_private_key(key.encode(), password=None)
    except (ValueError, TypeError) as error:
        raise InvalidSpec(
            f"the private key of {cluster.field}.tls.clientCertificate cannot be read ({error}): "
            "it must be PEM, without a passphrase"
        ) from None
    return private_key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode()


Offsets = dict[str, tuple[int, ...]]
"""Offset of each partition, by topic."""

_CONSUMER = {
    "kafka.isolation.level": "read_committed",
    # After every poll, Spark requests the partition's offsets on the connection where the next
    # fetch already waits for records. Polls must therefore be few, and fetches must wait briefly.
    # Kafka's defaults, 500 records and 500 ms, cost half a second for each partition.
    "kafka.max.poll.records": "5000",
    "kafka.fetch.max.wait.ms": "10",
}
_HEADERS = 6  # headers to search: ours are the first four, unless the mirror adds some before them
_BODY_BYTES = 64 + 265  # id, number and timestamp, and the topic and partition
_IDS = ("id", "first")  # columns with the id from the headers and from the body
_ROW = (1 << 33) - 1
"""Bits of ``monotonically_increasing_id`` that count records. The other bits are the partition."""
_OF_ANY_RUN = "^[a-z0-9-]{1,20}-[0-9]+-[0-9]+$"
"""Pattern of the producer ids of all runs (``messages.producer_id``)."""


@dataclass(frozen=True)
class OffsetRange:
    """Offsets to read from a cluster."""

    source_names: dict[str, str]
    """Name on the source of each topic to read."""
    start: Offsets
    end: Offsets


def raw(spark: SparkSession, cluster: ClusterAccess, offset_range: OffsetRange) -> DataFrame:
    """Return the committed records of a range as Spark's Kafka source returns them.

    Reading fails if a part of the range was deleted.
    """
    return (
        spark.read.format("kafka")
        .option("kafka.bootstrap.servers", cluster.bootstrap_servers)
        .options(**_CONSUMER, **security_options(cluster))
        .option("assign", _partitions(offset_range.start))
        .option("startingOffsets", _as_json(offset_range.start))
        .option("endingOffsets", _as_json(offset_range.end))
        .option("includeHeaders", "true")
        .option("failOnDataLoss", "true")
        .load()
    )


def recognised(
    records: DataFrame, source_names: dict[str, str], run: str, since_ms: int
) -> DataFrame:
    """Select the records of a run, and records that earlier runs sent before ``since_ms``.

    All other records of Spark's Kafka source are left out. ``since_ms`` is the time in ms since
    1970. The columns are:

    - ``topic``: source topic to which the record was sent
    - ``producer``, ``seq``: identity of the record. For an end sentinel these columns contain the
      run and the source partition. A column is null if neither headers nor body have its value.
    - ``own``: true if the record belongs to this run
    - ``found_in``, ``partition``, ``offset``: position, with the topic's name on the source
    - ``key``, ``value_hash``, ``headers_hash``, ``timestamp_ms``
    - ``checksum``: CRC-32 of the value
    - ``row``: number of selected records before this one in the partition. Spark reads a partition
      in one task, in the order of the log.
    """
    names = F.create_map(*(F.lit(name) for name in chain(*source_names.items())))
    read = records.select(
        names[F.col("topic")].alias("found_in"),
        "partition",
        "offset",
        "key",
        F.xxhash64("value").alias("value_hash"),
        F.xxhash64("headers").alias("headers_hash"),
        F.unix_millis("timestamp").alias("timestamp_ms"),
        F.crc32("value").alias("checksum"),
        _header(HEADER_ID).alias("id"),
        _header(HEADER_SEQ).try_cast("bigint").alias("number"),
        _header(HEADER_SENTINEL).try_cast("bigint").alias("end"),
        _header(HEADER_TOPIC).alias("sent_to"),
        F.substring("value", 1, _BODY_BYTES).alias("body"),
    )
    return (
        read.transform(_identified, run)
        # Spark does not push a filter below a nondeterministic column. If it did, it would repeat
        # all these expressions in the filter, and the generated method would be too large for Java.
        .withColumn("read", F.monotonically_increasing_id())
        .where(F.col("own") | (F.col("producer").isNotNull() & (F.col("sent_ms") < since_ms)))
        .where("read >= 0")
        .drop("sent_ms", "read")
        .withColumn("row", F.monotonically_increasing_id().bitwiseAND(F.lit(_ROW)))
    )


def _identified(records: DataFrame, run: str) -> DataFrame:
    """Add the columns that identify each record, from its headers and its body.

    The body is parsed only if the headers do not identify the record.
    """

    def is_own(column: str) -> Column:
        return F.coalesce(F.col(column).rlike(f"^{run}(-[0-9]+-[0-9]+)?$"), F.lit(False))

    known = F.col("own_id") & (F.col("number").isNotNull() | F.col("end").isNotNull())
    text = F.when(~known, F.col("body").cast("string"))
    # The address follows the timestamp, and in a sentinel the format version.
    named = F.regexp_extract(text, f"^[^;]*;[^;]*;[0-9]+;(?:[0-9]+;)?{ADDRESS}", 1)
    body = F.split(text, ";")
    end_in_body = F.regexp_extract(F.col("second"), f"^{HEADER_SENTINEL}-([0-9]+)$", 1)
    return (
        records.withColumn("own_id", is_own("id"))
        .withColumns({"first": F.get(body, 0), "second": F.get(body, 1), "third": F.get(body, 2)})
        .withColumn("own_first", is_own("first"))
        .withColumns(
            {
                "seq": F.coalesce(
                    F.coalesce("end", end_in_body.try_cast("bigint")),
                    F.coalesce("number", F.col("second").try_cast("bigint")),
                ),
                "sent_ms": F.coalesce(F.col("third").try_cast("bigint"), "timestamp_ms"),
            }
        )
        .withColumn(
            "producer",
            F.when(F.col("own_id"), F.col("id"))
            .when(F.col("own_first"), F.col("first"))
            .when(
                F.col("seq").isNotNull(),
                F.coalesce(*(F.when(F.col(who).rlike(_OF_ANY_RUN), F.col(who)) for who in _IDS)),
            ),
        )
        .withColumn("own", F.col("own_id") | F.col("own_first"))
        .withColumn("topic", F.coalesce("sent_to", F.nullif(named, F.lit("")), "found_in"))
        .drop("id", "number", "end", "sent_to", "body", "first", "second", "third")
        .drop("own_id", "own_first")
    )


def _header(name: str) -> Column:
    """Return the value of a header as text, or null if it is not among the first headers.

    There is no lambda over all headers, because Spark does not compile lambdas or the query around
    them.
    """
    places = [F.get("headers", F.lit(place)) for place in range(_HEADERS)]
    return F.coalesce(*(F.when(at["key"] == name, at["value"]) for at in places)).cast("string")


def _as_json(offsets: Offsets) -> str:
    """Return offsets in the format of Spark's Kafka source."""
    return json.dumps(
        {topic: {str(p): at for p, at in enumerate(ats)} for topic, ats in offsets.items()}
    )


def _partitions(offsets: Offsets) -> str:
    """Return the partitions in the format of Spark's Kafka source.

    A subscription would also include partitions that are added later, and Spark rejects offsets
    that do not contain all partitions.
    """
    return json.dumps({topic: [*range(len(ats))] for topic, ats in offsets.items()})
