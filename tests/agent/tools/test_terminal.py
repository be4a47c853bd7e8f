"""The shell tool in a terminal of the client's: shown, bounded, always released."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import anyio
import pytest

from agent.client import ClientError, NotOffered
from agent.conversation.entries import Outcome
from agent.conversation.replay import card_end
from agent.secrets import Secrets
from agent.tools import ToolContext, ToolError, ToolResult
from agent.tools import terminal as client_terminal
from agent.tools.shell import LIMIT, Shell, ShellArgs
from tests.agent.conftest import Talk
from tests.agent.support import MemoryClient, MemoryTerminal
from tests.agent.talking import of_kind, opened
from tests.support.client_side import never_answers

TERMINAL = {"type": "terminal", "terminalId": "t1"}


class Editor(MemoryClient):
    """A client with terminals that writes down what it is asked."""

    def __init__(self, on_terminal: Callable[[MemoryTerminal], None] | None = None) -> None:
        super().__init__()
        self.has_terminals = True
        self.calls: list[str] = []
        self.waiting = anyio.Event()
        self.on_terminal = on_terminal or self.on_terminal

    async def create_terminal(self, command: str, args: Sequence[str], cwd: str, limit: int) -> str:
        self.calls.append("create")
        return await super().create_terminal(command, args, cwd, limit)

    async def show(self, content: Sequence[dict[str, Any]]) -> None:
        self.calls.append(f"show {content[0]['terminalId']}")

    async def wait_for_terminal(self, terminal_id: str) -> dict[str, Any]:
        self.calls.append("wait")
        self.waiting.set()
        return await super().wait_for_terminal(terminal_id)

    async def terminal_output(self, terminal_id: str) -> dict[str, Any]:
        self.calls.append("output")
        return await super().terminal_output(terminal_id)

    async def kill_terminal(self, terminal_id: str) -> None:
        self.calls.append("kill")
        await super().kill_terminal(terminal_id)

    async def release_terminal(self, terminal_id: str) -> None:
        self.calls.append("release")
        await super().release_terminal(terminal_id)


class Refusing(Editor):
    """Makes no terminal."""

    def __init__(self, refusal: ClientError) -> None:
        super().__init__()
        self._refusal = refusal

    async def create_terminal(self, command: str, args: Sequence[str], cwd: str, limit: int) -> str:
        raise self._refusal


class SlowEditor(Editor):
    """Makes a terminal once the test lets it."""

    def __init__(self) -> None:
        super().__init__()
        self.create_asked = anyio.Event()
        self.gate = anyio.Event()

    async def create_terminal(self, command: str, args: Sequence[str], cwd: str, limit: int) -> str:
        self.create_asked.set()
        await self.gate.wait()
        return await super().create_terminal(command, args, cwd, limit)


async def shell(client: Editor, command: str = "make", seconds: float = 60) -> ToolResult:
    with anyio.fail_after(5):
        args = ShellArgs(command=command, timeout=seconds)
        action = await Shell().prepare(args, ToolContext(Path("/project"), client))
        return await action.run(client.show)


def printing(
    output: str, code: int | None = 0, signal: str | None = None, truncated: bool = False
) -> Callable[[MemoryTerminal], None]:
    def end(terminal: MemoryTerminal) -> None:
        terminal.output, terminal.truncated = output, truncated
        terminal.end(code, signal)

    return end


async def test_a_command_runs_in_a_terminal_that_the_card_shows_and_that_is_released() -> None:
    client = Editor(printing("built\n", 2))
    result = await shell(client, "make all")
    assert client.calls == ["create", "show t1", "wait", "output", "release"]
    made = client.terminals["t1"]
    assert (made.command, made.args) == ("/bin/sh", ["-c", "make all"])
    assert (made.cwd, made.limit) == ("/project", LIMIT)
    assert result.text == "built\n[exit code 2]"
    assert result.raw == {"exitCode": 2, "output": "built\n", "truncated": False}
    assert result.content == (TERMINAL,)


async def test_a_signal_and_an_unknown_end_are_told() -> None:
    result = await shell(Editor(printing("", None, "SIGTERM")))
    assert result.text == "[ended by SIGTERM]"
    assert result.raw["signal"] == "SIGTERM"
    assert (await shell(Editor(printing("", None)))).text == "[ended; the exit code is not known]"


async def test_output_that_the_client_cut_is_called_so() -> None:
    result = await shell(Editor(printing("the end\n", truncated=True)))
    assert result.text == "[the editor kept only a part of the output]\nthe end\n"
    assert result.raw["truncated"] is True


async def test_output_is_bounded_also_when_the_client_bounds_nothing() -> None:
    result = await shell(Editor(printing("line\n" * 100_000)))
    assert len(result.text) < LIMIT + 100
    assert "bytes left out" in result.text
    assert result.raw["truncated"] is True


async def test_past_its_time_it_is_killed_and_what_it_printed_is_read() -> None:
    def print_only(terminal: MemoryTerminal) -> None:
        terminal.output = "so far\n"

    client = Editor(print_only)
    result = await shell(client, seconds=0.01)
    assert client.calls == ["create", "show t1", "wait", "kill", "output", "release"]
    assert result.text == "so far\n[killed after 0.01 s]"
    assert result.raw["exitCode"] is None


@pytest.mark.hazard("C10", "C19.3")
async def test_cancelled_while_it_waits_the_command_is_killed_and_released() -> None:
    client = Editor()
    with anyio.fail_after(5):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(shell, client)
            await client.waiting.wait()
            tasks.cancel_scope.cancel()
    assert client.calls == ["create", "show t1", "wait", "kill", "release"]
    assert client.terminals["t1"].killed
    assert client.terminals["t1"].released


@pytest.mark.hazard("C19.3")
async def test_cancelled_before_the_client_has_made_it_it_is_released_when_it_comes() -> None:
    client = SlowEditor()
    with anyio.fail_after(5):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(shell, client)
            await client.create_asked.wait()
            tasks.cancel_scope.cancel()
            with anyio.CancelScope(shield=True):
                await anyio.wait_all_tasks_blocked()
            assert client.calls == []
            client.gate.set()
    assert client.calls == ["create", "kill", "release"]


@pytest.mark.hazard("C7.1")
async def test_a_cancel_waits_only_so_long_for_a_client_that_answers_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(client_terminal, "_LATE", 0.01)
    client = SlowEditor()
    with anyio.fail_after(5):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(shell, client)
            await client.create_asked.wait()
            tasks.cancel_scope.cancel()
    assert client.calls == []


@pytest.mark.hazard("C7")
async def test_a_client_that_does_not_kill_is_still_asked_to_release(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Deaf(Editor):
        async def kill_terminal(self, terminal_id: str) -> None:
            self.calls.append("kill")
            await anyio.sleep_forever()

    monkeypatch.setattr(client_terminal, "_CLEAN", 0.01)
    client = Deaf()
    with anyio.fail_after(5):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(shell, client)
            await client.waiting.wait()
            tasks.cancel_scope.cancel()
    assert client.calls[-2:] == ["kill", "release"]


@pytest.mark.process
async def test_without_a_terminal_it_runs_as_a_process_of_the_agent(tmp_path: Path) -> None:
    client = Refusing(NotOffered("terminal/create failed", "Method not found"))
    with anyio.fail_after(5):
        context = ToolContext(tmp_path, client)
        action = await Shell().prepare(ShellArgs(command="echo here"), context)
        result = await action.run(client.show)
    assert result.text == "here\n"
    assert client.calls == []


@pytest.mark.hazard("K8.1")
async def test_a_command_that_the_client_refuses_is_not_run_and_the_model_told_why(
    tmp_path: Path,
) -> None:
    client = Refusing(ClientError("terminal/create failed", "not in this project"))
    context = ToolContext(tmp_path, client)
    action = await Shell().prepare(ShellArgs(command="touch made"), context)
    with anyio.fail_after(5), pytest.raises(ToolError) as caught:
        await action.run(client.show)
    assert str(caught.value) == "The editor refused to run the command: not in this project"
    assert not (tmp_path / "made").exists()


@pytest.mark.hazard("C3")
async def test_a_terminal_refused_because_of_a_cancel_is_no_reason_to_run_it_otherwise(
    tmp_path: Path,
) -> None:
    class Cancelled(SlowEditor):
        async def create_terminal(
            self, command: str, args: Sequence[str], cwd: str, limit: int
        ) -> str:
            self.create_asked.set()
            await self.gate.wait()
            raise ClientError("the prompt is cancelled")

    client = Cancelled()
    with anyio.fail_after(5):
        context = ToolContext(tmp_path, client)
        action = await Shell().prepare(ShellArgs(command="touch made"), context)

        async def run() -> None:
            await action.run(client.show)

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(run)
            await client.create_asked.wait()
            tasks.cancel_scope.cancel()
            client.gate.set()
    assert not (tmp_path / "made").exists()


async def test_a_terminal_that_never_comes_is_not_waited_for_and_the_command_not_run_twice(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(client_terminal, "_CREATE", 0.01)
    with pytest.raises(ToolError, match="did not open a terminal"):
        await shell(SlowEditor())


@pytest.mark.parametrize("method", ["wait_for_terminal", "terminal_output"])
async def test_a_client_that_fails_later_is_told_and_the_terminal_released(
    method: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def fail(terminal_id: str) -> None:
        raise ClientError("detail")

    client = Editor(printing("x"))
    monkeypatch.setattr(client, method, fail)
    with pytest.raises(ToolError, match=r"terminal failed; the command may have") as caught:
        await shell(client)
    assert "detail" not in str(caught.value)
    assert client.terminals["t1"].released


async def test_a_terminal_whose_card_can_t_be_shown_is_released() -> None:
    class Gone(Editor):
        async def show(self, content: Sequence[dict[str, Any]]) -> None:
            raise ConnectionError

    client = Gone()
    with pytest.raises(ConnectionError):
        await shell(client)
    assert client.calls == ["create", "kill", "release"]


async def test_the_end_of_its_card_names_no_released_terminal() -> None:
    result = await shell(Editor(printing("built\n")))
    outcome = Outcome("completed", result.text, result.raw, list(result.content or ()))
    end = card_end("c", outcome)
    assert "content" not in end  # the card keeps the terminal that it shows
    assert end["rawOutput"]["output"] == "built\n"


async def test_on_the_wire_a_terminal_is_made_shown_read_and_released(
    talk: Talk, cwd: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-12345678")
    async with talk('turn\ncall: shell {"command": "make"}\n---\ntext: done') as client:
        session_id = await opened(client, cwd)
        client.side.permission = "allow"
        await client.prompt("x")
        asked = {
            method: client.recording.requests(f"terminal/{method}")
            for method in ("create", "wait_for_exit", "output", "release")
        }
        cards = of_kind(client, "tool_call_update")
    assert all(len(requests) == 1 for requests in asked.values())
    params = asked["create"][0]["params"]
    assert params["sessionId"] == session_id
    assert (params["command"], params["args"]) == ("/bin/sh", ["-c", "make"])
    assert {"name": "OPENAI_API_KEY", "value": ""} in params["env"]
    assert client.side.terminals == []
    shown = [card["content"] for card in cards if "content" in card]
    assert shown == [[{"type": "terminal", "terminalId": "term-1"}]]
    assert cards[-1]["status"] == "completed"


@pytest.mark.hazard("C3", "C10.3", "C19")
async def test_on_the_wire_a_cancel_ends_the_terminal_before_the_prompt_is_answered(
    talk: Talk, cwd: Path
) -> None:
    async with talk('turn\ncall: shell {"command": "make"}\n---\ntext: done') as client:
        session_id = await opened(client, cwd)
        client.side.permission = "allow"
        client.side.handlers["terminal/wait_for_exit"] = never_answers
        running = client.send_prompt("x")
        await client.until_request("terminal/wait_for_exit")
        client.cancel(session_id)
        assert (await client.answer_to(running))["result"] == {"stopReason": "cancelled"}
        assert len(client.recording.requests("terminal/kill")) == 1
        assert client.side.terminals == []
        client.side.handlers.clear()
        await client.prompt("again")
        assert client.text() == "done"
        assert client.side.terminals == []


@pytest.mark.hazard("K5", "K7.1")
async def test_no_half_of_a_secret_is_left_where_the_client_cut_the_output() -> None:
    client = Editor(printing("VALUE and the end\n", truncated=True))
    secrets = Secrets(["SECRETVALUE"])
    context = ToolContext(Path("/project"), client, secrets=secrets)
    with anyio.fail_after(5):
        action = await Shell().prepare(ShellArgs(command="make"), context)
        result = await action.run(client.show)
    assert client.terminals["t1"].limit == LIMIT + len("SECRETVALUE")
    assert result.text == "[the editor kept only a part of the output]\nhe end\n"
