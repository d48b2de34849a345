"""Requests find the right broker when brokers start, stop and transfer leadership."""

import socket
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any
from uuid import UUID

import pytest
from kio.schema.errors import ErrorCode
from kio.schema.init_producer_id.v4 import InitProducerIdResponse
from kio.schema.list_groups.v4 import response as listed
from kio.schema.offset_for_leader_epoch.v4 import response as epochs
from kio.schema.types import GroupId, ProducerId, TopicName
from kio.static.primitive import i16, i32, i64
from support.fake_broker import (
    ACCEPTED,
    END_TXN,
    FIND_COORDINATOR,
    NOT_THROTTLED,
    TOPIC_ID,
    FakeBroker,
    Raw,
    Serve,
    Silence,
    Told,
    coordinated_by,
    metadata_of,
    served,
)
from support.patience import WITHIN_S

from headrace.api import ClusterAccess, ClusterSpec, TopicPartition
from headrace.errors import Retriable, Unreachable
from headrace.kafka import Admin
from headrace.kafka.wire.cluster import ClusterClient, ClusterMetadata, led_by, updated
from headrace.kafka.wire.errors import (
    ConnectionLost,
    ForeignBroker,
    RefusedForGood,
    RequestRefused,
    UnsupportedBroker,
)
from headrace.kafka.wire.groups import GroupListing, list_groups
from headrace.kafka.wire.handshake import ConnectionSettings, Server
from headrace.kafka.wire.loop import EventLoop, start
from headrace.kafka.wire.offsets import EpochEnd, log_ends
from headrace.kafka.wire.transactions import ProducerIdentity, Transactions

METADATA, LIST_GROUPS, API_VERSIONS, INIT_PRODUCER_ID, LEADER_EPOCH = 3, 16, 18, 22, 23
AT = TopicPartition("orders", 0)


def end_of(code: ErrorCode, epoch: int = 0, end: int = -1, partition: int = 0) -> Any:
    return epochs.OffsetForLeaderEpochResponse(
        throttle_time=NOT_THROTTLED,
        topics=(
            epochs.OffsetForLeaderTopicResult(
                topic=TopicName("orders"),
                partitions=(
                    epochs.EpochEndOffset(
                        error_code=code,
                        partition=i32(partition),
                        leader_epoch=i32(epoch),
                        end_offset=i64(end),
                    ),
                ),
            ),
        ),
    )


class Two:
    """Brokers 1 and 2 with equal metadata. ``led`` and ``live`` may change."""

    def __init__(self, serve: Serve) -> None:
        self.led: Told = {0: (1, 4)}
        self.live: dict[int, int] = {}
        tell = {METADATA: lambda _: metadata_of(self.live, self.led)}
        self.first, self.second = serve(tell), serve(tell)
        self.live = {1: self.first.port, 2: self.second.port}


@pytest.fixture
def two(serve: Serve) -> Two:
    return Two(serve)


Client = Callable[..., ClusterClient]


@pytest.fixture
def client(loop: EventLoop) -> Iterator[Client]:
    made: list[ClusterClient] = []

    def make(*brokers: FakeBroker, **settings: Any) -> ClusterClient:
        servers = ",".join(f"127.0.0.1:{broker.port}" for broker in brokers)
        spec = ClusterSpec(alias="east", bootstrap_servers=servers)
        made.append(ClusterClient(loop, ClusterAccess(spec), ConnectionSettings(**settings)))
        return made[-1]

    yield make
    for cluster in made:
        cluster.close()


def run(cluster: ClusterClient, coroutine: Any) -> Any:
    return cluster.loop.wait(start(coroutine), WITHIN_S)


def foreign(serve: Serve) -> FakeBroker:
    """Serve a broker of another cluster, which has the same topic."""
    broker = serve({})
    broker.script[METADATA] = lambda _: metadata_of(
        {1: broker.port, 2: broker.port}, {0: (2, 9)}, UUID(int=9), cluster_id="west-id"
    )
    return broker


