"""MCP servers that behave as they like: the session hears of it, the others go on, none is left."""

import logging
import subprocess
import sys
from pathlib import Path

import anyio
import anyio.lowlevel
import pytest

from agent.mcp_servers import mcp_session, server, server_set, stdio
from agent.mcp_servers.server_set import ServerSet
from agent.tools import ToolError
from tests.agent.mcp_servers.support import HttpServer, call, odd, serving, starting
from tests.agent.mcp_servers.support import stdio as stdio_spec
from tests.support.processes import all_gone, marked
from tests.support.waiting import until

pytestmark = pytest.mark.process


async def test_a_server_that_can_not_be_used_is_named_and_the_others_go_on(tmp_path: Path) -> None:
    async with serving(
        tmp_path,
        odd("good"),
        odd("dead", "dies"),
        odd("nonsense", "nonsense"),
        stdio_spec("missing", "/no/such/command"),
        stdio_spec("folder", str(tmp_path)),
        {"type": "websocket", "name": "new", "url": "ws://127.0.0.1"},
    ) as stand:
        assert stand.names == ["mcp__good__echo"]
        assert (await stand.call("echo", x=1)).text == '["echo", {"x": 1}]'
    assert sorted(stand.said) == [
        "The MCP server dead can't be used: its connection ended.",
        "The MCP server folder can't be used: its command may not be executed.",
        "The MCP server missing can't be used: its command was not found.",
        "The MCP server new can't be used: this agent has no such transport.",
        "The MCP server nonsense can't be used: what it answers is not MCP.",
    ]


async def test_a_slow_server_is_named_when_the_turn_waits_no_longer_and_when_it_is_given_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mark: str
) -> None:
    monkeypatch.setattr(server, "START_SECONDS", 1)
    specs = odd("slow", "silent", mark=mark), odd("good")
    async with starting(tmp_path, *specs) as stand:
        await stand.servers.ready(0)
        await stand.servers.ready(0)
        late = "The MCP server {} is still starting; its tools come later."
        assert stand.said == [late.format("slow"), late.format("good")]
        with anyio.fail_after(5):
            await stand.servers.ready(5)
            await stand.until_said(3)
        assert stand.said[2:] == ["The MCP server slow can't be used: it was not ready within 1 s."]
        await all_gone(mark)
        # The limit is one for the start, not for the server's life.
        assert (await stand.call("echo")).text == '["echo", {}]'


async def test_noise_on_its_streams_goes_to_the_log_and_harms_nobody(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG, "agent.mcp_servers")
    async with serving(tmp_path, odd("loud", "noisy")) as stand:
        assert (await stand.call("echo")).text == '["echo", {}]'
    assert not stand.said
    assert capfd.readouterr() == ("", "")
    [line] = {r.getMessage() for r in caplog.records if "a warning" in r.getMessage()}
    assert line == "the MCP server loud: " + ("a warning" * 1000)[:500]


async def test_a_server_that_dies_later_takes_its_tools_along_and_is_named_once(
    tmp_path: Path,
) -> None:
    async with serving(tmp_path, odd("mortal", "dies_in_call"), odd("good")) as stand:
        mortal = next(tool for tool in stand.servers.tools if tool.name == "mcp__mortal__echo")
        with pytest.raises(ToolError, match=r"The (connection to the )?MCP server mortal ended"):
            await call(mortal, tmp_path)
        with anyio.fail_after(5):
            await stand.until_said(1)
        assert stand.names == ["mcp__good__echo"]
        with pytest.raises(ToolError, match=r"^The MCP server mortal is gone\.$"):
            await call(mortal, tmp_path)
        assert (await stand.call("echo")).text == '["echo", {}]'
    assert stand.said == [
        "The MCP server mortal is gone, and its tools with it: its connection ended."
    ]


async def test_a_server_that_dies_between_calls_is_noticed(tmp_path: Path) -> None:
    async with serving(tmp_path, odd("mortal", "dies_idle")) as stand:
        with anyio.fail_after(5):
            await stand.until_said(1)
        assert not stand.names


