"""Which partition a key goes to: murmur2, as Java's DefaultPartitioner and librdkafka's ``murmur2``
have it."""

_M, _R, _SEED = 0x5BD1E995, 24, 0x9747B28C
_32 = 0xFFFFFFFF


def partition_of(key: bytes, partitions: int) -> int:
    """Of so many."""
    return (murmur2(key) & 0x7FFFFFFF) % partitions


def murmur2(data: bytes) -> int:
    """Of 32 bits, without a sign (``org.apache.kafka.common.utils.Utils.murmur2``)."""
    whole = len(data) & ~3
    hashed = (_SEED ^ len(data)) & _32
    for place in range(0, whole, 4):
        word = int.from_bytes(data[place : place + 4], "little") * _M & _32
        hashed = hashed * _M & _32 ^ (word ^ word >> _R) * _M & _32
    if rest := data[whole:]:
        hashed = (hashed ^ int.from_bytes(rest, "little")) * _M & _32
    hashed = (hashed ^ hashed >> 13) * _M & _32
    return hashed ^ hashed >> 15
