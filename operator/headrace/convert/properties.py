"""Conversion of the properties file of a dedicated MirrorMaker 2.

Each enabled direction becomes a flow.
"""

import re
from collections.abc import Iterator
from pathlib import Path

from headrace.convert.client_security import convert_security
from headrace.convert.draft import Draft, Setting, alias_of
from headrace.convert.mirror_maker import convert_client_setting, convert_settings
from headrace.convert.result import Converted
from headrace.errors import InvalidSpec

_DIRECTION = re.compile(r"\s*([^\s>]+?)\s*->\s*([^\s>.]+)\.(.+)")
_ESCAPES = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}
_MAX_INCLUDES = 10


def is_properties(text: str) -> bool:
    """Return True if a text is a properties file, by its first line with content.

    That line must be ``name = value``. YAML has ``name: value``, which Java would also accept.
    """
    for line in text.splitlines():
        if line.strip() and line.lstrip()[0] not in "#!":
            return re.match(r"\s*[\w.>-]+\s*=", line) is not None
    return False


def convert_properties(file: Path, text: str) -> list[Converted]:
    """Return a flow for each enabled direction.

    Raises:
        InvalidSpec: The file is not the configuration of a dedicated MirrorMaker 2.
    """
    found = dict(_with_includes(file, text, 0))
    if "clusters" not in found:
        raise InvalidSpec(
            f"{file}:1: has no setting `clusters`, so it is no configuration of a dedicated "
            "MirrorMaker 2, as connect-mirror-maker.sh reads it"
        )
    listed = found.pop("clusters")
    aliases = [one for one in re.split(r"[\s,]+", listed.value) if one]
    directions = _directions(found, aliases)
    if not directions:
        place = f"{listed.included or file}:{listed.line}"
        raise InvalidSpec(
            f"{place}: no direction is enabled: a direction needs a line like "
            f"{'->'.join([*aliases, 'a', 'b'][:2])}.enabled = true"
        )
    return [
        _flow(file, found, aliases, source, target, first=place == 0)
        for place, (source, target) in enumerate(directions)
    ]


def _flow(
    file: Path,
    found: dict[str, Setting],
    aliases: list[str],
    source: str,
    target: str,
    *,
    first: bool,
) -> Converted:
    enabled = found[f"{source}->{target}.enabled"]
    file, line = enabled.included or file, enabled.line
    draft = Draft(file, f"{alias_of(file, line, source)}-{alias_of(file, line, target)}", line)
    clusters: dict[str, dict[str, Setting]] = {source: {}, target: {}}
    shared: dict[str, Setting] = {}
    own: dict[str, Setting] = {}
    for name, setting in found.items():
        if direction := _DIRECTION.fullmatch(name):
            if direction[1] == source and direction[2] == target:
                own[direction[3]] = setting
            elif first and not _is_enabled(found, direction[1], direction[2]):
                draft.note(setting, "belongs to a direction that is not enabled")
            continue
        alias, _, rest = name.partition(".")
        if alias in aliases and rest:
            if alias in clusters:
                clusters[alias][rest] = setting
            elif first:
                draft.note(setting, "belongs to a cluster of no enabled direction")
        else:
            shared[name] = setting
    own.pop("enabled", None)
    draft.spec |= {"source": {}, "target": {}, "topics": {"include": [".*"]}}
    for side, alias in (("source", source), ("target", target)):
        _cluster(draft, side, alias, clusters[alias], shared)
    # Like headrace, MirrorMaker 2 copies all topics and consumer groups by default.
    convert_settings(draft, shared | own)
    return draft.finish({})


def _cluster(
    draft: Draft,
    side: str,
    alias: str,
    settings: dict[str, Setting],
    shared: dict[str, Setting],
) -> None:
    servers = settings.pop("bootstrap.servers", None)
    if servers is None:
        raise InvalidSpec(
            f"{draft.file}:{draft.line}: has no setting {alias}.bootstrap.servers, which "
            "is the address of that cluster"
        )
    draft.put(f"{side}.alias", alias)
    draft.put(f"{side}.bootstrapServers", ",".join(re.split(r"[\s,]+", servers.value.strip())))
    everywhere = {name: one for name, one in shared.items() if _is_of_security(name)}
    security = everywhere | {n: s for n, s in settings.items() if _is_of_security(n)}
    convert_security(draft, side, alias, security)
    for name, setting in settings.items():
        if not _is_of_security(name):
            if name == "replication.factor" and side == "target":
                convert_settings(draft, {name: setting})
            else:
                convert_client_setting(draft, setting, name)
    if side == "target":
        for name in everywhere:
            del shared[name]


def _is_of_security(name: str) -> bool:
    return name.startswith(("security.", "ssl.", "sasl."))


def _is_enabled(found: dict[str, Setting], source: str, target: str) -> bool:
    enabled = found.get(f"{source}->{target}.enabled")
    return enabled is not None and enabled.value.strip().lower() == "true"


def _directions(found: dict[str, Setting], aliases: list[str]) -> list[tuple[str, str]]:
    return [
        (source, target)
        for source in aliases
        for target in aliases
        if source != target and _is_enabled(found, source, target)
    ]


def _with_includes(file: Path, text: str, depth: int) -> Iterator[tuple[str, Setting]]:
    """Yield each setting, including those of included files.

    If a name is repeated, the last setting counts, as in Java.
    """
    for name, value, line, drops in _lines(text):
        if name == "include":
            other = file.parent / value
            if depth >= _MAX_INCLUDES:
                raise InvalidSpec(f"{file}:{line}: include: files include each other")
            try:
                yield from _with_includes(other, other.read_text(encoding="utf-8"), depth + 1)
            except (OSError, UnicodeDecodeError) as error:
                why = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
                raise InvalidSpec(
                    f"{file}:{line}: include names {value}, which cannot be read: {why}"
                ) from None
        else:
            direction = _DIRECTION.fullmatch(name)
            plain = f"{direction[1]}->{direction[2]}.{direction[3]}" if direction else name
            included = file if depth else None
            yield plain, Setting(plain, value, line, drops=drops, included=included)


def _lines(text: str) -> Iterator[tuple[str, str, int, str]]:
    """Yield name, value, line and raw value of settings, as ``java.util.Properties`` parses them.

    The raw value is empty unless parsing drops a backslash.
    """
    lines = enumerate(text.splitlines(), 1)
    for number, line in lines:
        logical = line.lstrip()
        if not logical or logical[0] in "#!":
            continue
        while re.search(r"(?<!\\)(\\\\)*\\$", logical):
            logical = logical[:-1] + next(lines, (0, ""))[1].lstrip()
        # MirrorMaker's own examples have spaces around ->, which are kept in the name here.
        arrow = re.match(r"(?:\\.|[^\s:=\\])+\s*->\s*", logical)
        start = arrow.end() if arrow else 0
        end = re.match(r"(?:\\.|[^\s:=\\])*", logical[start:])
        cut = start + (end.end() if end else 0)
        value = re.sub(r"^\s*[:=]?\s*", "", logical[cut:])
        drops = value if re.search(r"(?<!\\)(\\\\)*\\[^tnrfu\\]", value) else ""
        yield _unescaped(logical[:cut]), _unescaped(value).rstrip(), number, drops


def _unescaped(text: str) -> str:
    def one(found: re.Match[str]) -> str:
        if found[1]:
            return chr(int(found[1], 16))
        return _ESCAPES.get(found[2], found[2])

    return re.sub(r"\\(?:u([0-9a-fA-F]{4})|(.))", one, text)