def test_a_broker_of_another_cluster_is_unreachable_until_it_is_gone(
    serve: Serve, two: Two, client: Client
) -> None:
    stranger = foreign(serve)
    cluster = client(two.first)
    run(cluster, cluster.refresh(["orders"]))
    two.live[2] = stranger.port
    two.led[0] = (2, 5)
    run(cluster, cluster.refresh(["orders"]))

    with pytest.raises(
        ForeignBroker,
        match=rf"127.0.0.1:{stranger.port} belongs to another cluster than east \(.*\): its "
        "cluster id is west-id, and east-id is expected",
    ):
        run(cluster, cluster.connection(2))
    with pytest.raises(ForeignBroker):
        run(cluster, cluster.check_brokers())
    assert {request.api_key for request in stranger.seen} == {METADATA}

    stranger.script[METADATA] = lambda _: metadata_of(two.live, two.led)
    run(cluster, cluster.check_brokers())
    assert run(cluster, cluster.connection(2)).closed_by is None


def test_nothing_is_changed_while_a_foreign_broker_answers(serve: Serve) -> None:
    stranger = foreign(serve)
    spec = ClusterSpec(alias="east", bootstrap_servers=f"127.0.0.1:{stranger.port}")
    admin = Admin(ClusterAccess(spec, cluster_id="east-id"))
    changes: tuple[Callable[[], object], ...] = (
        lambda: admin.create_topic("payments", 1),
        lambda: admin.add_partitions("orders", 9),
        lambda: admin.change_topic_configs({"orders": {"retention.ms": "1"}}),
        lambda: admin.delete_records({TopicPartition("orders", 0): 1}),
        lambda: admin.delete_topic("orders"),
    )
    for change in changes:
        with pytest.raises(Retriable, match="belongs to another cluster than east"):
            change()
    assert {request.api_key for request in stranger.seen} == {METADATA}


def test_a_broker_that_does_not_answer_delays_no_comparison_for_long(
    serve: Serve, client: Client, two: Two
) -> None:
    cluster = client(two.first)
    run(cluster, cluster.refresh(["orders"]))
    with socket.create_server(("127.0.0.1", 0)) as silent:
        two.live[2] = silent.getsockname()[1]
        run(cluster, cluster.check_brokers(0.2))


def test_nothing_that_a_foreign_bootstrap_server_says_is_believed(
    serve: Serve, two: Two, loop: EventLoop
) -> None:
    stranger = foreign(serve)
    servers = f"127.0.0.1:{stranger.port},127.0.0.1:{two.second.port}"
    spec = ClusterSpec(alias="east", bootstrap_servers=servers)
    for _ in range(8):  # servers are queried in random order
        cluster = ClusterClient(loop, ClusterAccess(spec, cluster_id="east-id"))
        view = run(cluster, cluster.refresh(["orders"]))
        assert (view.cluster_id, view.topics["orders"].id) == ("east-id", TOPIC_ID)
        cluster.close()
    alone = ClusterSpec(alias="east", bootstrap_servers=f"127.0.0.1:{stranger.port}")
    cluster = ClusterClient(loop, ClusterAccess(alone, cluster_id="east-id"))
    with pytest.raises(Unreachable, match="belongs to another cluster"):
        run(cluster, cluster.refresh(["orders"]))
    assert cluster.view.topics == {}
    cluster.close()


def test_the_view_comes_from_whichever_bootstrap_server_lives(two: Two, client: Client) -> None:
    two.first.close()

    view = run(cluster := client(two.first, two.second), cluster.refresh(["orders"]))

    assert view.cluster_id == "east-id"
    assert view.brokers[2].server == Server("127.0.0.1", two.second.port)
    assert view.topics["orders"].id == TOPIC_ID
    identity, asked = two.second.requests(METADATA)
    assert identity.topics == ()
    assert [topic.name for topic in asked.topics] == ["orders"]
    assert not asked.allow_auto_topic_creation


def test_a_broker_that_is_frozen_is_not_waited_for_alone(two: Two, client: Client) -> None:
    brokers = (two.first, two.second)
    frozen = iter([Silence()])
    for broker in brokers:  # tried in random order: the first one that is tried is frozen
        broker.script[API_VERSIONS] = lambda _: next(frozen, served())
    cluster = client(*brokers, connect_timeout_s=2 * WITHIN_S, silent_after_s=0.1)

    view = run(cluster, cluster.refresh(["orders"]))

    assert view.topics["orders"].id == TOPIC_ID
    assert [broker.connections for broker in brokers] == [1, 1]
    assert sorted(len(broker.requests(METADATA)) for broker in brokers) == [0, 2]


