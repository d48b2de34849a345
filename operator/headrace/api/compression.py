"""The codec of batches on the target."""

from collections.abc import Iterator
from enum import StrEnum

from headrace.api.extensions import Rule
from headrace.api.model import AtLeastOne, Breach, Model


class CompressionType(StrEnum):
    """Codecs of record batches."""

    SOURCE = "Source"
    NONE = "None"
    GZIP = "Gzip"
    SNAPPY = "Snappy"
    LZ4 = "Lz4"
    ZSTD = "Zstd"


HIGHEST_LEVELS = {CompressionType.GZIP: 9, CompressionType.LZ4: 12, CompressionType.ZSTD: 22}
"""The highest level of each codec that has levels. The lowest is 1."""
_NO_LEVEL = "is allowed only with type Gzip, Lz4 or Zstd: the other types have no levels"


def _too_high(codec: CompressionType) -> str:
    return f"must be at most {HIGHEST_LEVELS[codec]} with type {codec}"


class Compression(Model):
    """How batches are compressed on the target."""

    type: CompressionType = CompressionType.SOURCE
    """Source keeps each batch's codec, and batches are copied unchanged. With any other value,
    batches that have another codec are decompressed and compressed again, which costs CPU."""
    level: AtLeastOne | None = None
    """Compression level of batches that are compressed again: 1 to 9 with Gzip, 1 to 12 with Lz4,
    1 to 22 with Zstd. Without it, the codec's default. Batches that already have the codec keep
    their level."""

    rules = (
        Rule(
            "!has(self.level) || (has(self.type) && self.type in ['Gzip', 'Lz4', 'Zstd'])",
            _NO_LEVEL,
            at="level",
        ),
        *(
            Rule(
                f"!has(self.level) || !has(self.type) || self.type != '{codec}' "
                f"|| self.level <= {highest}",
                _too_high(codec),
                at="level",
            )
            for codec, highest in HIGHEST_LEVELS.items()
        ),
    )

    def _breaches(self) -> Iterator[Breach]:
        if self.level is None:
            return
        if self.type not in HIGHEST_LEVELS:
            yield Breach(("level",), _NO_LEVEL)
        elif self.level > HIGHEST_LEVELS[self.type]:
            yield Breach(("level",), _too_high(self.type))


AS_ON_SOURCE = Compression()
"""Each batch keeps its codec."""
