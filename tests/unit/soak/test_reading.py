"""Reading of both clusters' logs by the soak."""

from soak.reading import Entry, arrivals_of


def entries(*values: bytes) -> list[Entry]:
    return [Entry(0, offset, 0.0, b"", value) for offset, value in enumerate(values)]


def test_what_the_source_itself_holds_twice_is_paired_copy_by_copy() -> None:
    copies = {b"0": [0], b"1": [1, 2], b"2": [3]}
    found = list(arrivals_of(entries(b"0", b"1", b"1", b"2", b"1", b"x"), copies))
    assert [arrival.source_offset for arrival in found] == [0, 1, 2, 3, 2, -1]
