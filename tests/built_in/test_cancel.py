"""Cancelled in every state, with the agent behind the bridge: `cancelled` is the answer,
nothing follows, and a strict provider takes the next prompt.

One process serves all of a way's tests in one session: each goes on with what the others left.
"""

from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import pytest

from agent.conversation.entries import INTERRUPTED
from tests.agent.mcp_servers.support import odd
from tests.agent.support import Fifo
from tests.built_in.support import (
    FIRST,
    Provider,
    Stack,
    conversation,
    results,
    stack_in,
)
from tests.support.client import RecordingClient
from tests.support.client_side import NoAnswer
from tests.support.model_replies import Call, Gate, Json, Status, Text
from tests.support.processes import marked

pytestmark = [pytest.mark.process, pytest.mark.slow]

HELD = '{"command": "(sleep 600 & wait) & sleep 600 & echo >running; wait"}'
TOO_LONG = {"error": {"code": "context_length_exceeded", "message": "maximum context length"}}
#: so much that a summary is worth while
LONG = "a long story " * 1000
READS = {"fs": {"readTextFile": True}}


@dataclass
class Desk:
    """A session that is open."""

    stack: Stack
    client: RecordingClient
    running: Fifo
    #: while no tool runs
    processes: list[int] = field(default_factory=list)
    _begun: int = 0
    _texts: Iterator[str] = field(default_factory=lambda: (f"prompt {n}" for n in range(1000)))

    @property
    def provider(self) -> Provider:
        return self.stack.provider

    @property
    def asked(self) -> int:
        """Requests that the provider got."""
        return len(self.provider.requests)

    def files(self, answer: Callable[[Json], Json]) -> None:
        self.client.side.handlers["fs/read_text_file"] = answer

    def begin(self, text: str = "") -> Any:
        self._begun = self.client.mark()
        return self.client.send_prompt(text or next(self._texts))

    async def card_is(self, status: str, count: int = 1, since: int = 0) -> None:
        def seen() -> bool:
            updates = self.client.updates(since=since)
            return [update.get("status") for update in updates].count(status) >= count

        await self.client.until_recorded(seen)

    def open_cards(self) -> set[str]:
        ended = {"completed", "failed"}
        updates = self.client.updates(since=self._begun)
        cards = [update for update in updates if "toolCallId" in update]
        over = {card["toolCallId"] for card in cards if card.get("status") in ended}
        return {card["toolCallId"] for card in cards} - over

    async def cancelled(self, prompt: Any) -> Json:
        """Cancels it and asks for more; the body of the request for that."""
        asked = self.asked
        self.client.cancel()
        answer = await self.client.answer_to(prompt)
        assert answer["result"] == {"stopReason": "cancelled"}
        assert marked(self.stack.mark) == self.processes  # C10
        assert self.open_cards() == set()
        since = self.client.mark()
        assert self.asked == asked
        self.provider.mute = False
        self.provider.say(Text("Fine."))
        assert await self.client.prompt(next(self._texts)) == {"stopReason": "end_turn"}
        # nothing of what was cancelled, neither to the user nor to the model
        assert self.client.text(since=since) == "Fine."
        assert [u for u in self.client.updates(since=since) if "toolCallId" in u] == []
        assert self.asked == asked + 1
        return self.provider.requests[-1].body


@asynccontextmanager
async def opened(stack: Stack) -> AsyncIterator[Desk]:
    running = Fifo(stack.cwd / "running")
    try:
        async with stack.start(capabilities=READS) as client:
            desk = Desk(stack, client, running)
            client.side.permission = "allow"
            servers = [odd("deaf", "deaf", mark=stack.mark)]
            await client.new_session(stack.cwd, mcpServers=servers)
            stack.provider.say(Text("Hello."))
            await client.prompt(LONG, within=FIRST)
            desk.processes = marked(stack.mark)
            yield desk
    finally:
        running.close()


@pytest.fixture(scope="module")
async def one_desk(
    tmp_path_factory: pytest.TempPathFactory,
) -> AsyncIterator[Desk]:
    folder = tmp_path_factory.mktemp("desk")
    async with stack_in(folder) as stack, opened(stack) as desk:
        yield desk


@pytest.fixture
def desk(one_desk: Desk) -> Desk:
    one_desk.client.side.permission = "allow"
    return one_desk


async def test_before_the_first_token(desk: Desk) -> None:
    desk.provider.mute = True
    prompt = desk.begin("a prompt without an answer")
    request = await desk.provider.asked(desk.asked + 1)
    body = await desk.cancelled(prompt)
    await desk.provider.until_gone(request)
    assert conversation(body)[-2] == "user: a prompt without an answer"