def test_groups_are_listed_by_each_broker(two: Two, client: Client) -> None:
    def listing(code: ErrorCode, **kinds: str) -> Any:
        there = tuple(
            listed.ListedGroup(group_id=GroupId(name), protocol_type=kind, group_state="Stable")
            for name, kind in kinds.items()
        )
        return listed.ListGroupsResponse(throttle_time=NOT_THROTTLED, error_code=code, groups=there)

    two.first.script[LIST_GROUPS] = lambda _: listing(ErrorCode.none, prices="streams")
    two.second.script[LIST_GROUPS] = lambda _: listing(ErrorCode.none, orders="share", plain="")
    cluster = client(two.first)

    found = {name: one.protocol_type for name, one in run(cluster, list_groups(cluster)).items()}

    assert found == {"orders": "share", "plain": "", "prices": "streams"}
    two.second.script[LIST_GROUPS] = lambda _: listing(ErrorCode.coordinator_not_available)
    with pytest.raises(Retriable, match="could not list the groups of east"):
        run(cluster, list_groups(cluster))


@pytest.mark.parametrize(
    ("state", "has_members"),
    [
        *((state, True) for state in ("Stable", "Reconciling", "Assigning")),
        *((state, True) for state in ("PreparingRebalance", "CompletingRebalance", "NotReady")),
        ("Empty", False),
        ("Dead", False),
        ("", None),
    ],
)
def test_every_state_but_empty_and_dead_has_members(state: str, has_members: bool | None) -> None:
    assert GroupListing("consumer", state).has_members is has_members


def test_refreshes_at_the_same_time_share_a_request(two: Two, client: Client) -> None:
    cluster = client(two.first)

    asked = [start(cluster.refresh([topic])) for topic in ("orders", "users", "orders", "parts")]
    views = [cluster.loop.wait(one, WITHIN_S) for one in asked]

    assert views[1] is views[2] is views[3] is not views[0]
    _, first, second = two.first.requests(METADATA)
    assert [topic.name for topic in first.topics] == ["orders"]
    assert [topic.name for topic in second.topics] == ["orders", "parts", "users"]


def test_a_refresh_that_fails_fails_for_those_who_shared_it(two: Two, client: Client) -> None:
    cluster = client(two.first)
    two.first.close()

    asked = [start(cluster.refresh(["orders"])) for _ in range(3)]

    for one in asked:
        with pytest.raises(Unreachable):
            cluster.loop.wait(one, WITHIN_S)
    assert asked[1].error is asked[2].error


def test_a_cluster_without_a_broker_says_what_each_said(two: Two, client: Client) -> None:
    two.first.close()
    two.second.close()
    cluster = client(two.first, two.second)

    with pytest.raises(Unreachable, match="no broker of east") as raised:
        run(cluster, cluster.refresh())

    assert str(two.first.port) in str(raised.value)
    assert str(two.second.port) in str(raised.value)


def test_known_brokers_replace_a_dead_bootstrap_server(two: Two, client: Client) -> None:
    cluster = client(two.first)
    run(cluster, cluster.refresh())
    two.first.close()
    two.live = {2: two.second.port}
    while cluster.loop.run_once(0.01):
        pass  # the connection's end is seen

    view = None
    while view is None:
        with suppress(ConnectionLost):
            view = run(cluster, cluster.refresh())

    assert list(view.brokers) == [2]
    assert two.second.requests(METADATA)


def test_a_new_broker_is_found_and_a_moved_one_too(two: Two, client: Client, serve: Serve) -> None:
    cluster = client(two.first)
    run(cluster, cluster.refresh())
    moved = serve({END_TXN: lambda _: ACCEPTED})
    two.live = {1: two.first.port, 2: moved.port, 3: two.second.port}
    run(cluster, cluster.refresh())

    run(cluster, cluster.connection(2))
    run(cluster, cluster.connection(3))

    assert (moved.connections, two.second.connections) == (1, 1)
    with pytest.raises(Unreachable, match="is not among the live ones"):
        run(cluster, cluster.connection(9))


def test_one_connection_serves_all_of_one_purpose(two: Two, client: Client) -> None:
    cluster = client(two.first)
    run(cluster, cluster.refresh())

    opened = [start(cluster.connection(2)) for _ in range(3)]
    other = start(cluster.connection(2, "fetch"))
    connections = {id(cluster.loop.wait(one, WITHIN_S)) for one in opened}
    cluster.loop.wait(other, WITHIN_S)

    assert len(connections) == 1
    assert two.second.connections == 2