@pytest.mark.hazard("P1", "P7.1")
async def test_closed_none_of_their_processes_is_left(
    tmp_path: Path, mark: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stdio, "_AFTER_EOF", 0.1)
    monkeypatch.setattr(stdio, "_AFTER_TERM", 0.1)
    specs = [
        odd("stubborn", "stubborn", "child", mark=mark),
        odd("tidy", "tidy", mark=mark),
        odd("leaves_a_child", "child", mark=mark),
        odd("leaves_a_daemon", "daemon", mark=mark),
        odd("good", mark=mark),
    ]
    async with serving(tmp_path, *specs) as stand:
        assert len(marked(mark)) >= 8  # and a guard each, which root alone can see
        await stand.servers.close()
        await all_gone(mark)
        assert (tmp_path / "tidied").exists()
        assert not stand.names
        await stand.servers.close()
    assert not stand.said


@pytest.mark.hazard("P1")
async def test_cancelled_none_of_their_processes_is_left(
    tmp_path: Path, mark: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stdio, "_AFTER_EOF", 0.1)
    servers = ServerSet(
        [odd("a", "child", mark=mark), odd("b", "silent", mark=mark)], tmp_path, _quiet
    )
    with anyio.fail_after(10):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(servers.serve)
            while len(marked(mark)) < 3:
                await servers.ready(0.1)
            tasks.cancel_scope.cancel()
    await all_gone(mark)


async def test_a_server_that_is_still_starting_is_closed_at_once_and_without_a_word(
    tmp_path: Path, mark: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server_set, "_CLOSE_SECONDS", 60)
    async with starting(tmp_path, odd("slow", "silent", mark=mark)) as stand:
        await until(lambda: marked(mark))
        with anyio.fail_after(5):
            await stand.servers.close()
    await all_gone(mark)
    assert not stand.said


async def test_without_servers_it_waits_to_be_closed_and_never_loads_the_sdk() -> None:
    code = """
import anyio, pathlib, sys
from agent.mcp_servers.server_set import ServerSet
async def main():
    servers = ServerSet([], pathlib.Path("/"), print)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(servers.serve)
        await servers.ready(5)
        await servers.close()
anyio.run(main)
print("mcp" in sys.modules, "mcp_types" in sys.modules)
"""
    root = Path(__file__).parents[3]
    with anyio.fail_after(20):
        done = await anyio.run_process(
            [sys.executable, "-c", code], cwd=root, stderr=subprocess.STDOUT
        )
    assert done.stdout == b"False False\n"


async def test_closed_before_it_was_served_nothing_starts(tmp_path: Path) -> None:
    servers = ServerSet([odd("good")], tmp_path, _quiet)
    with anyio.fail_after(5):
        await servers.close()
        await servers.serve()
    assert not servers.tools


async def test_tools_that_have_changed_are_listed_again(tmp_path: Path) -> None:
    async with serving(tmp_path, odd("odd", "changes")) as stand:
        with anyio.fail_after(5):
            while "mcp__odd__late" not in stand.names:
                await stand.call("echo")
        assert stand.names == ["mcp__odd__echo", "mcp__odd__late"]


async def test_a_list_that_never_ends_is_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mcp_session, "_PAGES", 3)
    async with serving(tmp_path, odd("odd", "endless")) as stand:
        assert stand.names == ["mcp__odd__echo", "mcp__odd__late"]


async def test_a_server_without_tools_is_no_trouble(tmp_path: Path) -> None:
    async with serving(tmp_path, odd("resources", "no_tools")) as stand:
        assert not stand.names
    assert not stand.said


async def test_each_tool_is_called_by_its_own_name_whatever_the_model_sees(tmp_path: Path) -> None:
    async with serving(tmp_path, odd("same", "odd_names"), odd("same")) as stand:
        assert len(set(stand.names)) == 5
        called = [(await call(tool, tmp_path)).text for tool in stand.servers.tools]
        assert sorted(called) == sorted(
            f'["{name}", {{}}]' for name in ["a.b", "a_b", "x" * 100, "x" * 100 + "y", "echo"]
        )


