"""Keys are assigned to the same partitions as by Java's clients."""

import pytest

from headrace.kafka.clients import murmur2, partition_of


@pytest.mark.parametrize(
    ("key", "hashed"),
    [
        (b"21", -973932308),
        (b"foobar", -790332482),
        (b"a-little-bit-long-string", -985981536),
        (b"a-little-bit-longer-string", -1486304829),
        (b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8", -58897971),
        (b"abc", 479470107),
    ],
)
def test_it_is_the_hash_of_javas_clients(key: bytes, hashed: int) -> None:
    """The values are from Kafka's own ``UtilsTest``."""
    assert murmur2(key) == hashed % 2**32
    assert partition_of(key, 8) == hashed % 2**31 % 8
