"""Settings of kopf."""

import asyncio
import json
from collections.abc import Sized
from itertools import groupby, islice
from pathlib import Path

import pytest
from aiohttp import web
from cluster.kubectl import write_kubeconfig
from support.fake_api_server import serving

from headrace.controller.children import CHILDREN
from headrace.controller.kopf_watch import EndlessBackoffs, watch_owned
from headrace.k8s import CONFIG_MAP, DEPLOYMENT, JOB, Unavailable
from headrace.k8s.kinds import CUSTOM_RESOURCE_DEFINITION, NAMESPACE

NOTHING = {"kind": "List", "items": [], "metadata": {"resourceVersion": "1"}}
NO_LEADER = {"kind": "Status", "status": "Failure", "code": 500, "message": "no leader of etcd"}


def test_kopf_never_runs_out_of_backoffs_whichever_request_it_is() -> None:
    backoffs = EndlessBackoffs()
    assert not isinstance(backoffs, Sized)
    for _ in range(2):
        waits = list(islice(backoffs, 1000))
        assert len(waits) == 1000
        assert (waits[0], max(waits)) == (1, 8)


def test_an_error_in_a_watch_ends_it_with_a_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def answer(request: web.Request) -> web.StreamResponse:
        if request.query.get("watch") != "true":
            return web.json_response(discovery().get(request.path, NOTHING))
        response = web.StreamResponse()
        await response.prepare(request)
        if request.path == DEPLOYMENT.path(None):
            await response.write(
                json.dumps({"type": "ERROR", "object": NO_LEADER}).encode() + b"\n"
            )
        await asyncio.sleep(60)
        return response

    async def test() -> None:
        async with serving(answer) as url:
            file = write_kubeconfig(tmp_path / "config", url, None, {"token": "any"})
            monkeypatch.setenv("KUBECONFIG", str(file))
            await watch_owned((), lambda kind, object, deleted: None)

    with pytest.raises(Unavailable, match=r"the objects of flows: .*no leader of etcd"):
        asyncio.run(test())


def discovery() -> dict[str, object]:
    """Return the answers to the first requests of kopf to an API server."""
    needed = (NAMESPACE, CUSTOM_RESOURCE_DEFINITION)
    kinds = sorted((*CHILDREN, JOB, CONFIG_MAP, *needed), key=lambda kind: kind.api_version)
    served = {version: list(group) for version, group in groupby(kinds, lambda k: k.api_version)}
    versions = {name: {"groupVersion": name, "version": "v1"} for name in served if "/" in name}
    return {
        "/api": {"versions": ["v1"]},
        "/apis": {
            "groups": [
                {"name": name.partition("/")[0], "versions": [one], "preferredVersion": one}
                for name, one in versions.items()
            ]
        },
    } | {
        f"/{'apis' if '/' in version else 'api'}/{version}": {
            "resources": [
                {
                    "name": kind.plural,
                    "singularName": kind.name.lower(),
                    "namespaced": kind.namespaced,
                    "kind": kind.name,
                    "verbs": ["list", "watch"],
                }
                for kind in group
            ]
        }
        for version, group in served.items()
    }
