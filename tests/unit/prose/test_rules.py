"""Phrases that the rules reject, and plain English that they accept."""

import pytest
from prose.rules import findings
from prose.texts import Kind, Text

REJECTED = [
    (Kind.MESSAGE, "the flow goes on where it stopped", "goes on"),
    (Kind.MESSAGE, "it was handed\nover, and goes\non then", "goes on"),
    (Kind.COMMENT, "the broker is away", "is away"),
    (Kind.COMMENT, "codecs that Python has not.", "has not"),
    (Kind.COMMENT, "the source is not asked", "source is not asked"),
    (Kind.HELP, "let a flow rest", "let a flow rest"),
    (Kind.ITEM, "greater than that of the source", "that of the"),
    (Kind.ITEM, "It copies tombstones, too.", ", too"),
    (Kind.ITEM, "The task stops for good.", "for good"),
    (Kind.CELL, "the same, with a topic", "the same"),
    (Kind.PARAGRAPH, "Nothing is lost all the same.", "all the same"),
    (Kind.PARAGRAPH, "Offsets agree. Of a message that arrives again one counts.", "Of a ..."),
    (Kind.PARAGRAPH, "Who has the role may do that.", "Who ..."),
    (Kind.PARAGRAPH, "What is stored is read.", "What is ..."),
    (Kind.PARAGRAPH, "Whoever writes it owns it.", "Whoever"),
    (Kind.PARAGRAPH, "It stops; it starts; it stops.", "It stops; it starts; it ..."),
    (Kind.DOCSTRING, "Of one producer; in its thread.", "Of ..."),
    (Kind.DOCSTRING, "\n    What comes back.\n", "What ..."),
    (Kind.DOCSTRING, "See ``Mover``.", "See ..."),
    (Kind.ATTRIBUTE, "Those that are open.", "Those ..."),
    (Kind.ATTRIBUTE, "So many seconds pass.", "So ..."),
    (Kind.HELP, "As in MirrorMaker 2.", "As ..."),
    (Kind.COMMENT, "Of this machine only.", "Of ..."),
    (Kind.RAW, "key: value  # it stands still", "stands still"),
]
ACCEPTED = [
    (Kind.MESSAGE, "brokers go on the target's network"),
    (Kind.MESSAGE, "find out what is going on"),
    (Kind.MESSAGE, "the source has not answered within 30 s"),
    (Kind.MESSAGE, "the two offsets are not all the same."),
    (Kind.COMMENT, "encryption at rest"),
    (Kind.COMMENT, "at most five requests, and no more"),
    (Kind.COMMENT, "As the lock is held, no other thread appends."),
    (Kind.COMMENT, "So the sequence has no gap."),
    (Kind.COMMENT, "Who owns the partition? The task with the highest epoch."),
    (Kind.COMMENT, "let the rest of the batch through"),
    (Kind.CELL, "the same topic on the target"),
    (Kind.CELL, "a lag between 0 and 5, for good reason"),
    (Kind.PARAGRAPH, "The value lies between 0 and 1."),
    (Kind.PARAGRAPH, "Bear in mind that a restart takes a second."),
    (Kind.PARAGRAPH, "What happens next depends on `onDataLoss`."),
    (Kind.PARAGRAPH, "What is a flow? A replication."),
    (Kind.PARAGRAPH, "So far, no record is lost. As long as it runs, it copies."),
    (Kind.PARAGRAPH, "Keep the right offset, not the left one."),
    (Kind.PARAGRAPH, "Run `let it go on` or [it is away](is-away.md)."),
    (Kind.PARAGRAPH, "Meanwhile, the driver copies. That is too large a value."),
    (Kind.HEADING, "What it is"),
    (Kind.DOCSTRING, "Return the lag in records.\n\n    So long as none is known, return 0.\n"),
    (Kind.DOCSTRING, "Resume the partition. See ``Mover``."),
    (Kind.ATTRIBUTE, "Target offset after the last acknowledged record, or None."),
    (Kind.ATTRIBUTE, "Whether the partition is paused."),
    (Kind.HELP, "Idle time required on the source, in seconds."),
]


def phrases(kind: Kind, content: str) -> list[str]:
    return [finding.phrase for finding in findings(Text(kind, 1, content))]


@pytest.mark.parametrize(("kind", "content", "phrase"), REJECTED)
def test_phrases_of_the_style_guide_are_rejected(kind: Kind, content: str, phrase: str) -> None:
    assert phrase in phrases(kind, content)


@pytest.mark.parametrize(("kind", "content"), ACCEPTED)
def test_plain_english_is_accepted(kind: Kind, content: str) -> None:
    assert phrases(kind, content) == []


def test_a_finding_has_the_line_of_its_phrase_and_the_plain_words() -> None:
    (finding,) = findings(Text(Kind.PARAGRAPH, 7, "A driver\nstops and the\nother one goes on."))
    assert str(finding) == "9: 'goes on': resume, continue"


@pytest.mark.parametrize(("words", "found"), [(25, 0), (26, 1)])
def test_a_sentence_of_a_page_has_at_most_25_words(words: int, found: int) -> None:
    text = f"A flow copies topics. {' '.join(['Word'] * words)}. It stops."
    assert len(phrases(Kind.PARAGRAPH, text)) == found
    assert phrases(Kind.DOCSTRING, text) == []


def test_abbreviations_and_items_of_a_list_do_not_join_or_split_sentences() -> None:
    words = " ".join(["word"] * 20)
    assert phrases(Kind.PARAGRAPH, f"It needs {words}, e.g. Kafka.") == []
    assert phrases(Kind.PARAGRAPH, f"It needs {words}:\n- one of\n- two words of these") == []
