"""The images as they were built: what is in them, what is not, and what they do."""

import json
import re
import socket
import subprocess
import tarfile
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from e2e.containers import SHARED, container
from images.catalogue import KAFKA, PRODUCT, VERSION, Image
from images.secrets import secrets

from headrace.controller.mirror_tests.jobs import Stage

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
    told = json.dumps(configuration(image))
    for word in ("ca.pem", "pip.conf", "PIP_", "index-url", "_proxy", "_PROXY", "SSL_CERT"):
        assert word not in told
    own = machine_secrets()
    print(f"looked for {len(own)} authorities and settings of this machine")
    found = [name for name, content in telling_files(image) if any(one in content for one in own)]
    assert found == []


@each_image
def test_an_image_is_run_by_its_user_and_can_write_nothing(image: Image, tmp_path: Path) -> None:
    script = (
        "id -u; id -un; touch /opt/mine; touch /usr/local/bin/mine; echo > /tmp/mine && ls /tmp"
    )
    with container(image, ["sh", "-c", script], tmp_path) as process:
        said, _ = process.communicate(timeout=60)
    name = "kafka" if image is KAFKA else "headrace"
    assert said.split("\n")[:2] == ["10001", name]
    assert said.count("Read-only file system") == 2
    assert "mine" in said.split("\n")[-3:]


@pytest.mark.parametrize(
    ("image", "command", "expected"),
    [
        (PRODUCT[0], ["headrace", "--version"], f"headrace, version {VERSION}"),
        (PRODUCT[0], ["headrace", "operator", "--help"], "--spark-image"),
        (PRODUCT[0], ["headrace", "driver", "--help"], "--pod-uid"),
        *(
            (PRODUCT[1], ["python", f"/opt/headrace/spark-jobs/{stage}.py", "--help"], "--secrets")
            for stage in Stage
        ),
    ],
    ids=lambda value: value[-2].rsplit("/")[-1] if isinstance(value, list) else None,
)
def test_the_programs_of_the_pods_are_in_the_images(
    image: Image, command: list[str], expected: str, tmp_path: Path
) -> None:
    with container(image, command, tmp_path) as process:
        said, _ = process.communicate(timeout=120)
    assert process.returncode == 0, said
    assert expected in said


@pytest.mark.timeout(900)
def test_spark_sends_to_and_reads_from_a_broker_of_the_kafka_image(tmp_path: Path) -> None:
    ports = free_ports(3)
    write_test(tmp_path / "test.json", ports)
    broker = container(
        KAFKA,
        ENTRY_POINTS[KAFKA.name],
        tmp_path,
        env=listeners(*ports),
        writable=("/tmp", "/var/lib/kafka"),
    )
    with broker as kafka:
        wait_for(kafka, ports[:2])
        run = ["--test", f"{SHARED}/test.json", "--run", "run-1", "--out", f"{SHARED}/out"]
        for stage in (Stage.PRODUCE, Stage.VERIFY):
            submit = ["spark-submit", *SPARK, f"/opt/headrace/spark-jobs/{stage}.py", *run]
            with container(PRODUCT[1], submit, tmp_path) as process:
                said, _ = process.communicate(timeout=400)
            assert process.returncode == 0, said[-3000:]
    report = json.loads((tmp_path / "out" / "report.json").read_text())
    assert report["verdict"] == "Passed", report["reasons"]
    assert report["counts"]["acknowledged"] == 2 * 500
    assert (tmp_path / "out" / "report.html").exists()


SPARK = (
    "--master=local[2]",
    "--driver-memory=700m",
    "--driver-java-options=-XX:+UseSerialGC",
    "--conf=spark.ui.enabled=false",
    "--conf=spark.driver.host=127.0.0.1",
    "--conf=spark.driver.bindAddress=127.0.0.1",
    "--conf=spark.sql.shuffle.partitions=2",
)


def listeners(clients: int, others: int, controllers: int) -> dict[str, str]:
    """One broker with two listeners for clients, as in a cluster it has one for pods of its own."""
    host = "127.0.0.1"
    both = f"PLAINTEXT://{host}:{clients},OTHERS://{host}:{others}"
    return {
        "KAFKA_LISTENERS": f"{both},CONTROLLER://{host}:{controllers}",
        "KAFKA_ADVERTISED_LISTENERS": both,
        "KAFKA_LISTENER_SECURITY_PROTOCOL_MAP": (
            "PLAINTEXT:PLAINTEXT,OTHERS:PLAINTEXT,CONTROLLER:PLAINTEXT"
        ),
        "KAFKA_CONTROLLER_QUORUM_VOTERS": f"1@{host}:{controllers}",
    }


def write_test(path: Path, ports: list[int]) -> None:
    """A mirror that has nothing to do: source and target are one broker, by its two listeners."""
    clusters = [
        {"alias": alias, "bootstrapServers": f"127.0.0.1:{port}"}
        for alias, port in zip(("east", "west"), ports, strict=False)
    ]
    load = {"topics": 2, "partitions": 2, "producers": 2, "messages": 1000}
    spec = {"source": clusters[0], "target": clusters[1], "targetTopic": "{topic}", "load": load}
    kind = {"apiVersion": "headrace.dev/v1alpha1", "kind": "MirrorTest"}
    metadata = {"name": "images", "namespace": "default"}
    path.write_text(json.dumps({**kind, "metadata": metadata, "spec": spec}))


def free_ports(count: int) -> list[int]:
    """Ports that nobody listens on now."""
    with ExitStack() as stack:
        sockets = [
            stack.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in range(count)
        ]
        return [one.getsockname()[1] for one in sockets]


def wait_for(broker: "subprocess.Popen[str]", ports: list[int]) -> None:
    """Until the broker takes connections on all of them."""
    deadline = time.monotonic() + 120
    for port in ports:
        while True:
            try:
                socket.create_connection(("127.0.0.1", port), timeout=1).close()
                break
            except OSError:
                if broker.poll() is not None or time.monotonic() > deadline:
                    broker.kill()
                    pytest.fail(f"no broker on port {port}: {broker.communicate()[0]}")
                time.sleep(0.1)


def configuration(image: Image) -> dict[str, Any]:
    """Its configuration, history included."""
    with tarfile.open(image.archive) as archive:
        return _json(archive, _json(archive, "manifest.json")[0]["Config"])


def telling_files(image: Image) -> Iterator[tuple[str, bytes]]:
    """Files that could tell of it, of all layers: what a later layer hides is still there."""
    with tarfile.open(image.archive) as archive:
        for name in _json(archive, "manifest.json")[0]["Layers"]:
            with tarfile.open(fileobj=archive.extractfile(name)) as layer:
                for member in layer:
                    if member.isfile() and member.name.endswith(TELLING):
                        content = layer.extractfile(member)
                        assert content
                        yield member.name, content.read()


def machine_secrets() -> set[bytes]:
    """Certificates that this machine trusts and Debian does not; addresses of pip's indices."""
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
