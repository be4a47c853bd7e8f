"""A bridge that is kept: its client's end, however it comes, ends neither turn nor queue."""

import os
import shutil
import signal
import sys
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from acp_bridge.core.bridge import attendance
from acp_bridge.sharing.listening.places import run_folder
from acp_bridge.sharing.listening.run_files import LiveBridge, live_bridges
from tests.support.client import RecordingClient
from tests.support.fixture_agents import fixture_command, replayed
from tests.support.processes import children, command_line, descendants
from tests.support.trace_reader import read_trace
from tests.support.waiting import until
from tests.whole.bridge_support import ROOT, TELL_ACCEPTED, World, accepted, stopped

pytestmark = [pytest.mark.process, pytest.mark.hazard("V7")]


async def kept_bridge(world: World) -> LiveBridge:
    """The one bridge that lives."""
    (bridge,) = await until(lambda: live_bridges(world.home))
    return bridge


@asynccontextmanager
async def kept(
    world: World,
    *agent: str,
    keep: str = "1h",
    cwd: Path | None = None,
    env: dict[str, str] | None = None,
    **more: Any,
) -> AsyncIterator[RecordingClient]:
    """A client of a kept bridge with a session; when the body is through, the bridge has to end."""
    words = [sys.executable, "-m", "acp_bridge", "--keep", keep]
    words += agent or ["--", *fixture_command()]
    own = {"ACP_BRIDGE_HOME": str(world.home), "PYTHONPATH": str(ROOT)}
    given = {**world.env, **own, **(env or {})}
    async with RecordingClient.start(words, env=given, cwd=cwd) as client:
        await client.initialize({**TELL_ACCEPTED, **more})
        await client.new_session(world.cwd)
        pid = (await kept_bridge(world)).pid
        try:
            yield client
            client.kill()
        finally:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGTERM)
            await ended(world)


async def ended(world: World) -> None:
    """Until no bridge lives."""
    await until(lambda: not live_bridges(world.home))


def group_killed(client: RecordingClient) -> None:
    assert client.process is not None
    os.killpg(client.process.pid, signal.SIGKILL)


def stdin_closed(client: RecordingClient) -> None:
    client.close_stdin()


@pytest.mark.hazard("V7.1")
@pytest.mark.parametrize("end", [group_killed, stdin_closed])
async def test_a_turn_and_what_waits_survive_the_end_of_the_client(world: World, end: Any) -> None:
    async with kept(world) as client:
        client.send_prompt("say one; gate g; say two")
        waiting = client.send_prompt("say three; gate h")
        await world.gates.reached("g")
        await accepted(client, waiting)
        await client.until_text("one")
        end(client)
        await client.wait(within=3)
        world.gates.open("g")
        await world.gates.reached("h")
        async with world.inside(session=False) as other:
            await other.load_session(client.session_id, world.cwd)
            assert other.texts()[:3] == ["one", "two", "three"]
            world.gates.open("h")


async def test_a_cancel_behind_the_end_of_the_waiter_is_nobodys_stop(world: World) -> None:
    """Some clients cancel the turn of an agent whose process has ended; it may be read late."""
    async with kept(world) as client:
        request = client.send_prompt("say one; gate g; say two")
        await world.gates.reached("g")
        bridge = (await kept_bridge(world)).pid
        os.kill(bridge, signal.SIGSTOP)
        group_killed(client)
        await client.wait()
        client.notify("session/cancel", {"sessionId": client.session_id})
        client.notify("$/cancel_request", {"requestId": request})
        os.kill(bridge, signal.SIGCONT)
        world.gates.open("g")
        async with world.inside(session=False) as other:
            await other.load_session(client.session_id, world.cwd)
            await other.until_text("two")


@pytest.mark.hazard("V7.4")
async def test_a_permission_waits_for_the_next_client_and_is_asked_there(
    world: World, tmp_path: Path
) -> None:
    file = tmp_path / "trace"
    async with kept(world, "--trace", str(file), "--", *replayed("codex")) as client:
        await client.prompt("say something")
        client.side.permission = "never"
        client.send_prompt("run it")
        asked = await client.until_request("session/request_permission")
        assert "allow_once" in [each["optionId"] for each in asked["params"]["options"]]
        group_killed(client)
        await client.wait()
        async with world.bridge(session=False, command=replayed("codex")) as other:
            other.side.permission = "allow"
            await other.load_session(client.session_id, world.cwd)
            again = await other.until_request("session/request_permission")
            assert again["params"] == asked["params"]
            await other.until_text("RAN0")
            assert "completed" in [each.get("status") for each in other.updates()]
    chosen = read_trace(file).answers("session/request_permission", "Proxy(0)")
    assert chosen == [{"outcome": {"outcome": "selected", "optionId": "allow_once"}}]


