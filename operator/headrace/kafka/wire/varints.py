"""Integers of variable length.

Unsigned ones are used in the flexible versions of the protocol (KIP-482), signed ones (zigzag) in
records.
"""

from functools import lru_cache


@lru_cache(4096)  # the hot path writes the same lengths again
def uvarint(number: int) -> bytes:
    """Encode ``number`` in 7 bits for each byte, the lowest first."""
    if number < 0x80:
        return bytes((number,))
    out = bytearray()
    while number >= 0x80:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)


def read_uvarint(view: memoryview, place: int) -> tuple[int, int]:
    """Return the number, and where the next one begins.

    Raise ``IndexError`` at the end, and ``ValueError`` for more than 32 bits.
    """
    byte = view[place]
    place += 1
    if byte < 0x80:
        return byte, place
    number, shift = byte & 0x7F, 7
    while byte >= 0x80:
        if shift > 28:
            raise ValueError("a length of more than 32 bits")
        byte = view[place]
        place += 1
        number |= (byte & 0x7F) << shift
        shift += 7
    return number, place


def varint(number: int) -> bytes:
    """Encode a signed number of at most 64 bits."""
    zigzag = number << 1 if number >= 0 else (-number << 1) - 1
    return bytes((zigzag,)) if zigzag < 0x80 else uvarint(zigzag)


def read_varint(view: memoryview, place: int) -> tuple[int, int]:
    """Return a signed number, and where the next one begins.

    Raise ``IndexError`` at the end, and ``ValueError`` for more than 64 bits.
    """
    number = view[place]
    place += 1
    if number >= 0x80:
        number &= 0x7F
        shift = 7
        while True:
            byte = view[place]
            place += 1
            number |= (byte & 0x7F) << shift
            if byte < 0x80:
                break
            shift += 7
            if shift > 63:
                raise ValueError("a number of more than 64 bits")
    return number >> 1 ^ -(number & 1), place
