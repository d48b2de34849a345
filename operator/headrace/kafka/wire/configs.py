"""Settings of topics and brokers.

librdkafka can read them, but it ends the process if a flipped bit makes a name no valid UTF-8.
"""

from collections.abc import Collection
from enum import IntEnum
from typing import NamedTuple

from kio.schema.describe_configs.v4.request import DescribeConfigsRequest, DescribeConfigsResource
from kio.schema.describe_configs.v4.response import DescribeConfigsResponse, DescribeConfigsResult
from kio.schema.errors import ErrorCode
from kio.static.primitive import i8

from headrace.errors import HeadraceError, Retriable
from headrace.kafka.wire.cluster import ClusterClient
from headrace.kafka.wire.connection import Connection
from headrace.kafka.wire.errors import refusal
from headrace.kafka.wire.protocol import call

_OF_TOPIC = 1
"""Code of a setting of the topic itself (DYNAMIC_TOPIC_CONFIG)."""


class ConfigOwner(IntEnum):
    """Owner of settings, with the protocol's code."""

    TOPIC = 2
    BROKER = 4


class ConfigEntry(NamedTuple):
    """A setting in effect."""

    value: str | None
    """None if the broker does not report it, for example a password."""
    of_topic: bool
    """Whether it was set for the topic itself, not for the broker or the cluster."""


Settings = dict[str, ConfigEntry]
"""Settings by name."""


async def topic_settings(
    cluster: ClusterClient, topics: Collection[str]
) -> dict[str, Settings | HeadraceError]:
    """Return the settings of each topic, or an error."""
    return await _settings(cluster, await cluster.any_connection(), ConfigOwner.TOPIC, topics)


async def broker_settings(cluster: ClusterClient, broker: int) -> Settings | HeadraceError:
    """Return the settings of a broker in the metadata, or an error."""
    name = str(broker)
    connection = await cluster.connection(broker)
    return (await _settings(cluster, connection, ConfigOwner.BROKER, [name]))[name]


async def _settings(
    cluster: ClusterClient, connection: Connection, owner: ConfigOwner, names: Collection[str]
) -> dict[str, Settings | HeadraceError]:
    resources = tuple(
        DescribeConfigsResource(
            resource_type=i8(owner), resource_name=name, configuration_keys=None
        )
        for name in names
    )
    response = await connection.send(
        call(DescribeConfigsRequest(resources=resources), DescribeConfigsResponse)
    )
    what = f"read the settings of {owner.name.lower()} {{}} of {cluster.name}"
    found = {one.resource_name: _result(one, what) for one in response.results}
    for name in names:
        if name not in found:
            error = Retriable(f"could not {what.format(name)}: the broker's answer was damaged")
            found[name] = error
    return {name: found[name] for name in names}


def _result(one: DescribeConfigsResult, what: str) -> Settings | HeadraceError:
    if one.error_code is not ErrorCode.none:
        return refusal(one.error_code, what.format(one.resource_name))
    return {
        entry.name: ConfigEntry(entry.value, entry.config_source == _OF_TOPIC)
        for entry in one.configs
    }
