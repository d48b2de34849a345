"""``headrace completion``: prints the script that completes commands and options in a shell."""

import click
from click.shell_completion import get_completion_class

_SHELLS = ("bash", "zsh", "fish")


@click.command()
@click.argument("shell", type=click.Choice(_SHELLS), metavar="SHELL")
@click.pass_context
def command(ctx: click.Context, shell: str) -> None:
    """Print the script that completes headrace's commands and options in SHELL.

    SHELL is bash, zsh or fish. The script needs bash 4.4 or later.

    Examples:
      source <(headrace completion bash)
      source <(headrace completion zsh)
      headrace completion fish | source
    """
    found = get_completion_class(shell)
    assert found is not None  # one of _SHELLS
    script = found(ctx.find_root().command, {}, "headrace", "_HEADRACE_COMPLETE")
    click.echo(script.source())
