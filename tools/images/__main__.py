"""``python -m images build | test | push | sbom``, in ``tools``; the Makefile's targets."""

import sys
from collections.abc import Iterable

import click

from headrace.errors import Fatal, HeadraceError
from images.base import STAND_IN, have_base
from images.catalogue import BASE, KAFKA, PRODUCT, TOOLCHAIN, Image
from images.engine import CONSOLE, Engine, find_engine
from images.sbom import describe
from images.secrets import secrets


@click.group()
def main() -> None:
    """Build the images of headrace."""


@main.command()
def build() -> None:
    """The two images of the product."""
    _build(PRODUCT)


@main.command()
def test() -> None:
    """The tests' brokers too, and an archive of each for the tests' cluster."""
    engine = _build((*PRODUCT, TOOLCHAIN, KAFKA))
    for image in (*PRODUCT, KAFKA):
        CONSOLE.print(f"{engine.save(image)}")


@main.command()
@click.argument("registry")
def push(registry: str) -> None:
    """Push the product's images to REGISTRY, such as registry.example/team."""
    if not registry:
        raise click.UsageError(
            "say where to push: make push REGISTRY=registry.example/team (log in before, with "
            "`docker login` or `buildah login`)"
        )
    engine = _build(PRODUCT)
    if any(engine.label(image, STAND_IN) for image in PRODUCT):
        raise Fatal(
            f"nothing was pushed: the base image {BASE} here is a stand-in, made for tests; remove "
            f"it (`{engine.program} rmi {BASE}`), and push where the real one can be pulled"
        )
    for image in PRODUCT:
        name = f"{registry.rstrip('/')}/{image.tag}"
        CONSOLE.print(f"Pushing {name}")
        engine.push(image, name)


@main.command()
def sbom() -> None:
    """List what is inside the product's images, and its licences."""
    engine = _build(PRODUCT)
    for image in PRODUCT:
        for path in describe(image, engine.save(image)):
            CONSOLE.print(f"{path}")


def _build(images: Iterable[Image]) -> Engine:
    engine = find_engine()
    have_base(engine)
    with secrets() as hidden:
        for image in images:
            CONSOLE.rule(f"{image.tag}, by {engine.program}")
            engine.build(image, hidden)
            CONSOLE.print(f"{image.tag}: {engine.size(image)}")
    return engine


if __name__ == "__main__":
    try:
        main()
    except HeadraceError as error:
        sys.exit(f"headrace: {error}")