async def test_after_the_return_the_turn_is_waited_for_and_the_stop_reaches_it(
    world: World,
) -> None:
    async with kept(world) as client:
        client.send_prompt("say one; gate g; say two")
        await world.gates.reached("g")
        group_killed(client)
        await client.wait()
        async with world.inside(session=False) as other:
            await other.load_session(client.session_id, world.cwd)
            assert "A turn runs in this session: “say one; gate g; say two”." in other.texts()[-1]
            waits = other.send_prompt("/queue wait")
            other.cancel()
            assert await stopped(other, waits) == "cancelled"
            assert "two" not in other.texts()


@pytest.mark.hazard("V7.7")
async def test_work_can_be_reached_again_where_the_folder_of_the_sockets_was_removed(
    world: World,
) -> None:
    async with kept(world) as client:
        client.send_prompt("say one; gate g; say two")
        await world.gates.reached("g")
        shutil.rmtree(run_folder(world.home))
        group_killed(client)
        await client.wait()
        await kept_bridge(world)
        async with world.inside(session=False) as other:
            await other.load_session(client.session_id, world.cwd)
            world.gates.open("g")
            await other.until_text("two")


@pytest.mark.hazard("V7.2")
async def test_close_lets_the_turn_go_on_and_ends_an_idle_session(world: World) -> None:
    async with kept(world) as client:
        idle = client.session_id
        await client.new_session(world.cwd)
        client.send_prompt("say one; gate g; say two")
        await world.gates.reached("g")
        for session in (idle, client.session_id):
            assert await client.request("session/close", {"sessionId": session}) == {}
        world.gates.open("g")
        async with world.inside(session=False) as other:
            live = await other.load_session(client.session_id, world.cwd)
            await other.until_text("two")
            assert live["_meta"]["acp_bridge"]


@pytest.mark.hazard("V7.5")
async def test_work_that_nobody_looks_at_ends_in_time_and_what_waits_is_left_over(
    world: World,
) -> None:
    async with kept(world, keep="1s") as client:
        client.send_prompt("say one; gate never")
        waiting = client.send_prompt("say two")
        await world.gates.reached("never")
        await accepted(client, waiting)
        group_killed(client)
        await client.wait()
        await ended(world)
    async with world.inside(session=False) as other:
        loaded = await other.load_session(client.session_id, world.cwd)
        assert other.texts()[0] == "one"
        (held,) = loaded["_meta"]["acp_bridge"]["held"]
        assert held[0]["text"] == "say two"


def folders(pids: Iterable[int]) -> set[str]:
    """Where these processes work; one of them may end meanwhile."""
    found = set()
    for pid in pids:
        with suppress(FileNotFoundError, ProcessLookupError):
            found.add(os.readlink(f"/proc/{pid}/cwd"))
    return found


DIALOGUE = ROOT / "fixtures" / "dialogues" / "everyday.txt"


async def test_agents_and_what_they_are_forked_from_start_where_the_client_has_started_the_bridge(
    world: World, tmp_path: Path
) -> None:
    folder = tmp_path / "of the editor"
    folder.mkdir()
    async with kept(world, "--model", f"scripted:{DIALOGUE}", cwd=folder):
        bridge = (await kept_bridge(world)).pid
        agents = [pid for pid in descendants(bridge) if not children(pid)]
        parents = [pid for pid in children(bridge) if "agent.fork_parent" in command_line(pid)]
        assert len(parents) == 1
        assert folders([*agents, *parents]) == {str(folder)}
        assert folders([bridge]) == {"/"}


#: a bridge in which something fails that nothing expects.
FAILS = """
import sys
from acp_bridge import serving
from acp_bridge.__main__ import main
async def serve(*_, **__):
    raise RuntimeError("broken on purpose")
serving.serve = serve
sys.exit(main())
"""


async def test_a_failure_that_nothing_expects_is_one_line_in_the_log_and_the_waiter_s_exit_code(
    world: World,
) -> None:
    words = [sys.executable, "-c", FAILS, "--keep", "1h", "--", *fixture_command()]
    env = {**world.env, "ACP_BRIDGE_HOME": str(world.home), "PYTHONPATH": str(ROOT)}
    async with RecordingClient.start(words, env=env) as client:
        assert await client.wait() == 1
        await client.stderr_ended()
        await client.closed.wait()
    (line,) = (world.home / "bridge.log").read_text().splitlines()
    assert "ERROR the bridge has failed" in line
    assert "Traceback" in line
    assert line.endswith("RuntimeError: broken on purpose")
    assert client.stderr.decode() == f"{line}\n"


async def test_the_agent_is_not_told_of_the_client_s_files_and_terminals(world: World) -> None:
    able: dict[str, Any] = {
        "fs": {"readTextFile": True, "writeTextFile": True},
        "terminal": True,
    }
    async with kept(world, **able):
        (told,) = world.log.received("initialize")
        assert not told["params"]["clientCapabilities"].keys() & able.keys()


async def test_without_work_it_ends_soon_after_its_client(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(attendance, "LINGER", 0.05)
    async with world.inside(keep=3600.0) as client:
        assert await client.prompt("say one") == {"stopReason": "end_turn"}
