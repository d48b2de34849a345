"""The k8s room on a real API server: verbs, a local copy through outages, Leases, an election."""

import asyncio
import os
import signal
import subprocess
import sys
import time
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any, cast
from urllib.parse import urlsplit

import pytest
from cluster.api_server import ApiServer, OwnApiServer
from kubernetes.aio.config import incluster_config
from support.patience import WITHIN_S

from headrace.errors import InvalidSpec
from headrace.k8s import (
    Client,
    Conflict,
    Forbidden,
    Kind,
    LeaderElection,
    LeadershipLost,
    LeaseKeeper,
    LeaseWatch,
    Object,
    ObjectInvalid,
    Objects,
    Reflector,
    Unavailable,
    WatchEvent,
    connect,
    connect_as_kubectl,
    connect_by_file,
)
from headrace.k8s.kinds import CONFIG_MAP, DEPLOYMENT, FLOW, LEASE


@asynccontextmanager
async def client_of(server: ApiServer, kubeconfig: Path | None = None) -> AsyncIterator[Client]:
    client = await connect_by_file("the operator", str(kubeconfig or server.kubeconfig))
    client.write_timeout_s = WITHIN_S
    try:
        yield client
    finally:
        await client.close()


async def eventually(poll: Callable[[], Any], within_s: float = WITHIN_S) -> Any:
    deadline = time.monotonic() + within_s
    while not (seen := poll()):
        if time.monotonic() > deadline:
            pytest.fail(f"not so within {within_s} s; last seen: {seen!r}")
        await asyncio.sleep(0.05)
    return seen


@asynccontextmanager
async def running(*work: Awaitable[None]) -> AsyncIterator[list[asyncio.Future[None]]]:
    tasks: list[asyncio.Future[None]] = [asyncio.ensure_future(one) for one in work]
    try:
        yield tasks
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def config_map(namespace: str, name: str, **data: str) -> Object:
    metadata = {"name": name, "namespace": namespace, "labels": {"mine": "yes"}}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": data}


def test_the_verbs(api_server: ApiServer, namespace: str) -> None:
    async def test() -> None:
        async with client_of(api_server) as client:
            assert await client.get(CONFIG_MAP, namespace, "a") is None
            made = await client.apply(config_map(namespace, "a", x="1"), manager="one")
            await client.apply(config_map(namespace, "a", y="2"), manager="two")
            seen = await client.get(CONFIG_MAP, namespace, "a")
            assert seen is not None
            assert seen["data"] == {"x": "1", "y": "2"}, "a manager's fields are not another's"
            with pytest.raises(Conflict):
                await client.replace(made)
            stale = {"metadata": {"resourceVersion": made["metadata"]["resourceVersion"]}}
            with pytest.raises(Conflict):
                await client.patch(CONFIG_MAP, namespace, "a", stale | {"data": {"x": "3"}})
            with pytest.raises(Conflict):
                await client.create(config_map(namespace, "a"))
            await client.patch(CONFIG_MAP, namespace, "a", {"data": {"x": None}})
            listed = await client.list(CONFIG_MAP, namespace, labels="mine=yes")
            assert [(one["kind"], one["data"]) for one in listed] == [("ConfigMap", {"y": "2"})]
            slim = await client.list(CONFIG_MAP, namespace, labels="mine", metadata_only=True)
            assert slim[0]["metadata"]["labels"] == {"mine": "yes"}
            assert "data" not in slim[0]
            with pytest.raises(Conflict):
                await client.delete(CONFIG_MAP, namespace, "a", resource_version="1")
            assert await client.delete(CONFIG_MAP, namespace, "a")
            assert not await client.delete(CONFIG_MAP, namespace, "a")
            with pytest.raises(
                ObjectInvalid, match=r"configmaps A in namespace .* lowercase RFC 1123"
            ):
                await client.apply(config_map(namespace, "A"), manager="one")

    asyncio.run(test())


def test_a_right_that_is_missing_is_named(api_server: ApiServer, namespace: str) -> None:
    deployment = {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "x", "namespace": namespace},
    }
    account = f"system:serviceaccount:{namespace}:default"

    async def test() -> None:
        file = api_server.kubeconfig_of(namespace, "default")
        async with client_of(api_server, file) as client:
            with pytest.raises(Forbidden) as refused:
                await client.apply(deployment, manager="headrace-operator")
            assert str(refused.value) == (
                f"the operator may not patch deployments.apps in namespace {namespace}: "
                f"give that right to {account}"
            )
            reflector = Reflector(client, DEPLOYMENT)
            async with running(reflector.run()):
                await eventually(lambda: isinstance(reflector.error, Forbidden))
                assert str(reflector.error) == (
                    "the operator may not list deployments.apps cluster-wide: "
                    f"give that right to {account}"
                )

    asyncio.run(test())


