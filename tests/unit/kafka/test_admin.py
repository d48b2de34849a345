"""Clients that are replaced, and answers that mislead."""

import gc
import weakref
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient
from kio.schema.errors import ErrorCode
from kio.schema.metadata.v12 import response as metadata
from support.fake_broker import Request, acls_are_listed, metadata_of, serving

from headrace.api import ClusterAccess, ClusterSpec
from headrace.errors import Fatal, Retriable
from headrace.kafka import AclAdmin, Admin, AdminTimings


class FakeAdminClient:
    """Client that answers with its cluster id."""

    def describe_cluster(self, **_: Any) -> "Future[Any]":
        future: Future[Any] = Future()
        future.set_result(SimpleNamespace(cluster_id="east-id"))
        return future

    def poll(self, _: float) -> int:
        return 0


class Interrupting(Future[Any]):
    """Future during whose wait the Secrets change and another thread requests a client."""

    def __init__(self, east: Admin, password: Path, client: "weakref.ref[FakeAdminClient]") -> None:
        super().__init__()
        self._east, self._password, self._client = east, password, client

    def result(self, timeout: float | None = None) -> Any:
        self._password.write_text("other")
        self._east.cluster_id()
        gc.collect()
        assert self._client() is not None, "destroyed, with the request that is on its way"
        return SimpleNamespace(valid=[SimpleNamespace(group_id="billing")], errors=[])


def making(*clients: Any) -> Callable[[dict[str, Any]], AdminClient]:
    """Return a function that creates these clients in turn."""
    left = iter(clients)
    return lambda _: next(left)


def test_a_client_is_kept_until_it_has_answered(tmp_path: Path) -> None:
    class Replaced(FakeAdminClient):
        def list_consumer_groups(self, **_: Any) -> Any:
            return Interrupting(east, password, weakref.ref(self))

    (password := tmp_path / "user" / "password").parent.mkdir()
    password.write_text("secret")
    login = {
        "type": "Plain", "username": "me", "password": {"secretName": "user", "key": "password"}
    }  # fmt: skip
    spec = ClusterSpec.model_validate(
        {"alias": "east", "bootstrapServers": "127.0.0.1:1", "authentication": login}
    )
    made: list[str] = []

    def make_client(config: dict[str, Any]) -> Any:
        made.append(config["sasl.password"])
        return Replaced()

    east = Admin(
        ClusterAccess(spec, secrets=tmp_path),
        timeout_s=0.3,
        make_client=make_client,
        timings=AdminTimings(secrets_poll_interval_s=0.0),
    )
    assert east.groups() == {"billing"}
    assert made == ["secret", "other"]


@pytest.mark.parametrize("code", [KafkaError._TIMED_OUT, KafkaError._TRANSPORT])
def test_a_client_that_no_broker_answers_is_not_asked_again(code: int) -> None:
    # librdkafka's issue 5301: after a fenced broker's answer without brokers it may never
    # reconnect, while a new client is answered at once.
    class Silent(FakeAdminClient):
        def describe_cluster(self, **_: Any) -> "Future[Any]":
            raise KafkaException(KafkaError(code))

    spec = ClusterSpec(alias="east", bootstrap_servers="127.0.0.1:1")
    clients = making(Silent(), FakeAdminClient())
    east = Admin(ClusterAccess(spec), timeout_s=0.3, make_client=clients)
    with pytest.raises(Retriable, match="read the cluster id of east"):
        east.cluster_id()
    assert east.cluster_id() == "east-id"


def test_a_broker_that_lists_no_groups_is_retried() -> None:
    # Each broker has its own answer: the errors of some are in the result.
    class OneIsSilent(FakeAdminClient):
        def list_consumer_groups(self, **_: Any) -> "Future[Any]":
            future: Future[Any] = Future()
            error = KafkaError(KafkaError._TIMED_OUT)
            future.set_result(SimpleNamespace(valid=[], errors=[error]))
            return future

    spec = ClusterSpec(alias="east", bootstrap_servers="127.0.0.1:1")
    east = Admin(ClusterAccess(spec), timeout_s=0.3, make_client=making(OneIsSilent()))
    with pytest.raises(Retriable, match="list the consumer groups of east"):
        east.groups()