def test_a_connection_with_a_purpose_is_for_nothing_else(two: Two, client: Client) -> None:
    cluster = client(two.first)
    run(cluster, cluster.refresh())
    fetching = run(cluster, cluster.connection(1, "fetch"))
    run(cluster, cluster.any_connection()).close()

    assert run(cluster, cluster.any_connection()) is not fetching


def test_what_opens_while_the_client_closes_is_closed(
    two: Two, client: Client, loop: EventLoop
) -> None:
    cluster = client(two.first)
    opening = start(cluster.any_connection())
    cluster.close()

    connection = loop.wait(opening, WITHIN_S)

    assert connection.closed_by is not None


def test_a_moved_leader_is_found(two: Two, client: Client) -> None:
    def moves(_: Any) -> Any:
        two.led = {0: (2, 5)}
        return end_of(ErrorCode.not_leader_or_follower)

    two.first.script[LEADER_EPOCH] = moves
    two.second.script[LEADER_EPOCH] = lambda _: end_of(ErrorCode.none, 5, 42)
    cluster = client(two.first)

    ends = run(cluster, log_ends(cluster, [AT])).all()

    assert ends == {AT: EpochEnd(5, 42)}
    (asked,) = two.second.requests(LEADER_EPOCH)
    partition = asked.topics[0].partitions[0]
    assert (partition.current_leader_epoch, partition.leader_epoch) == (5, 5)


def test_a_leader_that_dies_in_mid_response_is_replaced(two: Two, client: Client) -> None:
    def dies(_: Any) -> Raw:
        two.led, two.live = {0: (2, 5)}, {2: two.second.port}
        return Raw(b"\0\0", close=True)

    two.first.script[LEADER_EPOCH] = dies
    two.second.script[LEADER_EPOCH] = lambda _: end_of(ErrorCode.none, 5, 42)
    cluster = client(two.first, two.second)

    assert run(cluster, log_ends(cluster, [AT])).all() == {AT: EpochEnd(5, 42)}


def test_a_partition_without_a_leader_holds_up_no_other(two: Two, client: Client) -> None:
    two.led = {0: (1, 4), 1: (-1, 4), 2: (9, 4)}
    two.first.script[LEADER_EPOCH] = lambda _: end_of(ErrorCode.none, 4, 42)
    cluster = client(two.first)
    wanted = [TopicPartition("orders", partition) for partition in (0, 1, 2)]

    answers = run(cluster, log_ends(cluster, wanted, timeout_s=0.3))

    assert answers.found == {AT: EpochEnd(4, 42)}
    assert set(answers.failed) == set(wanted[1:])
    assert "has no leader" in str(answers.failed[wanted[1]])


def test_a_right_that_is_missing_is_said_at_once(two: Two, client: Client) -> None:
    two.first.script[LEADER_EPOCH] = lambda _: end_of(ErrorCode.topic_authorization_failed)
    cluster = client(two.first)

    answers = run(cluster, log_ends(cluster, [AT]))

    with pytest.raises(RefusedForGood, match=r"log's end in east .* orders-0: .*grant"):
        answers.all()
    assert len(two.first.requests(LEADER_EPOCH)) == 1


def test_a_topic_that_may_not_be_described_is_said_at_once(two: Two, client: Client) -> None:
    denied = metadata_of({1: two.first.port}, {}, code=ErrorCode.topic_authorization_failed)
    two.first.script[METADATA] = lambda _: denied
    cluster = client(two.first)

    with pytest.raises(RefusedForGood, match=r"orders-0: .*grant"):
        run(cluster, log_ends(cluster, [AT])).all()


def test_a_broker_that_is_too_old_ends_the_attempt(serve: Serve, client: Client) -> None:
    old = serve({18: lambda _: b"\0\x23\0\0\0\0"})
    cluster = client(old)

    with pytest.raises(UnsupportedBroker, match="is too old"):
        run(cluster, log_ends(cluster, [AT]))


@pytest.fixture
def coordinator(two: Two) -> FakeBroker:
    """Return broker 2, which is the coordinator."""
    for broker in (two.first, two.second):
        broker.script[FIND_COORDINATOR] = lambda _: coordinated_by({"tx": 2})
    return two.second


