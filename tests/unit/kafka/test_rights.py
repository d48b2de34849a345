"""What a flow's check says of brokers that no machine of ours has."""

import pytest
from support.fake_broker import metadata_of, serving

from headrace.api import ClusterAccess, ClusterSpec
from headrace.errors import Fatal
from headrace.kafka import RightsAdmin


def test_a_broker_that_is_older_than_the_wire_client_speaks() -> None:
    with serving() as serve:
        old = serve({18: lambda _: b"\0\x23\0\0\0\0"})
        spec = ClusterSpec(alias="east", bootstrap_servers=f"127.0.0.1:{old.port}")
        with pytest.raises(Fatal, match=r"is too old; headrace needs brokers of Kafka 3\.3"):
            RightsAdmin(ClusterAccess(spec)).check_version()


def test_one_that_is_new_enough_is_not_complained_of() -> None:
    with serving() as serve:
        broker = serve({3: lambda _: metadata_of({1: 9092}, {})})
        spec = ClusterSpec(alias="east", bootstrap_servers=f"127.0.0.1:{broker.port}")
        RightsAdmin(ClusterAccess(spec)).check_version()
