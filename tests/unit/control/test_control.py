"""Sentences of the control socket."""

import asyncio
import os
import socket
import stat
import tempfile
from pathlib import Path
from typing import Any

import pytest

from headrace.control import control, control_server
from headrace.errors import InvalidSpec, Retriable


@pytest.fixture(autouse=True)
def own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))


async def echo(command: str, arguments: dict[str, Any]) -> dict[str, Any]:
    if command == "refuse":
        raise InvalidSpec("no, because")
    if command == "later":
        raise Retriable("not now")
    if command == "break":
        raise KeyError("inside")
    return {"command": command, **arguments}


def test_a_request_is_answered_and_a_refusal_is_a_sentence() -> None:
    async def scene() -> None:
        async with control_server.serve("orders", echo):
            answer = await asyncio.to_thread(control.request, "orders", "status", depth=1)
            assert answer == {"command": "status", "depth": 1}
            with pytest.raises(InvalidSpec, match="no, because"):
                await asyncio.to_thread(control.request, "orders", "refuse")
            assert await asyncio.to_thread(control.running_flows) == ["orders"]

    asyncio.run(scene())
    assert control.running_flows() == []


def test_every_question_is_answered() -> None:
    def garbage() -> bytes:
        with socket.socket(socket.AF_UNIX) as line:
            line.settimeout(60)
            line.connect(str(control.socket_path("orders")))
            line.sendall(b"no json\n")
            return line.recv(1000)

    async def scene() -> None:
        async with control_server.serve("orders", echo):
            with pytest.raises(Retriable, match="not now"):
                await asyncio.to_thread(control.request, "orders", "later")
            with pytest.raises(Retriable, match=r"internal error, please report it: KeyError"):
                await asyncio.to_thread(control.request, "orders", "break")
            assert b"internal error" in await asyncio.to_thread(garbage)

    asyncio.run(scene())


def test_a_flow_that_does_not_run_is_said_with_those_that_do() -> None:
    with pytest.raises(InvalidSpec, match=r"flow orders is not running here.*running now: none"):
        control.request("orders", "status")


def test_a_second_run_of_a_flow_is_refused() -> None:
    async def scene() -> None:
        async with control_server.serve("orders", echo):
            with pytest.raises(InvalidSpec, match="flow orders runs already"):
                async with control_server.serve("orders", echo):
                    pass

    asyncio.run(scene())


def test_a_socket_left_behind_is_no_hindrance() -> None:
    control.socket_folder().mkdir()
    control.socket_path("orders").touch()

    async def scene() -> None:
        async with control_server.serve("orders", echo):
            await asyncio.to_thread(control.request, "orders", "status")

    asyncio.run(scene())


def test_without_a_runtime_folder_one_s_own_in_the_temporary_folder_is_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("XDG_RUNTIME_DIR")
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    assert control.socket_folder() == tmp_path / f"headrace-{os.getuid()}"

    async def scene() -> None:
        async with control_server.serve("orders", echo):
            assert stat.S_IMODE(control.socket_folder().stat().st_mode) == 0o700

    asyncio.run(scene())


def test_a_path_that_no_socket_can_have_is_said() -> None:
    with pytest.raises(InvalidSpec, match=r"longer than the 107 bytes.*shorten metadata\.name"):
        control.socket_path("o" * 120)
