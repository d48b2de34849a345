"""The wire client against a real broker: batches as they are, ends of logs, fences, logins."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from kio.schema.errors import ErrorCode
from support.batches import record_batch
from support.patience import WITHIN_S
from support.records import make_topic, unique
from support.security import Mounted, access, by_password

from headrace.api import ClusterAccess, ClusterSpec, TopicPartition
from headrace.kafka.errors import AuthenticationFailed, TlsFailed
from headrace.kafka.wire import (
    LATEST,
    READ_COMMITTED,
    READ_UNCOMMITTED,
    Answer,
    Batch,
    ClusterClient,
    EventLoop,
    Fetched,
    FetchPosition,
    ProducerIdentity,
    RequestRefused,
    Session,
    Transactions,
    describe_producers,
    epoch_ends,
    fetch_call,
    list_offsets,
    log_ends,
    produce_call,
    split_batches,
    start,
)
from headrace.sandbox import Authority, ClusterPlan, Sandbox
from headrace.sandbox import SandboxCluster as Brokers

pytestmark = pytest.mark.in_one_worker
LOGIN_LASTS_S = 4.0
"""Lifetime of a login.

It is renewed at 95 % of that at the latest: by then something has to run the loop.
"""
PROPERTIES = {"connections.max.reauth.ms": str(int(LOGIN_LASTS_S * 1000))}


@pytest.fixture(scope="module")
def sandbox(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sandbox]:
    plan = ClusterPlan("east", secure=True, properties=PROPERTIES)
    home = tmp_path_factory.mktemp("sandboxes")
    with Sandbox.start("wire", [plan], home=home) as sandbox:
        yield sandbox


@pytest.fixture(scope="module")
def brokers(sandbox: Sandbox) -> Brokers:
    return sandbox.cluster("east")


@contextmanager
def client(access: ClusterAccess) -> Iterator[ClusterClient]:
    loop = EventLoop()
    cluster = ClusterClient(loop, access)
    yield cluster
    cluster.close()
    loop.close()


def access_to(brokers: Brokers) -> ClusterAccess:
    return ClusterAccess(ClusterSpec(alias="east", bootstrap_servers=brokers.bootstrap_servers))


@pytest.fixture
def cluster(brokers: Brokers) -> Iterator[ClusterClient]:
    with client(access_to(brokers)) as cluster:
        yield cluster


def run(cluster: ClusterClient, coroutine: Any) -> Any:
    return cluster.loop.wait(start(coroutine), WITHIN_S)


@pytest.fixture
def at(brokers: Brokers, cluster: ClusterClient) -> TopicPartition:
    """Create a partition of a topic of this test's own, which the client knows."""
    at = TopicPartition(unique("wire"), 0)
    make_topic(access_to(brokers), at.topic, 1)
    run(cluster, log_ends(cluster, [at])).all()
    return at


async def produce(
    cluster: ClusterClient,
    at: TopicPartition,
    batch: bytearray,
    transactional_id: str | None = None,
) -> Answer:
    led = cluster.view.leadership(at)
    assert led
    connection = await cluster.connection(led.leader)
    sent = produce_call({at.topic: {at.partition: batch}}, transactional_id=transactional_id)
    response = await connection.send(sent)
    return response.answers[at]


async def fetch(
    cluster: ClusterClient, at: TopicPartition, offset: int = 0, isolation: int = READ_UNCOMMITTED
) -> tuple[Fetched, list[Batch]]:
    topic, led = cluster.view.topics[at.topic], cluster.view.leadership(at)
    assert topic.id
    assert led
    wanted = FetchPosition(topic.id, at.partition, offset, 1 << 20, leader_epoch=led.epoch)
    connection = await cluster.connection(led.leader, "fetch")
    response = await connection.send(fetch_call([wanted], isolation=isolation, max_wait_ms=100))
    (fetched,) = response.partitions
    return fetched, split_batches(fetched.records).batches


def test_the_view_has_topics_with_ids_and_leaders(
    cluster: ClusterClient, at: TopicPartition
) -> None:
    topic = cluster.view.topics[at.topic]

    assert cluster.view.cluster_id
    assert topic.id
    assert cluster.view.leadership(at) == topic.partitions[0]
    assert topic.partitions[0].leader in cluster.view.brokers
    nothing = run(cluster, cluster.refresh(["no-such-topic"])).topics["no-such-topic"]
    assert nothing.error is ErrorCode.unknown_topic_or_partition