async def test_mid_stream(desk: Desk) -> None:
    desk.provider.say(Text("Half of "), Gate("never"), Text("it"))
    prompt = desk.begin()
    await desk.client.until_text("Half of ")
    body = await desk.cancelled(prompt)
    await desk.provider.until_gone(desk.provider.requests[-2])
    assert conversation(body)[-2] == "assistant: Half of "


async def test_between_calls_that_come_one_after_the_other(desk: Desk) -> None:
    desk.provider.say(
        Call("shell", '{"command": "echo one"}'),
        Call("shell", HELD),
        Call("write_file", '{"path": "late.txt", "content": "late"}'),
    )
    prompt = desk.begin()
    await desk.running.lines()
    body = await desk.cancelled(prompt)
    assert results(body)[-3:] == ["one\n", INTERRUPTED, INTERRUPTED]
    assert not (desk.stack.cwd / "late.txt").exists()


async def test_between_calls_that_run_at_once(desk: Desk) -> None:
    def answer(params: Json) -> Json:
        if params["path"].endswith("/slow.txt"):
            raise NoAnswer
        return {"content": "quick"}

    desk.files(answer)
    since = desk.client.mark()
    for name in ("quick", "slow"):
        (desk.stack.cwd / f"{name}.txt").write_text("on the disk")
    desk.provider.say(
        Call("read_file", '{"path": "slow.txt"}'), Call("read_file", '{"path": "quick.txt"}')
    )
    prompt = desk.begin()
    await desk.card_is("completed", since=since)
    await desk.client.until_request("fs/read_text_file", 2)
    body = await desk.cancelled(prompt)
    assert results(body)[-2:] == [INTERRUPTED, "     1\tquick"]


async def test_waiting_for_permission(desk: Desk) -> None:
    desk.client.side.permission = "never"
    since = desk.client.mark()
    desk.provider.say(Call("shell", '{"command": "echo >late.txt"}'))
    prompt = desk.begin()
    await desk.client.until(lambda m: m.get("method") == "session/request_permission", since)
    body = await desk.cancelled(prompt)
    assert results(body)[-1] == INTERRUPTED
    assert not (desk.stack.cwd / "late.txt").exists()


@pytest.mark.hazard("C10.3")
async def test_in_a_command_whose_tree_is_dead_by_then(desk: Desk) -> None:
    desk.provider.say(Call("shell", HELD))
    prompt = desk.begin()
    await desk.running.lines()
    assert len(marked(desk.stack.mark)) >= len(desk.processes) + 3
    body = await desk.cancelled(prompt)
    assert results(body)[-1] == INTERRUPTED


async def test_in_a_call_of_an_mcp_server(desk: Desk) -> None:
    since = desk.client.mark()
    desk.provider.say(Call("mcp__deaf__echo", '{"text": "anyone?"}'))
    prompt = desk.begin()
    await desk.card_is("in_progress", since=since)
    body = await desk.cancelled(prompt)
    assert results(body)[-1] == INTERRUPTED


async def test_in_a_summary_that_the_user_asked_for(desk: Desk) -> None:
    desk.provider.say(Gate("never"), Text("In short"))
    prompt = desk.begin("/compact")
    await desk.provider.asked(desk.asked + 1)
    body = await desk.cancelled(prompt)
    assert f"user: {LONG}" in conversation(body)


async def test_in_a_retrys_back_off(desk: Desk) -> None:
    hung_up = desk.provider.hung_up
    desk.provider.say(Status(429, headers=(("Retry-After", "30"), ("Connection", "close"))))
    prompt = desk.begin("too soon")
    await desk.provider.until_hung_up(hung_up + 1)
    body = await desk.cancelled(prompt)
    assert conversation(body)[-2] == "user: too soon"


async def test_in_a_summary_that_a_provider_made_necessary(desk: Desk) -> None:
    asked = desk.asked
    desk.provider.say(Status(400, TOO_LONG))
    desk.provider.say(Gate("never"), Text("In short"))
    prompt = desk.begin("once more")
    summary = await desk.provider.asked(asked + 2)
    assert "You summarise" in summary.body["messages"][0]["content"]
    desk.client.cancel()
    assert (await desk.client.answer_to(prompt))["result"] == {"stopReason": "cancelled"}
    # what is too long still is
    desk.provider.say(Text("They told a long story."))
    desk.provider.say(Text("Fine."))
    await desk.client.prompt("and now?")
    told = conversation(desk.provider.requests[-1].body)
    assert "They told a long story." in told[0]
    assert told[-2:] == ["user: once more", "user: and now?"]
