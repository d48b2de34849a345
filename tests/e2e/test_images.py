"""The images as they were built: their contents, their secrets, and their users."""

import json
import re
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from cluster.real import Cluster
from e2e.stage import RESTRICTED
from images.catalogue import KAFKA, PRODUCT, VERSION, Image
from images.secrets import secrets

IMAGES = (*PRODUCT, KAFKA)
ENTRY_POINTS = {
    "headrace": ["headrace"],
    "headrace-spark": ["/opt/headrace/entrypoint.sh"],
    "headrace-kafka": ["/opt/kafka/entrypoint.sh"],
}
TELLING = (".crt", ".pem", ".p12", ".conf", ".toml", "/cacerts", "/.netrc")
"""Names of files that an authority or an index could have been left in."""

each_image = pytest.mark.parametrize("image", IMAGES, ids=[image.name for image in IMAGES])


@each_image
def test_an_image_says_what_it_is(image: Image) -> None:
    config = configuration(image)["config"]
    assert config["User"] == "10001:10001"
    assert config["Entrypoint"] == ENTRY_POINTS[image.name]
    assert config["Labels"]["org.opencontainers.image.version"] == VERSION
    print(f"{image.tag}: {image.archive.stat().st_size / 1e6:.0f} MB")


@each_image
def test_nothing_of_the_building_machine_stays_in_an_image(image: Image) -> None:
    text = json.dumps(configuration(image))
    for word in ("ca.pem", "pip.conf", "PIP_", "index-url", "_proxy", "_PROXY", "SSL_CERT"):
        assert word not in text
    own = machine_secrets()
    print(f"looked for {len(own)} authorities and settings of this machine")
    found = [name for name, content in telling_files(image) if any(one in content for one in own)]
    assert found == []


@each_image
def test_an_image_is_run_by_its_user_and_can_write_nothing(
    image: Image, cluster: Cluster, images: None, namespace: str
) -> None:
    """Run the image under restricted pod security, which the namespace demands."""
    script = "id -u; id -un; touch /opt/mine /usr/local/bin/mine 2>&1; touch /tmp/mine && ls /tmp"
    container = {
        "name": "script",
        "image": image.tag,
        "imagePullPolicy": "Never",
        "command": ["sh", "-c", script],
        "volumeMounts": [{"name": "scratch", "mountPath": "/tmp"}],
        "securityContext": {**RESTRICTED, "readOnlyRootFilesystem": True},
    }
    spec = {
        "restartPolicy": "Never",
        "containers": [container],
        "volumes": [{"name": "scratch", "emptyDir": {}}],
    }
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "pod"}, "spec": spec}
    cluster.apply(pod, namespace=namespace)
    ended = "--for=jsonpath={.status.phase}=Succeeded"
    cluster.kubectl("-n", namespace, "wait", ended, "--timeout=300s", "pod/pod")
    id, name, *refused, mine = cluster.kubectl("-n", namespace, "logs", "pod").splitlines()
    assert (id, name, mine) == ("10001", "kafka" if image is KAFKA else "headrace", "mine")
    assert [line.endswith("Read-only file system") for line in refused] == [True, True]


def configuration(image: Image) -> dict[str, Any]:
    """Return the image's configuration, including its history."""
    with tarfile.open(image.archive) as archive:
        found: dict[str, Any] = _json(archive, _json(archive, "manifest.json")[0]["Config"])
        return found


def telling_files(image: Image) -> Iterator[tuple[str, bytes]]:
    """Yield files of all layers that could reveal secrets, even if a later layer hides them."""
    with tarfile.open(image.archive) as archive:
        for name in _json(archive, "manifest.json")[0]["Layers"]:
            with tarfile.open(fileobj=archive.extractfile(name)) as layer:
                for member in layer:
                    if member.isfile() and member.name.endswith(TELLING):
                        content = layer.extractfile(member)
                        assert content
                        yield member.name, content.read()


def machine_secrets() -> set[bytes]:
    """Return certificates that only this machine trusts, and addresses of pip's indices."""
    with secrets() as files:
        bundle = files["ca.pem"].read_bytes() if "ca.pem" in files else b""
        pip = files["pip.conf"].read_bytes()
    debian = b"".join(p.read_bytes() for p in Path("/usr/share/ca-certificates").rglob("*.crt"))
    pattern = rb"-----BEGIN CERTIFICATE-----\s+(.+?)\s+-----END"
    theirs = set(re.findall(pattern, debian, re.S))
    return {one for one in re.findall(pattern, bundle, re.S) if one not in theirs} | set(
        re.findall(rb"https?://\S+", pip)
    )


def _json(archive: tarfile.TarFile, name: str) -> Any:
    file = archive.extractfile(name)
    assert file
    return json.load(file)