async def test_a_server_of_the_newest_protocol_alone_is_greeted_its_way(tmp_path: Path) -> None:
    async with serving(tmp_path, odd("modern", "modern")) as stand:
        assert not stand.said
        assert (await stand.call("echo")).text == '["echo", {}]'


async def test_a_message_that_is_too_long_ends_the_connection(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stdio, "LINE_LIMIT", 100_000)
    monkeypatch.setattr(stdio, "_AFTER_EOF", 0.1)
    async with serving(tmp_path, odd("long", "too_long")) as stand:
        with pytest.raises(ToolError, match="ended"):
            await stand.call("echo")
        with anyio.fail_after(5):
            await stand.until_said(1)
    assert stand.said[0].endswith(
        "gone, and its tools with it: it sent a message that is too long."
    )


async def test_a_call_that_gets_no_answer_ends_and_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server, "CALL_SECONDS", 0.1)
    monkeypatch.setattr(stdio, "_AFTER_EOF", 0.1)
    async with serving(tmp_path, odd("deaf", "deaf")) as stand:
        with pytest.raises(ToolError, match=r"deaf gave no answer in 0\.1 s"):
            await stand.call("echo")


@pytest.mark.hazard("C3.2")
async def test_cancelled_a_call_returns_at_once_even_if_the_server_takes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stdio, "_AFTER_EOF", 0.1)
    async with serving(tmp_path, odd("deaf", "deaf")) as stand:
        for _ in range(2):  # the second waits until the first is read
            with anyio.fail_after(3):
                async with anyio.create_task_group() as tasks:

                    async def fill() -> None:
                        await stand.call("echo", text="x" * 3_000_000)

                    tasks.start_soon(fill)
                    await anyio.wait_all_tasks_blocked()
                    tasks.cancel_scope.cancel()


async def test_a_report_that_fails_ends_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with serving(tmp_path, odd("dead", "dies"), odd("good"), report=_failing) as stand:
        assert (await stand.call("echo")).text == '["echo", {}]'


@pytest.mark.parametrize("kind", ["http", "sse"])
async def test_an_address_that_does_not_work_is_told_in_a_sentence(
    tmp_path: Path, kind: str
) -> None:
    async with (
        HttpServer() as web,
        serving(
            tmp_path,
            web.spec(kind, "login", status=401),
            web.spec(kind, "broken", status=500),
            {"type": kind, "name": "nobody", "url": "http://127.0.0.1:1/x", "headers": []},
            {"type": kind, "name": "nonsense", "url": "nowhere", "headers": []},
        ) as stand,
    ):
        assert sorted(stand.said) == [
            "The MCP server broken can't be used: it answered with an error (HTTP 500).",
            "The MCP server login can't be used: "
            "it wants an authorization that it was not given (HTTP 401).",
            "The MCP server nobody can't be used: it can't be reached.",
            "The MCP server nonsense can't be used: it can't be reached.",
        ]


async def test_an_http_server_that_dies_in_a_call_is_named_once(tmp_path: Path) -> None:
    async with (
        HttpServer() as web,
        serving(tmp_path, web.spec("http", "mortal", dies=True)) as stand,
    ):
        with pytest.raises(ToolError, match="MCP server mortal"):
            await stand.call("echo")
        with anyio.fail_after(5):
            await stand.until_said(1)
    assert stand.said == [
        "The MCP server mortal is gone, and its tools with it: it can't be reached."
    ]


async def test_cancelled_an_http_call_returns_at_once_even_if_the_server_takes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server_set, "_CLOSE_SECONDS", 0.1)  # it takes no farewell either
    async with (
        HttpServer() as web,
        serving(tmp_path, web.spec("http", "deaf", deaf=True)) as stand,
    ):
        for _ in range(3):
            with anyio.fail_after(3):
                async with anyio.create_task_group() as tasks:
                    tasks.start_soon(stand.call, "echo")
                    await anyio.wait_all_tasks_blocked()
                    tasks.cancel_scope.cancel()


async def _quiet(sentence: str) -> None: ...


async def _failing(sentence: str) -> None:
    raise RuntimeError(sentence)
