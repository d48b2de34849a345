"""The rules: phrases that are hard to read, and the plain words that replace them.

A rule must not match good plain English. Before you add one, run ``python -m prose FILE`` on pages
that are already plain, and add a sentence of each sort to ``tests/unit/prose/test_rules.py``.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass

from prose.texts import Kind, Text

MOST_WORDS = 25
"""Most words in a sentence of a page."""

_END = r"(?=\s*(?:[.,;:)]|$))"
"""End of a clause."""
_PEER = r"(?:source|target|broker|cluster|server|coordinator|controller|operator|driver)s?"
_ARTICLE = r"(?:a|an|the|its|each|every|any|this|that)"
_LETS = r"(?:let|lets|letting)"

PHRASES = {
    # Vague verbs
    r"(?:go|goes|going|went|gone) on(?! (?:the|a|an|to|disk|top|your|its|each|this|that)\b)"
    r"(?<!what is going on)(?<!what's going on)": "resume, continue",
    r"(?:is|are|was|were|be|been) away(?! from)": "is unreachable",
    r"(?:is|are|was|were|be) gone": "no longer exists, was deleted, has ended",
    r"(?<!encrypted )(?<!encryption )(?<!data )(?<!secrets )at rest": "idle, paused",
    rf"{_LETS} (?:it|them|{_ARTICLE} (?:\w+ )?\w+) rest(?! of)": "pause",
    rf"{_LETS} (?:{_ARTICLE} )?(?:\w+ )?go(?! on\b)": "release",
    r"(?<!the )(?<!all )(?<!its )(?<!and )rests(?! on)": "is idle, is paused",
    rf"{_PEER} (?:is|are|was|were) (?:not |never |no longer )?asked": (
        "connect to, query, request from"
    ),
    r"ask(?:s|ed|ing)? (?:the|a|each|every|its|no|any) (?:API )?"
    r"(?:source|target|broker|cluster|server|coordinator)s?": "query, request from",
    r"asks? who is there": "authenticate",
    r"typed again": "run again",
    r"bears?(?! (?:in mind|on|with|out)\b)": "contain, have, include",
    r"(?:lies|lie)(?! (?:between|within|at|outside|above|below|ahead|about|to)\b)": (
        "is stored in, is in"
    ),
    r"(?:records?|messages?|batch|batches|events?|requests?|answers?) (?:that )?(?:come|comes|came)"
    r" (?:to|in|back|again|late|twice|too)": "arrive",
    r"(?:comes? and goes?|come or go|comes or goes)": "join and leave, start and stop",
    r"(?:came|comes?) of (?:it|them|each|that)": "the outcome, the result",
    r"(?:becomes?|became) of (?:it|them|each|the \w+)": "the outcome",
    r"(?:make|makes|made|making) (?:it |them )?(?:again|anew)": "create again, rebuild",
    r"(?:has|have|had) not" + _END: "lacks, does not have",
    r"(?:has|have|had) (?:it|them) not": "lacks, does not have",
    r"(?:is|are|was|were) not there": "does not exist, is missing",
    r"has to do with": "relates to",
    r"(?:know|knows|knew) (?:of|nothing|no|none)": "name the fact: has no, cannot, is not informed",
    r"mend(?:s|ed|ing)?": "recover, correct, repair",
    r"hand(?:s|ed|ing)? (?:it |them )?on": "transfer, pass",
    r"(?:stands?|stood|standing) still": "stalls, is frozen, makes no progress",
    r"falls? silent": "sends no heartbeat",
    r"(?:is|are|was|were|be|been) told": "is informed, receives",
    r"tell(?:s|ing)? of": "report, show",
    # Nouns and pronouns of the private dialect
    r"who runs what": "the assignment",
    r"(?:whoever|whosoever|whomever)": "name the user, the process or the owner",
    r"(?:somebody|anybody)": "a user, a process",
    r"(?:that|those) of (?:the|a|an|its|each|both|another)": "repeat the noun: the source's offset",
    r"(?:no|a) person": "a user",
    r"rights(?! (?:reserved|of use)\b)": "permissions",
    r"(?:a|the) right (?:that|which|is|was|on|for)": "a permission",
    r"(?:new|next) life": "incarnation",
    r"(?:no|without a) word": "no heartbeat, no message",
    r"homeless": "unassigned",
    r"amiss": "a problem",
    r"in the clear": "in plain text",
    r"as it lies": "editable",
    r"so (?:many|much) (?:percent|seconds|records|times|bytes)": "the number, with its unit",
    r"at most so (?:many|much|long)": "the maximum",
    # Adverbs after the clause
    r"(?<!not )(?<!are )(?<!be )(?<!is )(?<!were )all the same"
    + _END: "nevertheless, or delete it",
    r"for good" + _END: "permanently",
    r"(?:, too(?=[.,;:)])|too(?=[.;)]))": "also, before the verb",
    r"either(?=[.;)])": "also, before the verb",
    r"(?<!the )meanwhile(?=[.;:)])": "during this time, before the verb",
    r"(?<!and )no more" + _END: "no longer, before the verb",
    r"anew": "again",
    r"since \d\d? (?:January|February|March|April|May|June|July|August|September|October"
    r"|November|December)": "history belongs in the changelog",
}
"""Phrases anywhere in a text, with the words to use instead."""

OPENERS = {
    r"(?:Of|What|Those|Who|Whose|Whoever|As|So|Also|Else|Behind|Beside|And|Or|Which)\b": (
        "open with an imperative (function) or a noun phrase (class, attribute, option)"
    ),
}
"""First words of a docstring, an attribute docstring or a help text."""

COMMENT_OPENERS = {
    r"(?:Of|Those|Who|Whose|Whoever|Else|Beside|What)\b(?![^?]*\?)": (
        "open with the subject, and name it"
    ),
}
"""First words of a comment."""

SENTENCE_OPENERS = {
    r"Of (?:a|an|each|every|its|one|which|what|both|such|all|several|many|no)\b": (
        "put the subject first"
    ),
    r"(?:Who|Whoever)\b": "name the user, the process or the owner",
    r"What (?:is|are|was|were|has|have|had|a|an|each|no|it|they|comes|came|goes)\b": (
        "name the thing"
    ),
    r"Those (?:that|who|which|of|with|without|whose|in|on|from)\b": "name the things",
    r"So (?:many|long|much|few|late|soon)\b(?! as\b)": "name the number or the time",
    r"(?:Else|Beside)\b": "write otherwise, next to; put the subject first",
}
"""First words of a sentence that is not a question."""

_SENTENCE_KINDS = set(Kind) - {Kind.HEADING, Kind.RAW}
_PAGE_KINDS = {Kind.PARAGRAPH, Kind.ITEM, Kind.CELL}
_CHAIN_KINDS = {Kind.DOCSTRING, Kind.ATTRIBUTE, Kind.HELP, *_PAGE_KINDS}
_SEE = re.compile(r"See :?[\w:]*`+[^`]+`+[.;,]?(?=\s|\Z)")
_SAME = re.compile(r"(?i)(?:the same|same|as above|same as above|ditto|likewise)(?=[,.;:]|\Z)")
_CODE = re.compile(r"(?s)(`+)(?:(?!\n\s*\n).)+?\1")
_LINK = re.compile(r"\]\([^)]*\)|https?://\S+")
_BLOCK = re.compile(r"\n\s*\n|\n(?=\s*(?:[-*+]|\d+\.)\s)")
_SENTENCE_END = re.compile(r"[.!?][\"')*_]*\s+(?=[\"'(*_\[]*[A-Z`])")
_ABBREVIATION = re.compile(r"(?:\b(?:e\.g|i\.e|vs|etc|cf|approx|no)|\b[A-Z])\.$")

Rules = list[tuple[re.Pattern[str], str]]
"""Compiled patterns with their advice."""


@dataclass(frozen=True)
class Finding:
    """A phrase on a line, and the advice on how to replace it."""

    line: int
    phrase: str
    advice: str

    def __str__(self) -> str:
        return f"{self.line}: {self.phrase!r}: {self.advice}"


def _compiled(rules: dict[str, str], frame: str, flags: re.RegexFlag) -> Rules:
    """Compile rules; a space in a pattern also matches a line break, except in a look-behind."""
    compiled = []
    for pattern, advice in rules.items():
        parts = re.split(r"(\(\?<![^)]*\))", pattern)
        spaced = [one if one.startswith("(?<!") else one.replace(" ", r"\s+") for one in parts]
        compiled.append((re.compile(frame.format("".join(spaced)), flags), advice))
    return compiled


_PHRASES = _compiled(PHRASES, r"\b(?:{})(?!\w)", re.IGNORECASE)
_OPENERS = _compiled(OPENERS, "{}", re.NOFLAG)
_COMMENT_OPENERS = _compiled(COMMENT_OPENERS, "{}", re.NOFLAG)
_SENTENCE_OPENERS = _compiled(SENTENCE_OPENERS, "{}", re.NOFLAG)


def findings(text: Text) -> Iterator[Finding]:
    """Yield each breach of a rule in a text."""
    prose = _LINK.sub(_blanked, _CODE.sub(_blanked, text.content))
    for start, phrase, advice in _breaches(text, prose):
        line = text.line + prose.count("\n", 0, start)
        yield Finding(line, " ".join(phrase.split()), advice)


def _blanked(found: re.Match[str]) -> str:
    """Return a stand-in for code or a link with the same length and line breaks."""
    return re.sub(r"[^\n]", "X", found.group())


def _breaches(text: Text, prose: str) -> Iterator[tuple[int, str, str]]:
    """Yield the offset, the phrase and the advice of each breach."""
    for pattern, advice in _PHRASES:
        for found in pattern.finditer(prose):
            yield found.start(), found.group(), advice
    start = len(prose) - len(prose.lstrip())
    match text.kind:
        case Kind.DOCSTRING | Kind.ATTRIBUTE | Kind.HELP:
            yield from _opening(_OPENERS, prose, start)
            if _SEE.match(text.content, start):
                yield start, "See ...", "inherit the docstring, or say what the function does"
        case Kind.COMMENT:
            yield from _opening(_COMMENT_OPENERS, prose, start)
        case Kind.CELL if same := _SAME.match(prose):
            yield 0, same.group(), "a row of a table is read alone: repeat the value"
    if text.kind in _SENTENCE_KINDS:
        for begin, sentence in _sentences(prose):
            for offset, phrase, advice in _sentence_breaches(text.kind, sentence, begin == start):
                yield begin + offset, phrase or _opening_words(text.content[begin:]), advice


def _opening(rules: Rules, prose: str, start: int) -> Iterator[tuple[int, str, str]]:
    for pattern, advice in rules:
        if opening := pattern.match(prose, start):
            yield start, f"{opening.group()} ...", advice


def _sentence_breaches(
    kind: Kind, sentence: str, is_first: bool
) -> Iterator[tuple[int, str | None, str]]:
    """Yield the breaches of a sentence; the phrase is None for a breach of the whole sentence."""
    opens_a_docstring = is_first and kind in {Kind.DOCSTRING, Kind.ATTRIBUTE, Kind.HELP}
    opens_a_comment = is_first and kind is Kind.COMMENT
    if not (sentence.endswith("?") or opens_a_docstring or opens_a_comment):
        yield from _opening(_SENTENCE_OPENERS, sentence, 0)
    if kind in _CHAIN_KINDS and len(re.findall(r";\s", sentence)) > 1:
        yield 0, None, "write sentences instead of a chain with ;"
    words = sum(1 for word in sentence.split() if re.search(r"\w", word))
    if kind in _PAGE_KINDS and words > MOST_WORDS:
        yield 0, None, f"has {words} words: split it, a sentence has at most {MOST_WORDS}"


def _opening_words(sentence: str) -> str:
    return f"{' '.join(sentence.split()[:5])} ..."


def _sentences(prose: str) -> Iterator[tuple[int, str]]:
    """Yield each sentence with its offset; paragraphs and list items end sentences."""
    begin = 0
    for block in [*(found.span() for found in _BLOCK.finditer(prose)), (len(prose), len(prose))]:
        position = begin
        for found in _SENTENCE_END.finditer(prose, begin, block[0]):
            if not _ABBREVIATION.search(prose, position, found.start() + 1):
                yield from _stripped(prose, position, found.end())
                position = found.end()
        yield from _stripped(prose, position, block[0])
        begin = block[1]


def _stripped(prose: str, begin: int, end: int) -> Iterator[tuple[int, str]]:
    sentence = prose[begin:end]
    if content := sentence.strip():
        yield begin + len(sentence) - len(sentence.lstrip()), content
