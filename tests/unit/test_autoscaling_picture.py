"""The picture of autoscaling shows the data beside it."""

import re
import runpy
from pathlib import Path

SCRIPT = runpy.run_path(str(Path(__file__).parents[2] / "docs" / "autoscaling_picture.py"))


def paths(svg: str) -> list[str]:
    """Return the drawn paths in whole pixels, as fractions depend on the version of matplotlib."""
    return [re.sub(r"(\d+)\.\d+", r"\1", path) for path in re.findall(r'<path d="([^"]*)"', svg)]


def test_the_picture_is_of_the_data() -> None:
    assert paths(SCRIPT["PICTURE"].read_text()) == paths(SCRIPT["svg"]()), "run `make generate`"


def test_the_data_is_of_a_fleet_that_grew_and_shrank() -> None:
    samples = SCRIPT["samples"]()
    assert samples["ready"][0] == samples["ready"][-1] == min(samples["ready"])
    assert max(samples["ready"]) == max(samples["desired"]) == 3
    assert samples["lag"][-1] == 0
    assert samples["at_s"] == sorted(samples["at_s"])
