"""Keys and values of records in a report, cut to a bounded length."""

import codecs
from typing import Self

from headrace.api import Model

SHOWN_BYTES, SHOWN_AS_HEX = 200, 100
"""Maximum number of bytes that are shown of a key or a value, as text and as digits."""


class ShownBytes(Model):
    """Beginning of a key or a value."""

    text: str | None = None
    """Text, if the shown bytes are printable UTF-8."""
    hex: str | None = None
    """Hexadecimal digits, if they are not."""
    size_bytes: int
    """Size of the whole key or value."""

    @classmethod
    def of(cls, content: bytes | None) -> Self | None:
        """Return the beginning of a key or a value, or None if it is null."""
        if content is None:
            return None
        first, is_whole = content[:SHOWN_BYTES], len(content) <= SHOWN_BYTES
        try:
            # A character at the cut is left out.
            text = codecs.getincrementaldecoder("utf-8")().decode(first, final=is_whole)
        except UnicodeDecodeError:
            text = "\0"
        if all(letter.isprintable() or letter in "\n\r\t" for letter in text):
            return cls(text=text, size_bytes=len(content))
        return cls(hex=first[:SHOWN_AS_HEX].hex(), size_bytes=len(content))

    def __str__(self) -> str:
        shown = f"hex {self.hex}" if self.text is None else self.text
        is_cut = self.size_bytes > (SHOWN_AS_HEX if self.text is None else SHOWN_BYTES)
        return f"{shown}… ({self.size_bytes:,} bytes)" if is_cut else shown


class ShownRecord(Model):
    """Key and value of a record."""

    key: ShownBytes | None = None
    """Key. Absent if it is null."""
    value: ShownBytes | None = None
    """Value. Absent if it is null."""
