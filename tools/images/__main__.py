"""``python -m images build | test | push | bundle | sbom``, in ``tools``: make targets."""

import os
import sys
from collections.abc import Iterable

import click

from headrace.errors import Fatal, HeadraceError
from images.base import STAND_IN, have_base
from images.bundle import NAMESPACE, write_bundle
from images.catalogue import BASE, KAFKA, PRODUCT, ROOT, TOOLCHAIN, Image, of_platform
from images.chart import find_helm, push_chart, render_chart
from images.engine import CONSOLE, Engine, find_engine
from images.sbom import describe
from images.secrets import secrets
from images.sign import find_signer


@click.group()
def main() -> None:
    """Build the images of headrace."""


@main.command()
def build() -> None:
    """Build the two images of the product."""
    _build(_product())


@main.command()
def test() -> None:
    """The tests' brokers too, and an archive of each for the tests' cluster."""
    engine = _build((*PRODUCT, TOOLCHAIN, KAFKA))
    for image in (*PRODUCT, KAFKA):
        CONSOLE.print(f"{engine.save(image)}")


@main.command()
@click.argument("registry")
def push(registry: str) -> None:
    """Push the product's images and the chart to REGISTRY, such as registry.example/team."""
    if not registry:
        raise click.UsageError(
            "say where to push: make push REGISTRY=registry.example/team (log in before, with "
            "`docker login` or `buildah login`)"
        )
    product, helm, signer = _product(), find_helm(), find_signer()
    engine = _build(product)
    if any(engine.label(image, STAND_IN) for image in product):
        raise Fatal(
            f"nothing was pushed: the base image {BASE} here is a stand-in, made for tests; remove "
            f"it (`{engine.program} rmi {BASE}`), and push where the real one can be pulled"
        )
    for image in product:
        name = f"{registry.rstrip('/')}/{image.tag}"
        CONSOLE.print(f"Pushing {name}")
        digest = engine.push(image, name)
        pushed = f"{name.rpartition(':')[0]}@{digest}"
        CONSOLE.print(pushed)
        if signer:
            spdx, _ = describe(image, engine.save(image))
            signer.sign(pushed)
            signer.attest(pushed, spdx)
    chart = push_chart(helm, registry)
    CONSOLE.print(chart)
    if signer:
        signer.sign(chart)


@main.command()
@click.argument("repository")
def bundle(repository: str) -> None:
    """Write a bundle for OLM into ``dist/bundle``; its image is in REPOSITORY."""
    if not repository:
        raise click.UsageError(
            "name the repository of the image: make bundle "
            "REPOSITORY=registry.example/team/headrace"
        )
    folder = write_bundle(render_chart(find_helm(), NAMESPACE, repository), ROOT / "dist/bundle")
    CONSOLE.print(f"{folder}")


@main.command()
def sbom() -> None:
    """List the contents of the product's images, and their licences."""
    product = _product()
    engine = _build(product)
    for image in product:
        for path in describe(image, engine.save(image)):
            CONSOLE.print(f"{path}")


def _product() -> tuple[Image, ...]:
    return of_platform(PRODUCT, os.environ.get("HEADRACE_PLATFORM", ""))


def _build(images: Iterable[Image]) -> Engine:
    images = tuple(images)
    engine = find_engine()
    if not any(image.platform for image in images):
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