ACL = {
    "topic": "orders",
    "pattern": "Literal",
    "principal": "User:ann",
    "host": "*",
    "operation": "Read",
    "permission": "Allow",
}
NO_RIGHT, NO_AUTHORIZER = ErrorCode.cluster_authorization_failed, ErrorCode.security_disabled


@pytest.mark.parametrize(
    ("code", "request_acls", "sentence"),
    [
        (NO_RIGHT, lambda acls: acls.topic_acls(), "has no Describe on it .* Describe --cluster"),
        (NO_RIGHT, lambda acls: acls.add_acls([ACL]), "has no Alter on it .* Alter --cluster"),
        (NO_RIGHT, lambda acls: acls.remove_acls([ACL]), "User:ANONYMOUS has no Alter on it"),
        (NO_AUTHORIZER, lambda acls: acls.topic_acls(), "have no authorizer"),
    ],
)
def test_what_keeps_acls_from_being_read_and_changed_is_named(
    code: ErrorCode,
    request_acls: Callable[[AclAdmin], object],
    sentence: str,
) -> None:
    class Refusing(FakeAdminClient):
        def describe_acls(self, *_: Any, **__: Any) -> "Future[Any]":
            """Return an empty list, as the client does even if the brokers reject the request."""
            future: Future[Any] = Future()
            future.set_result([])
            return future

        def create_acls(self, acls: Any, **_: Any) -> "dict[Any, Future[Any]]":
            future: Future[Any] = Future()
            future.set_exception(KafkaException(KafkaError(code.value)))
            return dict.fromkeys(acls, future)

        delete_acls = create_acls

    with serving() as serve:
        broker = serve(acls_are_listed(code))
        spec = ClusterSpec(alias="east", bootstrap_servers=f"127.0.0.1:{broker.port}")
        with pytest.raises(Fatal, match=f"ACLs of .*east.*{sentence}"):
            request_acls(AclAdmin(ClusterAccess(spec), make_client=making(Refusing())))


@pytest.mark.parametrize(
    ("first", "second", "found"),
    [
        ({"orders": 4}, {"orders": 4}, {"orders": 4}),
        ({"orders": 3, "users": 1}, {"orders": 4, "users": 1}, {"orders": 3, "users": 1}),
        ({"orders": 4}, {"orders": 5}, {"orders": 3}),
        ({"orders": 3, "users": 1}, {"orders": 3, "users": 2}, {"orders": 3, "users": 1}),
        ({"orders": 3, "users": 1}, {"users": 1}, {"orders": 3, "users": 1}),
        ({"users": 1}, {"orders": 3}, {"orders": 3}),
        ({}, {}, {}),
    ],
)
def test_topic_that_differs_in_two_lists_is_not_left_out(
    first: dict[str, int], second: dict[str, int], found: dict[str, int]
) -> None:
    lists = iter([{"orders": 3}, {"orders": 3}, first, second])
    with serving() as serve:
        broker = serve({})

        def answer(request: Request) -> metadata.MetadataResponse:
            return listed(broker.port, next(lists) if request.message.topics is None else {})

        broker.script = {**broker.script, 3: answer}
        address = f"127.0.0.1:{broker.port}"
        east = Admin(ClusterAccess(ClusterSpec(alias="east", bootstrap_servers=address)))
        assert east.topics() == {"orders": 3}
        assert east.topics() == found


def listed(port: int, topics: dict[str, int]) -> metadata.MetadataResponse:
    """Return a broker's list of topics with their numbers of partitions."""
    answers = [
        metadata_of({1: port}, dict.fromkeys(range(count), (1, 0)), topic=name)
        for name, count in topics.items()
    ]
    listed = tuple(topic for answer in answers for topic in answer.topics)
    return replace(metadata_of({1: port}, {}), topics=listed)
