"""What the user of a whole bridge is told, and that neither words nor the address get anywhere."""

from __future__ import annotations

import json
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import anyio
import pytest
from anyio.abc import SocketAttribute, SocketStream

from acp_bridge.core.settings import NOTIFY_FILE
from acp_bridge.features.notify import desktop
from tests.support.processes import marked
from tests.support.waiting import until
from tests.whole.bridge_support import World, kill_agent

pytestmark = pytest.mark.process

DIED = "project: the agent has died"
TOPIC = "s3cret-topic"
WORDS = "hush-hush"


@dataclass
class Phone:
    """A server on the loopback to which notifications are posted."""

    port: int
    posted: list[str] = field(default_factory=list)
    #: what /proc says of the test's processes when one comes.
    seen: list[str] = field(default_factory=list)


@asynccontextmanager
async def phone(mark: str) -> AsyncIterator[Phone]:
    listener = await anyio.create_tcp_listener(local_host="127.0.0.1")
    there = Phone(listener.extra(SocketAttribute.local_port))

    async def take(stream: SocketStream) -> None:
        async with stream:
            got = ""
            while DIED not in got:
                got += (await stream.receive()).decode()
            there.seen += said_of_processes(mark)
            there.posted.append(got)
            await stream.send(b"HTTP/1.1 200 OK\r\n\r\n")

    async with listener, anyio.create_task_group() as tasks:
        tasks.start_soon(listener.serve, take)
        yield there
        tasks.cancel_scope.cancel()


def said_of_processes(mark: str) -> list[str]:
    return [_of(pid) for pid in marked(mark)]


def _of(pid: int) -> str:
    try:
        return "".join(Path(f"/proc/{pid}/{name}").read_text() for name in ("cmdline", "environ"))
    except OSError:
        return ""


def notify(world: World, *ways: str) -> None:
    world.home.mkdir(exist_ok=True)
    (world.home / NOTIFY_FILE).write_text(f"notify = {json.dumps(ways)}")


def fake_program(world: World, folder: Path) -> dict[str, str]:
    """Put a program that writes down its arguments before the system's; returns where it is."""
    folder.mkdir()
    program = folder / desktop.program()
    program.write_text(
        f'#!/bin/sh\nprintf "%s\\n" "$@" >{folder}/new\nmv {folder}/new {folder}/got\n'
    )
    program.chmod(0o755)
    return {"PATH": f"{folder}:{os.environ['PATH']}"}


@pytest.mark.hazard("K7")
async def test_the_desktop_and_an_address_are_told_that_the_agent_has_died_and_nothing_else(
    world: World, tmp_path: Path
) -> None:
    env = fake_program(world, tmp_path / "bin")
    async with phone(world.mark) as there:
        notify(world, "desktop", "bell", f"ntfy:http://127.0.0.1:{there.port}/{TOPIC}")
        async with world.bridge(env=env) as client:
            await client.prompt(f"say {WORDS}")
            lived = said_of_processes(world.mark)
            await kill_agent(world, client)
            await until(lambda: there.posted)
            await until((tmp_path / "bin" / "got").exists)
            await client.logged("notified", 2)
            assert marked(world.mark)
        shown = (tmp_path / "bin" / "got").read_text()
    assert shown.splitlines()[-3:] == ["--", "acp-bridge", DIED]
    (posted,) = there.posted
    assert posted.startswith(f"POST /{TOPIC} HTTP/1.1\r\n")
    assert posted.partition("\r\n\r\n")[2] == DIED
    for told in (shown, posted):
        assert WORDS not in told
        assert str(world.cwd) not in told
    said = [json.dumps(message) for message in client.recording.incoming()]
    logs = [client.stderr.decode(), *(f.read_text() for f in world.home.glob("bridge.log*"))]
    assert any("notified" in log for log in logs)
    at_agents = [world.log.path.read_text()]
    assert len(lived) >= 2, "the bridge and its agent"
    known = (*said, *logs, *at_agents, *lived, *there.seen)
    assert [text for text in known if TOPIC in text] == []


async def test_a_bridge_that_ends_while_it_tells_its_user_ends_in_time(
    world: World, tmp_path: Path
) -> None:
    (tmp_path / "bin").mkdir()
    program = tmp_path / "bin" / desktop.program()
    program.write_text(f"#!/bin/sh\ntouch {tmp_path}/begun\nsleep 60 & sleep 60\n")
    program.chmod(0o755)
    notify(world, "desktop")
    async with world.bridge(env={"PATH": f"{tmp_path}/bin:{os.environ['PATH']}"}) as client:
        await client.prompt("say one")
        await kill_agent(world, client)
        await until((tmp_path / "begun").exists)


async def test_a_project_can_have_nobody_notified(world: World) -> None:
    async with phone(world.mark) as there:
        for folder in (world.cwd, world.cwd / ".acp_bridge"):
            folder.mkdir(exist_ok=True)
            line = f'notify = ["ntfy:http://127.0.0.1:{there.port}/{TOPIC}"]'
            (folder / NOTIFY_FILE).write_text(line)
        async with world.bridge() as client:
            await client.prompt("say one")
            await kill_agent(world, client)
            assert await client.prompt("say two")
    assert there.posted == []


async def test_a_file_that_can_t_be_used_is_said_once_on_stderr_and_the_bridge_works(
    world: World,
) -> None:
    notify(world, "desktop", TOPIC)
    async with world.bridge() as client:
        await client.prompt("say one")
    said = client.stderr.decode()
    assert said.count("nobody is notified") == 1
    assert TOPIC not in said
