"""What a job prints: events on standard output, as JSON; sentences on standard error."""

import json
import sys


def event(name: str, **facts: object) -> None:
    """A line of JSON, of the job's progress; ``headrace verify`` reads them."""
    sys.stdout.write(json.dumps({"event": name, **facts}) + "\n")
    sys.stdout.flush()


def say(sentence: str) -> None:
    """A sentence for a person; the last one is why a job ended."""
    sys.stderr.write(f"headrace: {sentence}\n")


def spark_sentence(error: Exception) -> str:
    """The first lines of Spark's error, without its stack."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    sentence = " ".join(line for line in lines[:3] if not line.startswith("at "))
    return f"Spark could not do it: {sentence[:600]}"
