"""Answers the dashboards' queries from scrapes. Supports the part of PromQL that they use.

Prometheus answers the same queries. A test compares the results.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from heapq import nlargest

Labels = Mapping[str, str]
Vector = list[tuple[Labels, float]]


@dataclass(frozen=True)
class Scrape:
    """All series at one time."""

    at_s: float
    """Unix time of the scrape, in seconds."""
    series: Mapping[str, Sequence[tuple[Labels, float]]]
    """Labels and value of each series, by the name of the metric."""


Query = Callable[[Sequence[Scrape]], Vector]
"""Function that evaluates a query over scrapes in order of time.

``rate`` is computed from the first scrape that contains the series to the last.
"""

_TOKEN = re.compile(r'\s*("[^"]*"|[\w$]+|=~|!~|!=|[=<>(){}\[\],-])')


def compile_query(text: str) -> Query:
    """Return the query for an expression. Raise ``ValueError`` if it is not supported."""
    parser = _Parser(text)
    query = parser.expression()
    parser.end()
    return query


class _Parser:
    def __init__(self, text: str) -> None:
        self._text = text
        self._tokens: list[str] = []
        at, end = 0, len(text.rstrip())
        while at < end:
            if (token := _TOKEN.match(text, at)) is None:
                raise ValueError(f"{text[at:]} cannot be read: {text}")
            self._tokens.append(token[1])
            at = token.end()

    def expression(self) -> Query:
        left = self._term()
        if self._accept(">"):
            least = float(self._next())
            return lambda scrapes: [one for one in left(scrapes) if one[1] > least]
        if self._accept("-"):
            right = self._term()
            return lambda scrapes: [
                (labels, left(scrapes)[0][1] - value) for labels, value in right(scrapes)
            ]
        return left

    def end(self) -> None:
        if self._tokens:
            raise ValueError(f"{self._tokens[0]} was not expected: {self._text}")

    def _term(self) -> Query:
        match word := self._next():
            case "time":
                self._expect("(", ")")
                return lambda scrapes: [({}, scrapes[-1].at_s)]
            case "topk":
                self._expect("(")
                most = int(self._next())
                self._expect(",")
                of = self._closed()
                return lambda scrapes: nlargest(most, of(scrapes), key=lambda one: one[1])
            case "sum" | "max":
                self._expect("by", "(")
                kept = self._names()
                self._expect("(")
                of = self._closed()
                return lambda scrapes: _grouped(of(scrapes), kept, sum if word == "sum" else max)
            case "rate" | "increase":
                self._expect("(")
                return self._change(per_second=word == "rate")
        return self._selector(word)

    def _change(self, *, per_second: bool) -> Query:
        of = self._selector(self._next())
        self._expect("[", "$__rate_interval", "]", ")")

        def change(scrapes: Sequence[Scrape]) -> Vector:
            began: dict[tuple[tuple[str, str], ...], tuple[float, float]] = {}
            for scrape in scrapes[:-1]:
                for labels, value in of([scrape]):
                    began.setdefault(tuple(labels.items()), (scrape.at_s, value))
            last = scrapes[-1]
            changes: Vector = []
            for labels, value in of([last]):
                if (first := began.get(tuple(labels.items()))) is not None:
                    at_s, was = first
                    # A counter that has decreased was reset to 0.
                    more = value if value < was else value - was
                    changes.append((labels, more / (last.at_s - at_s) if per_second else more))
            return changes

        return change

    def _selector(self, name: str) -> Query:
        wanted: list[tuple[str, bool, re.Pattern[str]]] = []
        if self._accept("{"):
            while not self._accept("}"):
                label, operator, value = self._next(), self._next(), self._next()[1:-1]
                self._accept(",")
                if not value.startswith("$"):  # a variable of the dashboard matches all
                    pattern = value if "~" in operator else re.escape(value)
                    wanted.append((label, operator.startswith("="), re.compile(pattern)))

        def select(scrapes: Sequence[Scrape]) -> Vector:
            return [
                (labels, value)
                for labels, value in scrapes[-1].series.get(name, ())
                if all(
                    bool(pattern.fullmatch(labels.get(label, ""))) is matches
                    for label, matches, pattern in wanted
                )
            ]

        return select

    def _closed(self) -> Query:
        inner = self.expression()
        self._expect(")")
        return inner

    def _names(self) -> list[str]:
        names = []
        while not self._accept(")"):
            names.append(self._next())
            self._accept(",")
        return names

    def _next(self) -> str:
        if not self._tokens:
            raise ValueError(f"ends too soon: {self._text}")
        return self._tokens.pop(0)

    def _accept(self, token: str) -> bool:
        if self._tokens[:1] != [token]:
            return False
        self._tokens.pop(0)
        return True

    def _expect(self, *tokens: str) -> None:
        for token in tokens:
            if not self._accept(token):
                raise ValueError(f"{token} was expected: {self._text}")


def _grouped(
    vector: Vector, names: Sequence[str], combine: Callable[[list[float]], float]
) -> Vector:
    groups: dict[tuple[str, ...], list[float]] = {}
    for labels, value in vector:
        groups.setdefault(tuple(labels.get(name, "") for name in names), []).append(value)
    return [
        (dict(zip(names, values, strict=True)), combine(found)) for values, found in groups.items()
    ]