def test_a_batch_comes_back_byte_by_byte(cluster: ClusterClient, at: TopicPartition) -> None:
    batches = [record_batch([b"a", b"b"]), record_batch([b"c" * 1000])]

    answers = [run(cluster, produce(cluster, at, batch)) for batch in batches]
    fetched, found = run(cluster, fetch(cluster, at))

    assert [(one.code, one.base_offset) for one in answers] == [
        (ErrorCode.none, 0),
        (ErrorCode.none, 2),
    ]
    assert [batch.base_offset for batch in found] == [0, 2]
    for sent, batch in zip(batches, found, strict=True):
        # Base offset and leader epoch are the broker's; the checksum covers neither.
        assert batch.data[8:12] == sent[8:12]
        assert batch.data[16:] == sent[16:]
        assert batch.intact
    assert (fetched.error, fetched.high_watermark) == (ErrorCode.none, 3)


def test_a_session_tells_only_news(cluster: ClusterClient, at: TopicPartition) -> None:
    run(cluster, produce(cluster, at, record_batch([b"a"])))
    topic = cluster.view.topics[at.topic]
    assert topic.id
    wanted = FetchPosition(topic.id, 0, 0, 1 << 20)
    connection = run(cluster, cluster.connection(topic.partitions[0].leader))

    def ask(session: Session, *wanted: FetchPosition) -> Any:
        asked = fetch_call(wanted, session=session, max_wait_ms=10)
        return cluster.loop.wait(connection.send(asked), WITHIN_S)

    opened = ask(Session(0, 0), wanted)
    advanced = FetchPosition(topic.id, 0, 1, 1 << 20)
    second = ask(Session(opened.session_id, 1), advanced)
    third = ask(Session(opened.session_id, 2))

    assert opened.session_id > 0
    assert len(opened.partitions) == 1
    assert (second.error, third.error) == (ErrorCode.none, ErrorCode.none)
    assert third.partitions == []


def test_ends_of_a_log_are_the_leaders(
    cluster: ClusterClient, at: TopicPartition, wait_until: Callable[..., Any]
) -> None:
    run(cluster, produce(cluster, at, record_batch([b"a", b"b", b"c"])))

    end = run(cluster, log_ends(cluster, [at])).all()[at]
    listed = run(cluster, list_offsets(cluster, [at], LATEST)).all()[at]
    before = run(cluster, epoch_ends(cluster, {at: end.leader_epoch})).all()[at]

    assert (end.end_offset, listed.offset, before) == (3, 3, end)
    elsewhere = TopicPartition("no-such-topic", 0)
    wait_until(
        lambda: run(cluster, log_ends(cluster, [at, elsewhere], timeout_s=0.5)),
        until=lambda seen: (
            list(seen.found) == [at]
            and "no-such-topic-0: Broker: Unknown topic" in str(seen.failed[elsewhere])
        ),
    )


def test_a_marker_fences_the_old_epoch(
    cluster: ClusterClient, at: TopicPartition, wait_until: Callable[..., Any]
) -> None:
    transactions = Transactions(cluster, unique("task"))
    old = run(cluster, transactions.init_producer_id())

    def send(identity: ProducerIdentity, sequence: int) -> ErrorCode:
        batch = record_batch(
            [b"x"],
            producer_id=identity.producer_id,
            producer_epoch=identity.epoch,
            base_sequence=sequence,
        )
        code: ErrorCode = run(cluster, produce(cluster, at, batch)).code
        return code

    assert send(old, 0) is ErrorCode.none
    new = run(cluster, transactions.init_producer_id())
    assert (new.producer_id, new.epoch) == (old.producer_id, old.epoch + 1)
    assert send(old, 1) is ErrorCode.none, "an epoch alone fences no data"

    run(cluster, transactions.add_partitions(new, [at]))
    run(cluster, transactions.end(new, commit=False))
    marker = seen_marker(cluster, at, new)

    assert marker.base_offset == 2
    assert send(old, 2) is ErrorCode.invalid_producer_epoch
    assert send(new, 0) is ErrorCode.none
    with pytest.raises(RequestRefused) as refused:
        run(cluster, transactions.add_partitions(old, [at]))
    assert refused.value.code in (ErrorCode.invalid_producer_epoch, ErrorCode.producer_fenced)
    (state,) = run(cluster, describe_producers(cluster, [at])).all()[at]
    assert (state.producer_id, state.producer_epoch) == (new.producer_id, new.epoch)
    wait_until(
        lambda: run(cluster, transactions.describe()),
        until=lambda described: (
            (described.transaction_state, described.producer_epoch) == ("CompleteAbort", new.epoch)
        ),
    )


