"""A terminal's contents after a program wrote to it; only sequences that rich writes are known."""

import re

_SEQUENCE = re.compile(
    r"\x1b\[(\??)([\d;]*)([A-Za-z])|\x1b\](?:[^\x07\x1b]*)(?:\x07|\x1b\\)|(.)", re.S
)


class Terminal:
    """A screen of ``columns`` and ``lines``; it scrolls at its end, and wraps at its edge."""

    def __init__(self, columns: int, lines: int) -> None:
        self.columns, self.lines = columns, lines
        self._cells: dict[tuple[int, int], str] = {}
        self._row = self._column = 0
        self.scrolled = 0
        """Lines that left the screen at its top."""

    def resize(self, columns: int, lines: int) -> None:
        """Change the size. Characters outside are dropped, all others keep their place."""
        self.columns, self.lines = columns, lines
        self._cells = {
            at: c for at, c in self._cells.items() if at < (lines, 0) and at[1] < columns
        }

    def feed(self, text: str) -> None:
        """Show text that the program wrote."""
        for private, numbers, command, character in _SEQUENCE.findall(text):
            if command:
                self._obey(private + command, [int(n) for n in numbers.split(";") if n])
            elif character:
                self._put(character)

    @property
    def display(self) -> list[str]:
        """The lines, without the spaces at their ends."""
        rows = range(self.lines)
        columns = range(self.columns)
        return ["".join(self._cells.get((y, x), " ") for x in columns).rstrip() for y in rows]

    def _put(self, character: str) -> None:
        if character == "\r":
            self._column = 0
        elif character == "\n":
            self._column = 0
            self._down()
        else:
            if self._column >= self.columns:
                self._column = 0
                self._down()
            self._cells[self._row, self._column] = character
            self._column += 1

    def _down(self) -> None:
        if self._row < self.lines - 1:
            self._row += 1
            return
        self.scrolled += 1
        self._cells = {(y - 1, x): c for (y, x), c in self._cells.items() if y}

    def _obey(self, command: str, numbers: list[int]) -> None:
        match command:
            case "H":
                self._row, self._column = ([n - 1 for n in numbers] + [0, 0])[:2]
            case "A":
                self._row = max(0, self._row - (numbers or [1])[0])
            case "K":
                keep = 0 if numbers == [2] else self._column
                gone = [at for at in self._cells if at[0] == self._row and at[1] >= keep]
                for at in gone:
                    del self._cells[at]
            case "J":
                self._cells.clear()
            case "?h" | "?l" | "m":
                if numbers == [1049]:
                    self._cells.clear()
            case _:
                raise AssertionError(f"unknown here: {command} {numbers}")
