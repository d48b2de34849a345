"""Unsigned variable-length integers, as in the flexible versions of the protocol (KIP-482)."""


def uvarint(number: int) -> bytes:
    """``number`` in 7 bits a byte, the lowest first."""
    if number < 0x80:
        return bytes((number,))
    out = bytearray()
    while number >= 0x80:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)


def read_uvarint(view: memoryview, place: int) -> tuple[int, int]:
    """The number, and where the next one begins; ``IndexError`` at the end, ``ValueError`` for more
    than 32 bits."""
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