def identity_of(code: ErrorCode, producer_id: int = -1, epoch: int = -1) -> Any:
    return InitProducerIdResponse(
        throttle_time=NOT_THROTTLED,
        error_code=code,
        producer_id=ProducerId(producer_id),
        producer_epoch=i16(epoch),
    )


def test_a_coordinator_that_loads_is_asked_again(
    two: Two, coordinator: FakeBroker, client: Client
) -> None:
    answers = iter(
        [
            identity_of(ErrorCode.coordinator_load_in_progress),
            identity_of(ErrorCode.concurrent_transactions),
            identity_of(ErrorCode.not_coordinator),
            identity_of(ErrorCode.none, 12, 3),
        ]
    )
    coordinator.script[INIT_PRODUCER_ID] = lambda _: next(answers)
    cluster = client(two.first)

    identity = run(cluster, Transactions(cluster, "tx").init_producer_id())

    assert identity == ProducerIdentity(12, 3)
    assert len(coordinator.requests(INIT_PRODUCER_ID)) == 4


def test_a_fenced_owner_is_told_so(two: Two, coordinator: FakeBroker, client: Client) -> None:
    coordinator.script[END_TXN] = lambda _: type(ACCEPTED)(
        throttle_time=NOT_THROTTLED, error_code=ErrorCode.producer_fenced
    )
    cluster = client(two.first)

    with pytest.raises(
        RequestRefused, match="could not abort the transaction of tx on east"
    ) as raised:
        run(cluster, Transactions(cluster, "tx").end(ProducerIdentity(12, 3), commit=False))

    assert raised.value.code is ErrorCode.producer_fenced
    assert len(coordinator.requests(END_TXN)) == 1


def test_an_end_that_may_have_arrived_is_not_sent_again(
    two: Two, coordinator: FakeBroker, client: Client
) -> None:
    coordinator.script[END_TXN] = lambda _: Raw(b"", close=True)
    cluster = client(two.first)

    with pytest.raises(ConnectionLost) as raised:
        run(cluster, Transactions(cluster, "tx").end(ProducerIdentity(12, 3), commit=True))

    assert raised.value.may_have_arrived
    assert len(coordinator.requests(END_TXN)) == 1


def test_closing_fails_what_waits(two: Two, coordinator: FakeBroker, client: Client) -> None:
    coordinator.script[END_TXN] = lambda _: Silence()
    cluster = client(two.first)
    ending = start(Transactions(cluster, "tx").end(ProducerIdentity(12, 3), commit=True))
    while not coordinator.requests(END_TXN):
        cluster.loop.run_once(0.01)

    cluster.close()

    with pytest.raises(ConnectionLost, match="closed by us"):
        cluster.loop.wait(ending, WITHIN_S)


def test_a_broker_that_lags_behind_does_not_turn_back_an_epoch() -> None:
    new = updated(ClusterMetadata(), metadata_of({1: 1, 2: 2}, {0: (2, 5)}), ["orders"])

    lagging = updated(new, metadata_of({1: 1, 2: 2}, {0: (1, 4)}), ["orders"])
    made_again = updated(new, metadata_of({1: 1, 2: 2}, {0: (1, 0)}, UUID(int=8)), ["orders"])

    assert [view.topics["orders"].partitions[0].epoch for view in (lagging, made_again)] == [5, 0]


def test_what_was_asked_for_and_not_told_is_gone() -> None:
    both = updated(ClusterMetadata(), metadata_of({1: 1}, {0: (1, 1)}), ["orders"])
    both = updated(both, metadata_of({1: 1}, {0: (1, 1)}, topic="bills"), ["bills"])

    assert set(both.topics) == {"orders", "bills"}
    assert set(updated(both, metadata_of({1: 1}, {0: (1, 1)}), None).topics) == {"orders"}


def test_a_leader_that_a_response_names_is_taken_if_it_is_newer() -> None:
    view = updated(ClusterMetadata(), metadata_of({1: 1, 2: 2}, {0: (1, 4)}), ["orders"])

    newer, older = led_by(view, AT, 2, 5), led_by(view, AT, 2, 4)

    leadership = newer.leadership(AT)
    assert leadership
    assert (leadership.leader, leadership.epoch) == (2, 5)
    assert older is view
    assert led_by(view, TopicPartition("bills", 0), 2, 9) is view