def test_no_api_server_to_ask(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("KUBECONFIG")
    with pytest.raises(InvalidSpec, match=r"the operator does not know which API server .* Set "):
        asyncio.run(connect("the operator"))
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "nothing"))
    with pytest.raises(InvalidSpec, match=r"there is no kubeconfig .*nothing, .* set KUBECONFIG"):
        asyncio.run(connect("the operator"))
    (tmp_path / "nothing").write_text("]")
    with pytest.raises(InvalidSpec, match=r"kubeconfig .*nothing cannot be used: "):
        asyncio.run(connect("the operator"))


def test_people_find_it_as_with_kubectl(
    api_server: ApiServer, namespace: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("KUBECONFIG")

    async def test(context: str | None = None) -> str:
        client = await connect_as_kubectl("headrace", context)
        try:
            await client.list(CONFIG_MAP, client.namespace)
        finally:
            await client.close()
        return client.namespace

    with pytest.raises(InvalidSpec, match=r"there is no kubeconfig .*/.kube/config, "):
        asyncio.run(test())
    (tmp_path / ".kube").mkdir()
    file = tmp_path / ".kube" / "config"
    api_server.write_kubeconfig(file, {"token": api_server.token(namespace, "default")}, namespace)
    with pytest.raises(Forbidden, match=f"may not list configmaps in namespace {namespace}"):
        asyncio.run(test())
    monkeypatch.setenv("KUBECONFIG", str(api_server.kubeconfig))
    assert asyncio.run(test("tests")) == "default"
    with pytest.raises(InvalidSpec, match=r"Expected object with name elsewhere in .*contexts"):
        asyncio.run(test("elsewhere"))


@pytest.mark.parametrize("find", [connect, connect_as_kubectl])
def test_a_pod_finds_its_api_server(
    find: Callable[[str], Awaitable[Client]],
    api_server: ApiServer,
    namespace: str,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    """Set the pod up as a kubelet does: two variables, and two files of the ServiceAccount."""
    monkeypatch.setenv("HOME", str(tmp_path))
    token, authority = tmp_path / "token", tmp_path / "ca.crt"
    token.write_text(api_server.token(namespace, "default"))
    authority.write_bytes((api_server.folder / "pki" / "ca.crt").read_bytes())
    url = urlsplit(api_server.url)
    monkeypatch.delenv("KUBECONFIG")
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", str(url.hostname))
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", str(url.port))
    monkeypatch.setattr(incluster_config, "SERVICE_TOKEN_FILENAME", str(token))
    monkeypatch.setattr(incluster_config, "SERVICE_CERT_FILENAME", str(authority))

    async def test() -> None:
        client = await find("driver a")
        try:
            account = f"system:serviceaccount:{namespace}:default"
            with pytest.raises(Forbidden, match=f"driver a may not list leases.*{account}"):
                await client.list(LEASE, namespace)
        finally:
            await client.close()

    asyncio.run(test())


class Forgotten:
    """Client whose watches begin at a version that the API server has forgotten, until a list."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self.is_old = False

    async def list_versioned(self, *of: Any, **options: Any) -> tuple[Objects, str]:
        self.is_old = False
        return await self._client.list_versioned(*of, **options)

    def watch(
        self, kind: Kind, namespace: str | None, version: str, **options: Any
    ) -> AsyncGenerator[tuple[str, Object]]:
        return self._client.watch(kind, namespace, "1" if self.is_old else version, **options)


def test_a_local_copy_lives_through_outages(own_api_server: OwnApiServer, namespace: str) -> None:
    """Stop, kill and freeze the API server; changes during the outage are reported afterwards."""
    changes: list[tuple[str, str]] = []

    def note(change: WatchEvent) -> None:
        changes.append((change.type.value, change.object["metadata"]["name"]))

    async def test() -> None:
        async with client_of(own_api_server) as client:
            forgotten = Forgotten(client)
            copy = Reflector(
                cast(Client, forgotten), CONFIG_MAP, namespace, labels="mine=yes", on_change=note
            )
            assert copy.blind_s >= 0
            async with running(copy.run()):
                await asyncio.wait_for(copy.synced.wait(), WITHIN_S)
                await eventually(lambda: copy.blind_s == 0)
                await client.apply(config_map(namespace, "a", x="1"), manager="m")
                await eventually(lambda: copy.get("a"))

                own_api_server.kill()
                await eventually(lambda: copy.blind_s > 0.5)
                await eventually(lambda: isinstance(copy.error, Unavailable))
                assert copy.get("a"), "the copy stays as it was"
                await asyncio.to_thread(own_api_server.start)
                await client.apply(config_map(namespace, "b"), manager="m")
                await client.delete(CONFIG_MAP, namespace, "a")
                await eventually(lambda: copy.blind_s == 0 and copy.get("b") and not copy.get("a"))
                await eventually(lambda: copy.error is None)

                # A version that is forgotten (410) is answered with a list.
                forgotten.is_old = True
                own_api_server.stop()
                await asyncio.to_thread(own_api_server.etcd.kill)
                await asyncio.to_thread(own_api_server.start)
                await client.apply(config_map(namespace, "c", big="x" * 300_000), manager="m")
                await eventually(lambda: copy.get("c"))
                assert not forgotten.is_old
                assert len(copy) == 2
                own_api_server.freeze()
                with pytest.raises(Unavailable, match="did not answer in time"):
                    await client.get(CONFIG_MAP, namespace, "c")
                own_api_server.thaw()
                await client.delete(CONFIG_MAP, namespace, "c")
                await eventually(lambda: not copy.get("c"))

    asyncio.run(test())
    assert changes[0] == ("ADDED", "a")
    assert set(changes[1:3]) == {("DELETED", "a"), ("ADDED", "b")}, "during the outage"
    assert changes[3:] == [("ADDED", "c"), ("DELETED", "c")]


def test_a_kind_without_its_definition(api_server: ApiServer, namespace: str) -> None:
    async def test() -> None:
        async with client_of(api_server) as client:
            absent = type(FLOW)("nowhere.dev/v1", "Thing", "things")
            copy = Reflector(client, absent, namespace)
            async with running(copy.run()):
                said = "does not know this kind: apply the definitions (CRDs) first"
                await eventually(lambda: said in str(copy.error))

    asyncio.run(test())


def test_leases_expire_by_the_observers_clock(own_api_server: OwnApiServer, namespace: str) -> None:
    def keeper(client: Client, name: str, life: str) -> LeaseKeeper:
        labels = {"app.kubernetes.io/component": "driver"}
        return LeaseKeeper(
            client, namespace, name, f"{name}/{life}", duration_s=3, manager="d", labels=labels
        )

    async def test() -> None:
        async with client_of(own_api_server) as client:
            watch = LeaseWatch(client, "app.kubernetes.io/component=driver", namespace=namespace)
            names = [(namespace, name) for name in ("a", "b", "c")]
            keepers = [keeper(client, name, "1") for _, name in names]
            async with running(watch.run(), *(one.run() for one in keepers)) as tasks:
                watch.expect(dict.fromkeys([*names, (namespace, "never-came")], 6))
                await eventually(lambda: all(watch.holder(name) for name in names))
                tasks[1].cancel()
                await eventually(lambda: names[0] in watch.expired)
                assert watch.holder(names[0]) == "a/1"
                await eventually(lambda: (namespace, "never-came") in watch.expired)
                await eventually(lambda: not keepers[0].held)
                await eventually(lambda: keepers[1].held)

                # A holder that returns is accepted again; an outage makes no holder lost.
                async with running(keeper(client, "a", "2").run()):
                    await eventually(lambda: names[0] not in watch.expired)
                    assert watch.holder(names[0]) == "a/2"
                    before = {(namespace, "never-came")}
                    await eventually(lambda: watch.expired == before)
                    own_api_server.freeze()
                    await eventually(lambda: not any(one.held for one in keepers))
                    own_api_server.thaw()
                    await eventually(lambda: all(one.held for one in keepers[1:]))
                    assert watch.expired == before
                    tasks[2].cancel()  # a renewal would create it again
                    await asyncio.gather(tasks[2], return_exceptions=True)
                    await keepers[1].release()
                    await eventually(lambda: watch.holder(names[1]) == "")

    asyncio.run(test())


def test_whoever_returns_late_after_a_restart_of_the_api_server_is_not_lost(
    own_api_server: OwnApiServer, namespace: str
) -> None:
    """Restart an API server, which accepts the renewals of a fleet one after the other."""
    duration_s, apart_s = 6, 3.3  # together longer than a Lease, and each far shorter than one
    lost = set[tuple[str, str]]()
    names = [(namespace, name) for name in ("a", "b", "c", "d")]

    def passed(time_s: float) -> bool:
        return time.monotonic() > time_s

    def renewing(client: Client, name: str) -> Awaitable[None]:
        labels = {"team": "late"}
        keeper = LeaseKeeper(
            client, namespace, name, f"{name}/1", duration_s=duration_s, manager="d", labels=labels
        )
        return keeper.run()

    async def test() -> None:
        async with client_of(own_api_server) as client:
            watch = LeaseWatch(
                client,
                "team=late",
                namespace=namespace,
                on_change=lambda: lost.update(watch.expired),
            )
            async with running(
                watch.run(), *(renewing(client, name) for _, name in names)
            ) as tasks:
                watch.expect(dict.fromkeys(names, duration_s))
                await eventually(lambda: all(map(watch.renewed, names)))
                own_api_server.kill()
                for task in tasks[1:]:
                    task.cancel()
                await asyncio.to_thread(own_api_server.start)
                for _, name in names:
                    next_s = time.monotonic() + apart_s
                    tasks.append(asyncio.ensure_future(renewing(client, name)))
                    await eventually(partial(passed, next_s))
                await eventually(lambda: all(map(watch.renewed, names)))
                assert not lost

                tasks[-1].cancel()
                await eventually(lambda: lost == {names[-1]})

    asyncio.run(test())


REPLICA = """
import asyncio, signal, sys
from headrace import logs
from headrace.k8s import LeaderElection, connect

logs.configure()

async def main():
    client = await connect("replica")
    election = LeaderElection(client, sys.argv[1], "leader", sys.argv[2])
    async def work():
        print("leads", flush=True)
        await asyncio.Event().wait()
    running = asyncio.ensure_future(election.run(work))
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, running.cancel)
    try:
        await running
    except asyncio.CancelledError:
        pass
    finally:
        await client.close()

asyncio.run(main())
"""


def test_leadership_is_handed_over(api_server: ApiServer, namespace: str) -> None:
    env = {**os.environ, "KUBECONFIG": str(api_server.kubeconfig)}

    def replica(name: str) -> subprocess.Popen[str]:
        command = [sys.executable, "-c", REPLICA, namespace, name]
        return subprocess.Popen(command, env=env, stdout=subprocess.PIPE, text=True)

    first = replica("first")
    assert first.stdout is not None
    assert first.stdout.readline() == "leads\n"
    second = replica("second")
    assert second.stdout is not None
    first.send_signal(signal.SIGTERM)
    assert first.wait(WITHIN_S) == 0
    left = time.monotonic()
    assert second.stdout.readline() == "leads\n"
    print(f"led {time.monotonic() - left:.1f} s after the first replica left")
    lease = api_server.get("-n", namespace, "lease", "leader")
    assert lease["spec"]["holderIdentity"] == "second"
    assert lease["spec"]["leaseTransitions"] == 1
    second.kill()
    second.wait()


def test_a_leader_that_cannot_renew_ends(own_api_server: OwnApiServer, namespace: str) -> None:
    async def test() -> None:
        async with client_of(own_api_server) as client:
            ended = asyncio.Event()

            async def forever() -> None:
                await asyncio.Event().wait()

            async def work() -> None:
                try:
                    await forever()
                finally:
                    ended.set()

            election = LeaderElection(
                client,
                namespace,
                "short",
                "me",
                duration_s=4,
                renew_deadline_s=2.0,
                retry_s=0.5,
            )
            async with running(election.run(work)) as (leading,):
                await eventually(lambda: election.leads)
                own_api_server.freeze()
                with pytest.raises(LeadershipLost, match="short was not renewed for 2 s"):
                    await leading
                assert ended.is_set()
                assert not election.leads
                own_api_server.thaw()

            other = LeaderElection(client, namespace, "short", "other", duration_s=4)
            async with running(other.run(forever)) as (leading,):
                await eventually(lambda: other.leads)
                assert other.problems() == []
                # A renewal may happen at this moment: a replacement might be refused.
                thief = {"spec": {"holderIdentity": "a thief"}}
                await client.patch(LEASE, namespace, "short", thief)
                with pytest.raises(LeadershipLost, match="another replica took the Lease short"):
                    await leading

    asyncio.run(test())
