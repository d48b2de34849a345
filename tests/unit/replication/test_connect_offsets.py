"""Offsets of Connect, in hexadecimal form as written by a real MirrorMaker 2 (4.3.1)."""

from headrace.api import TopicPartition
from headrace.replication import ConnectPartition, decode_position, encode_position

KEY = (
    "5b224d6972726f72536f75726365436f6e6e6563746f72222c7b22636c7573746572223a22737263222c227061"
    "72746974696f6e223a312c22746f706963223a226f7264657273227d5d"
)
PARTITION = ConnectPartition("MirrorSourceConnector", "src", TopicPartition("orders", 1))


def test_a_position_is_connects_byte_for_byte() -> None:
    assert PARTITION.key().hex() == KEY
    assert ConnectPartition.decode(bytes.fromhex(KEY)) == PARTITION
    assert encode_position(750) == bytes.fromhex("7b226f6666736574223a3734397d")
    assert decode_position(bytes.fromhex("7b226f6666736574223a3734397d")) == 750


def test_without_a_position_it_begins_at_the_beginning() -> None:
    assert encode_position(0) is None
    assert [decode_position(one) for one in (None, b"null", b'{"offset":-1}', b"?")] == [None] * 4


def test_keys_of_other_connectors_are_none() -> None:
    for key in (
        b'["MirrorCheckpointConnector",{"partition":0,"topic":"src.users","group":"billing"}]',
        b'["MirrorHeartbeatConnector",{"sourceClusterAlias":"src","targetClusterAlias":"dst"}]',
        b"\xff",
        b"",
    ):
        assert ConnectPartition.decode(key) is None
