import pytest

from headrace.mirror_test import ShownBytes


@pytest.mark.parametrize(
    ("content", "text", "digits", "shown"),
    [
        (b"", "", None, ""),
        (b"order 7", "order 7", None, "order 7"),
        ('{\n\t"ä": "日本"}'.encode(), '{\n\t"ä": "日本"}', None, '{\n\t"ä": "日本"}'),
        (b"\0\0\0\0\x07", None, "0000000007", "hex 0000000007"),
        (b"caf\xc3", None, "636166c3", "hex 636166c3"),
        (b"\x1b[31m", None, "1b5b33316d", "hex 1b5b33316d"),
        (b"x" * 200, "x" * 200, None, "x" * 200),
        (b"x" * 1_201, "x" * 200, None, "x" * 200 + "… (1,201 bytes)"),
        (b"x" * 199 + "ä".encode(), "x" * 199, None, "x" * 199 + "… (201 bytes)"),
        (b"x" * 300 + b"\xff", "x" * 200, None, "x" * 200 + "… (301 bytes)"),
        (b"\xff" * 100, None, "ff" * 100, "hex " + "ff" * 100),
        (b"\xff" * 300, None, "ff" * 100, "hex " + "ff" * 100 + "… (300 bytes)"),
    ],
)
def test_text_is_shown_as_text_and_other_bytes_as_digits(
    content: bytes, text: str | None, digits: str | None, shown: str
) -> None:
    found = ShownBytes.of(content)
    assert found == ShownBytes(text=text, hex=digits, size_bytes=len(content))
    assert str(found) == shown


def test_null_is_not_empty() -> None:
    assert ShownBytes.of(None) is None
