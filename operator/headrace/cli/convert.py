"""``headrace convert``: converts configurations of other tools and versions to manifests."""

import sys
from pathlib import Path

import click

from headrace.convert import read, write
from headrace.errors import InvalidSpec


@click.command()
@click.argument("file", type=click.Path(path_type=Path, allow_dash=True))
def command(file: Path) -> None:
    """Print FILE as manifests of the current version; - reads standard input.

    FILE contains flows and mirror tests of headrace.dev/v1alpha1, also as kubectl get -o yaml
    prints them, Strimzi's KafkaMirrorMaker2, or the properties of a dedicated MirrorMaker 2. Every
    setting without a counterpart is listed as a comment and on standard error.

    Examples:
      headrace convert mm2.properties > flows.yaml
      headrace convert old.yaml > flows.yaml
      kubectl get rflow,mtest -A -o yaml | headrace convert -
    """
    found = read(file, _text(file))
    click.echo(write(found), nl=False)
    for one in found:
        for note in one.notes:
            name = one.document["metadata"].get("name")
            place = f"{note.included or file}:{note.line}"
            click.echo(f"{place}: {name}: {note.setting}: {note.sentence}", err=True)


def _text(file: Path) -> str:
    try:
        data = sys.stdin.buffer.read() if str(file) == "-" else file.read_bytes()
        return data.decode()
    except OSError as error:
        raise InvalidSpec(f"{file}: cannot be read: {error.strerror}") from None
    except UnicodeDecodeError:
        raise InvalidSpec(f"{file}: cannot be read: it is not UTF-8 text") from None
