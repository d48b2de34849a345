"""Policies of a third party, installed as pip would."""

from pathlib import Path

PLUG_INS = """
class Suffix:
    def __init__(self, source_alias, separator):
        self.suffix = separator + source_alias

    def target_topic(self, topic):
        return topic + self.suffix

    def source_topic(self, topic):
        return topic.removesuffix(self.suffix) if topic.endswith(self.suffix) else None

    def came_from(self, topic, alias):
        return topic.endswith("." + alias)


class Raises(Suffix):
    def target_topic(self, topic):
        raise KeyError("no name for " + topic)


class Slash(Suffix):
    def target_topic(self, topic):
        return "a/" + topic


class Internal(Suffix):
    def target_topic(self, topic):
        return "__" + topic


class Mixes(Suffix):
    def target_topic(self, topic):
        return "all"

    def source_topic(self, topic):
        return "first"


class Half:
    def __init__(self, source_alias, separator):
        pass

    def target_topic(self, topic):
        return topic


class Broken:
    def __init__(self, source_alias, separator):
        raise RuntimeError("no licence")
"""


def install(site: Path) -> None:
    """Install the policies into a folder on the path of processes."""
    (site / "odd_policies.py").write_text(PLUG_INS)
    info = site / "odd_policies-1.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: odd-policies\nVersion: 1\n")
    names = ["Suffix", "Raises", "Slash", "Internal", "Mixes", "Half", "Broken", "Absent"]
    entries = [f"{name.lower()} = odd_policies:{name}" for name in names]
    (info / "entry_points.txt").write_text("\n".join(["[headrace.policies]", *entries, ""]))
