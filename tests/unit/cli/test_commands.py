"""Every command: its name, its help, its options, and what kubectl's plug-in lists."""

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from headrace.cli.commands import COMMANDS, RENAMED, Noun
from headrace.cli.main import group, main
from headrace.cli.screen.exits import Exit

PAGE = (Path(__file__).parents[3] / "docs" / "cli.md").read_text()
ROOT = click.Context(group, info_name="headrace")


def _below(command: click.Command, ctx: click.Context) -> Iterator[tuple[str, click.Command]]:
    if not isinstance(command, click.Group):
        yield ctx.command_path, command
        return
    names = [*command.list_commands(ctx), *HIDDEN.get(ctx.command_path, ())]
    for name in names:
        found = command.get_command(ctx, name)
        assert found is not None, f"{ctx.command_path} {name}"
        yield from _below(found, click.Context(found, parent=ctx, info_name=name))


HIDDEN = {
    "headrace": ("operator", "driver"),
    "headrace test": ("chaos", "rehearse", "clean-up", "signal"),
}
ALL = dict(_below(group, ROOT))
LISTED = {
    path: command
    for path, command in ALL.items()
    if path.split()[-1] not in HIDDEN.get(path.rpartition(" ")[0], ())
}


@pytest.mark.parametrize("path", ALL)
def test_help_begins_with_an_imperative_sentence(path: str) -> None:
    first, *_ = (ALL[path].help or "").splitlines()
    assert first.endswith((".", "without a flow."))
    assert re.match(r"[A-Z][a-z]+( over)?\b", first), first
    assert not first.split()[0].endswith(("s", "ing")), f"{first!r} is not imperative"


@pytest.mark.parametrize("path", LISTED)
def test_help_has_examples_that_call_the_command(path: str) -> None:
    text = ALL[path].help or ""
    assert "Examples:" in text
    examples = text.partition("Examples:")[2]
    assert path in examples


def test_examples_stand_on_lines_of_their_own(capsys: pytest.CaptureFixture[str]) -> None:
    for words in ([], ["flow", "pause"], ["flow", "import", "mm2"], ["sandbox", "broker", "thaw"]):
        assert main([*words, "--help"]) == 0
        path = " ".join(["headrace", *words])
        assert re.search(rf"(?m)^  Examples:\n    {path}\b", capsys.readouterr().out), path


@pytest.mark.parametrize("path", ALL)
def test_options_have_help_and_upper_case_metavariables(path: str) -> None:
    ctx = click.Context(ALL[path], info_name=path)
    for option in ALL[path].params:
        if not isinstance(option, click.Option) or option.name == "help":
            continue
        assert option.help, f"{path} {option.opts[0]} has no help"
        assert option.help[0].isupper(), f"{path} {option.opts[0]}: {option.help}"
        if not option.is_flag:
            metavar = option.make_metavar(ctx)
            assert re.fullmatch(r"[A-Z=]+", metavar), f"{path} {option.opts[0]}: {metavar}"


def test_options_of_one_name_have_one_metavariable() -> None:
    seen: dict[str, set[str]] = {}
    for path, command in ALL.items():
        ctx = click.Context(command, info_name=path)
        for option in command.params:
            if isinstance(option, click.Option) and not option.is_flag:
                seen.setdefault(option.opts[-1], set()).add(option.make_metavar(ctx))
    differing = {name: found for name, found in seen.items() if len(found) > 1}
    differs = {"--name", "--lease"}  # a name of another kind of object; a name, and a time
    assert set(differing) <= differs, differing


def test_every_command_is_on_the_page() -> None:
    assert [path for path in LISTED if f"`{path}" not in PAGE] == []


@pytest.mark.parametrize("old", RENAMED, ids=" ".join)
def test_earlier_name_is_answered_with_the_present_one(
    old: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*old, "x"]) == Exit.USAGE
    new = RENAMED[old]
    assert (
        capsys.readouterr().err == f"headrace: `headrace {' '.join(old)}` is now `headrace {new}`\n"
    )
    assert f"headrace {new}" in ALL or f"headrace {new} mm2" in ALL


def test_plug_in_lists_only_commands_about_a_cluster(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--help"], "kubectl headrace") == 0
    shown = capsys.readouterr().out
    listed = re.findall(r"(?m)^  ([a-z-]+) ", shown.partition("Commands:")[2])
    assert listed == ["status", "failover", "flow", "task", "test", "job"]
    examples = re.findall(r"(?m)^    (.*)", shown.partition("Examples:")[2])
    assert examples == ["kubectl headrace status -n shop", "kubectl headrace task list -A"]
    assert main(["test", "--help"], "kubectl headrace") == 0
    assert "compare" not in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "path"), [(["demo"], "demo"), (["flow", "dashboard"], "flow dashboard")]
)
def test_plug_in_names_the_command_that_acts_on_this_machine(
    words: list[str], path: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(words, "kubectl headrace") == Exit.USAGE
    assert capsys.readouterr().err == (
        f"headrace: `{path}` does not act on a Kubernetes cluster: run `headrace {path}`\n"
    )


def test_plug_in_without_its_extra_says_what_to_install() -> None:
    script = (
        "import sys\n"
        "from headrace.cli.main import main\n"
        "sys.modules['kubernetes'] = None\n"
        "sys.exit(main(['task', 'list'], 'kubectl headrace'))"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=False
    )
    assert done.returncode == Exit.USAGE
    assert "`kubectl headrace task list` needs the package kubernetes" in done.stderr
    assert "the extra `operator` of headrace" in done.stderr


def test_no_list_of_commands_imports_a_kafka_client() -> None:
    script = (
        "import sys\n"
        "from headrace.cli.main import main\n"
        "for words in ([], ['flow'], ['task'], ['test']): main([*words, '--help'])\n"
        "sys.exit('confluent_kafka' in sys.modules or 'headrace.api' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", script], check=False).returncode == 0


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_script_calls_headrace(shell: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["completion", shell]) == 0
    script = capsys.readouterr().out
    assert f"_HEADRACE_COMPLETE={shell}_complete" in script


def test_completion_lists_commands_without_importing_them(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("_HEADRACE_COMPLETE", "bash_complete")
    monkeypatch.setenv("COMP_WORDS", "headrace flow re")
    monkeypatch.setenv("COMP_CWORD", "2")
    with pytest.raises(SystemExit) as ended:
        main([])
    assert ended.value.code == 0
    words = [line.partition(",")[2] for line in capsys.readouterr().out.split()]
    assert words == ["resume", "reset", "rebuild", "reverse"]


def test_hidden_commands_are_those_that_headrace_starts() -> None:
    hidden = {name for name, entry in COMMANDS.items() if entry.hidden}
    test = COMMANDS["test"]
    assert isinstance(test, Noun)
    hidden |= {f"test {name}" for name, entry in test.commands.items() if entry.hidden}
    assert hidden == {"operator", "driver", *(f"test {one}" for one in HIDDEN["headrace test"])}