def seen_marker(cluster: ClusterClient, at: TopicPartition, identity: ProducerIdentity) -> Batch:
    """Return a marker. It is written after the coordinator's answer: read until then."""
    deadline, offset = time.monotonic() + WITHIN_S, 0
    while time.monotonic() < deadline:
        found: list[Batch] = run(cluster, fetch(cluster, at, offset))[1]
        for batch in found:
            if batch.control and batch.producer_epoch == identity.epoch:
                return batch
            offset = batch.last_offset + 1
    pytest.fail(f"no marker of {identity} within {WITHIN_S} s, up to offset {offset}")


def test_aborted_transactions_are_told(cluster: ClusterClient, at: TopicPartition) -> None:
    name = unique("task")
    transactions = Transactions(cluster, name)
    owner = run(cluster, transactions.init_producer_id())
    run(cluster, transactions.add_partitions(owner, [at]))
    batch = record_batch(
        [b"x"],
        producer_id=owner.producer_id,
        producer_epoch=owner.epoch,
        base_sequence=0,
        attributes=0x10,
    )
    assert run(cluster, produce(cluster, at, batch, name)).code is ErrorCode.none
    open_, _ = run(cluster, fetch(cluster, at))
    run(cluster, transactions.end(owner, commit=False))
    seen_marker(cluster, at, owner)

    fetched, found = run(cluster, fetch(cluster, at, isolation=READ_COMMITTED))

    assert (open_.last_stable_offset, open_.high_watermark) == (0, 1)
    assert fetched.aborted == [(owner.producer_id, 0)]
    assert open_.aborted is None
    assert [batch.control for batch in found] == [False, True]


@pytest.fixture
def mounted(sandbox: Sandbox, tmp_path: Path) -> Mounted:
    return Mounted(tmp_path / "mounted", sandbox.secrets)


@pytest.mark.parametrize("mechanism", ["Plain", "ScramSha256", "ScramSha512"])
def test_a_login_over_tls_lasts(
    brokers: Brokers, mounted: Mounted, mechanism: str, wait_until: Callable[..., Any]
) -> None:
    with client(access(by_password(brokers, mechanism), mounted.folder)) as cluster:

        def lasts_unless_we_stall() -> bool:
            run(cluster, cluster.refresh())
            connection = run(cluster, cluster.any_connection())
            seen_s = began_s = time.monotonic()
            longest_s = 0.0

            def is_over() -> bool:
                nonlocal seen_s, longest_s
                run(cluster, cluster.refresh())
                now_s = time.monotonic()
                seen_s, longest_s = now_s, max(longest_s, now_s - seen_s)
                return now_s > began_s + 1.5 * LOGIN_LASTS_S

            wait_until(is_over, every_s=0.01)  # brokers end connections with an expired login
            lasts = (
                connection.closed_by is None
                and run(cluster, cluster.any_connection()) is connection
            )
            assert lasts or longest_s > 0.05 * LOGIN_LASTS_S
            return lasts

        wait_until(lasts_unless_we_stall)


def test_what_does_not_open_the_cluster_says_so(brokers: Brokers, mounted: Mounted) -> None:
    east = access(by_password(brokers), mounted.folder)
    password = mounted.password(brokers)
    mounted.write("east-user", {"password": b"wrong"})
    with client(east) as cluster:
        with pytest.raises(AuthenticationFailed, match="refuses the login of"):
            run(cluster, cluster.refresh())

        mounted.write("east-user", {"password": password.encode()})
        assert run(cluster, cluster.refresh()).brokers, "a corrected Secret needs no restart"

    mounted.write("east-ca", {"ca.crt": Authority("other").certificate})
    with client(east) as cluster, pytest.raises(TlsFailed, match="is refused: "):
        run(cluster, cluster.refresh())
