"""The README's picture equals the current live view."""

import html
import re
import runpy
from pathlib import Path

SCRIPT = runpy.run_path(str(Path(__file__).parents[2] / "docs" / "pictures.py"))


def test_the_picture_has_the_words_of_the_screen() -> None:
    """Only the words are compared: rich draws them, and its drawing changes."""
    drawn = SCRIPT["PICTURE"].read_text()
    shown = " ".join(html.unescape(text) for text in re.findall(r">([^<>\n]+)</text>", drawn))
    assert "3 flows" in shown.replace("\xa0", " ")
    absent = [word for line in SCRIPT["lines"]() for word in str(line).split() if word not in shown]
    assert absent == [], "run `make generate`"


def test_the_picture_loads_nothing() -> None:
    assert "url(http" not in SCRIPT["PICTURE"].read_text()
