"""The program that builds images here: a Docker engine if one answers, else buildah."""

import json
import os
import subprocess
import tarfile
import tempfile
from abc import ABC, abstractmethod
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType

from machine import answering_docker, install, which
from rich.console import Console

from headrace.errors import Fatal
from images.catalogue import ROOT, VERSION, Image

CONSOLE = Console(stderr=True, highlight=False, soft_wrap=True)
JARS = "HEADRACE_MAVEN_REPOSITORY"


class Engine(ABC):
    """The few commands that differ. Each raises Fatal when its program fails."""

    program: str
    environment: Mapping[str, str] = MappingProxyType({})
    _pull_always: str
    """The base image of this machine may be of another platform."""

    @abstractmethod
    def exists(self, name: str) -> bool:
        """Return whether an image of this name exists on the machine."""

    @abstractmethod
    def identity(self, image: Image) -> str:
        """Return the SHA-256 of its configuration."""

    @abstractmethod
    def label(self, image: Image, name: str) -> str:
        """Return the value of one of its labels, or an empty string."""

    @abstractmethod
    def size(self, image: Image) -> str:
        """Return the size of its files in a readable form."""

    @abstractmethod
    def push(self, image: Image, name: str) -> str:
        """Push it under a name that begins with a registry; its digest there, to be signed."""

    @abstractmethod
    def _build_command(self) -> list[str]: ...

    @abstractmethod
    def _save(self, image: Image, path: Path) -> None: ...

    def pull(self, name: str) -> str | None:
        """Fetch an image from its registry, and return the reason of a failure."""
        pulled = self._ask("pull", name)
        return None if pulled.returncode == 0 else pulled.stderr.strip().splitlines()[-1]

    def build(self, image: Image, secrets: Mapping[str, Path]) -> None:
        """Build it from the clone; each of ``secrets`` is mounted as its Dockerfile says."""
        command = self._build_command()
        for name, path in secrets.items():
            command += ["--secret", f"id={name},src={path}"]
        if repository := os.environ.get(JARS):
            command += ["--build-arg", f"{JARS}={repository}"]
        if image.platform:
            command += ["--platform", image.platform, self._pull_always]
        if image.target:
            command += ["--target", image.target]
        command += ["--label", f"org.opencontainers.image.version={VERSION}"]
        self.run(*command, "-f", str(ROOT / image.dockerfile), "-t", image.tag, str(ROOT))

    def save(self, image: Image) -> Path:
        """Return the image's docker-archive, which is written if it has another image."""
        path = image.archive
        if not path.exists() or _archived(path) != self.identity(image):
            path.parent.mkdir(parents=True, exist_ok=True)
            unfinished = path.with_suffix(".part")
            unfinished.unlink(missing_ok=True)
            self._save(image, unfinished)
            unfinished.replace(path)
        return path

    def run(self, *arguments: str) -> None:
        """Run the program, and show its output."""
        done = subprocess.run(
            [self.program, *arguments], env={**os.environ, **self.environment}, check=False
        )
        if done.returncode:
            raise Fatal(f"{self.program} {arguments[0]} failed; the reason is above")

    def _ask(self, *arguments: str) -> "subprocess.CompletedProcess[str]":
        return subprocess.run(
            [self.program, *arguments], capture_output=True, text=True, check=False
        )

    def _output(self, *arguments: str) -> str:
        asked = self._ask(*arguments)
        if asked.returncode:
            raise Fatal(f"{self.program} {' '.join(arguments)}: {asked.stderr.strip()}")
        return asked.stdout.strip()


class Docker(Engine):
    """Docker's engine. Its BuildKit mounts the secrets."""

    environment = MappingProxyType({"DOCKER_BUILDKIT": "1"})
    _pull_always = "--pull"

    def __init__(self, program: str) -> None:
        self.program = program

    def exists(self, name: str) -> bool:
        return self._ask("image", "inspect", name).returncode == 0

    def identity(self, image: Image) -> str:
        identity = self._output("image", "inspect", "--format", "{{.Id}}", image.tag)
        return identity.removeprefix("sha256:")

    def label(self, image: Image, name: str) -> str:
        asked = f'{{{{index .Config.Labels "{name}"}}}}'
        return self._output("image", "inspect", "--format", asked, image.tag)

    def size(self, image: Image) -> str:
        size = int(self._output("image", "inspect", "--format", "{{.Size}}", image.tag))
        return f"{size / 1e6:.0f} MB"

    def push(self, image: Image, name: str) -> str:
        self.run("tag", image.tag, name)
        self.run("push", name)
        repository = name.rpartition(":")[0]
        known = self._output("image", "inspect", "--format", "{{json .RepoDigests}}", name)
        digests = dict(one.split("@") for one in json.loads(known))
        return str(digests[repository])

    def _build_command(self) -> list[str]:
        return ["build", "--network", "host"]

    def _save(self, image: Image, path: Path) -> None:
        self.run("save", "--output", str(path), image.tag)


class Buildah(Engine):
    """A buildah without a daemon, in a chroot, which needs no cgroups."""

    program = "buildah"
    _pull_always = "--pull-always"

    def exists(self, name: str) -> bool:
        return self._ask("inspect", "--type", "image", name).returncode == 0

    def identity(self, image: Image) -> str:
        return self._output("inspect", "--type", "image", "--format", "{{.FromImageID}}", image.tag)

    def label(self, image: Image, name: str) -> str:
        asked = f'{{{{index .OCIv1.Config.Labels "{name}"}}}}'
        return self._output("inspect", "--type", "image", "--format", asked, image.tag)

    def size(self, image: Image) -> str:
        return str(json.loads(self._output("images", "--json", image.tag))[0]["size"])

    def push(self, image: Image, name: str) -> str:
        with tempfile.NamedTemporaryFile() as file:
            self.run("push", "--digestfile", file.name, image.tag, f"docker://{name}")
            return Path(file.name).read_text().strip()

    def _build_command(self) -> list[str]:
        return ["bud", "--layers", "--isolation", "chroot", "--network", "host"]

    def _save(self, image: Image, path: Path) -> None:
        self.run("push", "--quiet", image.tag, f"docker-archive:{path}:{image.tag}")


def find_engine() -> Engine:
    """Return Docker if its engine answers, else buildah."""
    if docker := answering_docker():
        return Docker(docker)
    if not which("buildah"):
        install(["buildah"], "No Docker engine answers, so images are built by buildah", CONSOLE)
    return Buildah()


def _archived(path: Path) -> str:
    """Return the identity of the image in a docker-archive."""
    with tarfile.open(path) as archive:
        manifest = archive.extractfile("manifest.json")
        assert manifest
        config: str = json.load(manifest)[0]["Config"]
    return Path(config).stem
