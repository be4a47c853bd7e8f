"""The MCP servers of a session: given, given anew, closed."""

from pathlib import Path
from typing import Any

import anyio
import pytest

from agent.mcp_servers.session_servers import READY_SECONDS, SessionServers
from tests.agent.mcp_servers.recorded_servers import RecordedServers

CWD = Path("/project")
ONE: list[dict[str, Any]] = [{"name": "one", "command": "/bin/one", "args": [], "env": []}]
TWO: list[dict[str, Any]] = [{"name": "two", "command": "/bin/two", "args": [], "env": []}]


async def say(text: str) -> None:
    pass


def tools(servers: SessionServers) -> list[str]:
    return [tool.name for tool in servers.tools]


async def test_without_servers_there_is_nothing_to_serve_and_to_wait_for(
    mcp_servers: list[RecordedServers],
) -> None:
    servers = SessionServers(say)
    servers.use([], CWD)
    with anyio.fail_after(5):
        await servers.serve()
        await servers.settled()
        await servers.close()
    assert tools(servers) == []
    assert mcp_servers == []


@pytest.mark.hazard("R5", "P7.1")
async def test_servers_given_anew_take_the_place_of_the_old_which_are_closed(
    mcp_servers: list[RecordedServers],
) -> None:
    servers = SessionServers(say)
    with anyio.fail_after(5):
        async with anyio.create_task_group() as tasks:
            servers.use(ONE, CWD)
            tasks.start_soon(servers.serve)
            await anyio.wait_all_tasks_blocked()
            servers.use(TWO, CWD)
            tasks.start_soon(servers.serve)
            await anyio.wait_all_tasks_blocked()
            assert [each.closed.is_set() for each in mcp_servers] == [True, False]
            assert tools(servers) == ["mcp__two__greet"]
            await servers.close()
    assert [each.closed.is_set() for each in mcp_servers] == [True, True]
    assert [each.served for each in mcp_servers] == [1, 1]
    assert tools(servers) == []


@pytest.mark.hazard("R4")
async def test_the_same_servers_given_again_go_on(mcp_servers: list[RecordedServers]) -> None:
    servers = SessionServers(say)
    with anyio.fail_after(5):
        async with anyio.create_task_group() as tasks:
            for _ in range(2):
                servers.use(list(ONE), CWD)
                tasks.start_soon(servers.serve)
                await anyio.wait_all_tasks_blocked()
            assert len(mcp_servers) == 1
            assert mcp_servers[0].served == 1
            await servers.close()


@pytest.mark.hazard("P7")
async def test_closed_before_they_were_served_they_are_not_served(
    mcp_servers: list[RecordedServers],
) -> None:
    servers = SessionServers(say)
    servers.use(ONE, CWD)
    with anyio.fail_after(5):
        await servers.close()
        await servers.serve()
    assert mcp_servers[0].served == 0


async def test_a_session_that_was_closed_gets_its_servers_anew(
    mcp_servers: list[RecordedServers],
) -> None:
    servers = SessionServers(say)
    servers.use(ONE, CWD)
    await servers.close()
    servers.use(ONE, CWD)
    assert len(mcp_servers) == 2
    assert tools(servers) == ["mcp__one__greet"]


@pytest.mark.hazard("C21")
async def test_a_turn_waits_for_new_servers_once_and_not_for_ever(
    mcp_servers: list[RecordedServers],
) -> None:
    servers = SessionServers(say)
    servers.use(ONE, CWD)
    await servers.settled()
    await servers.settled()
    assert mcp_servers[0].waited == [READY_SECONDS]
    servers.use(TWO, CWD)
    await servers.settled()
    assert mcp_servers[1].waited == [READY_SECONDS]
