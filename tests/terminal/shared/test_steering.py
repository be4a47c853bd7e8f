"""Words that one at a terminal sends into the turn that runs: shown once, where they were said."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from acp_bridge.core.wire.jsonrpc import RpcError
from acp_bridge.terminal.chat.conversation import Conversation
from tests.sharing.bridge_client.fake_bridge import FakeBridge
from tests.terminal.shared.chat_bench import SESSION, chat
from tests.terminal.shared.test_conversation import attached, settled, texts, told

STEERS = {"acp_bridge": {"delivery": "steer"}}


class Steered:
    """The turn of another client's prompt, and a prompt of this terminal that is to join it."""

    def __init__(self, talk: Conversation, bridge: FakeBridge) -> None:
        self.talk, self.bridge = talk, bridge
        self.call: Any = None

    async def stands(
        self, state: str = "running", prompt: str = "theirs", waiting: int = 0
    ) -> None:
        told(self.bridge, state, prompt=prompt, waiting=waiting)
        await settled(self.bridge)

    async def answered(self, delivery: str, reason: str = "end_turn") -> None:
        meta = {"acp_bridge": {"delivery": delivery}}
        self.bridge.peer.answer(self.call.id, {"stopReason": reason, "_meta": meta})
        await settled(self.bridge)

    @property
    def waits(self) -> list[str]:
        """What the bottom of the screen lists as waiting."""
        return [prompt.text for prompt in self.talk.queued]

    @property
    def shown(self) -> list[str]:
        self.talk.transcript.end_turn()
        self.talk.unprinted.collect()
        return texts(self.talk)


@asynccontextmanager
async def steered(folder: Path) -> AsyncGenerator[Steered]:
    async with attached(folder) as (talk, bridge):
        here = Steered(talk, bridge)
        await here.stands()
        bridge.say(SESSION, "They")
        await settled(bridge)
        talk.enter("also", steers=True)
        here.call = await bridge.asked("session/prompt")
        assert here.call.params["_meta"] == STEERS
        bridge.peer.notify("_acp_bridge/accepted", {"requestId": here.call.id, "promptId": "p1"})
        await here.stands(waiting=1)
        yield here


async def test_words_that_join_the_turn_are_shown_once_and_wait_until_the_agent_has_them(
    tmp_path: Path,
) -> None:
    async with steered(tmp_path) as here:
        assert here.waits == ["also"]
        await here.stands(waiting=0)
        assert here.waits == []
        assert here.talk.take_back() is None
        here.bridge.say(SESSION, "I see")
        await here.answered("steered", "cancelled")
        await here.stands("idle", prompt="")
        assert here.shown == ["They", "also", "I see"]  # that it was stopped is told of the turn
        assert here.talk.prompts.unanswered == []


async def test_words_that_do_not_join_have_a_turn_of_their_own_and_are_not_shown_again(
    tmp_path: Path,
) -> None:
    async with steered(tmp_path) as here:
        here.talk.enter("later")
        here.bridge.say(SESSION, "go on")
        await here.stands(waiting=2)
        assert here.waits == ["also", "later"]
        await here.stands(prompt="p1", waiting=1)
        assert here.waits == ["later"]
        here.bridge.say(SESSION, "I see")
        await here.answered("queued", "cancelled")
        assert here.shown == ["They", "also", "go on", "I see", "stopped"]


async def test_words_that_run_next_begin_before_a_prompt_that_waited_longer(tmp_path: Path) -> None:
    async with attached(tmp_path) as (talk, bridge):
        here = Steered(talk, bridge)
        await here.stands()
        for text, steers in (("first", False), ("urgent", True)):
            talk.enter(text, steers=steers)
        calls = await bridge.until(lambda: bridge.calls[1:] and bridge.calls)
        for number, call in enumerate(calls):
            ids = {"requestId": call.id, "promptId": f"p{number}"}
            bridge.peer.notify("_acp_bridge/accepted", ids)
        await here.stands(prompt="p1", waiting=1)
        assert here.waits == ["first"]
        assert here.shown == ["urgent"]


async def test_words_can_be_taken_back_while_they_wait_and_the_transcript_says_so(
    tmp_path: Path,
) -> None:
    async with steered(tmp_path) as here:
        assert here.talk.take_back() == "also"
        cancelled = await here.bridge.told("$/cancel_request")
        assert cancelled == {"requestId": here.call.id}
        await here.answered("queued", "cancelled")
        assert here.shown == ["They", "also", "taken back: also"]


async def test_that_words_may_be_lost_is_said_with_the_reason(tmp_path: Path) -> None:
    async with steered(tmp_path) as here:
        here.bridge.peer.fail(here.call.id, RpcError(-32603, "perhaps not read"))
        await settled(here.bridge)
        assert here.shown == ["They", "also", "error: perhaps not read"]


@pytest.mark.parametrize("text", ["also", "/queue"])
async def test_without_a_turn_or_for_a_command_of_the_bridge_it_is_an_ordinary_prompt(
    tmp_path: Path, text: str
) -> None:
    async with attached(tmp_path) as (talk, bridge):
        told(bridge, "running" if text == "/queue" else "idle")
        await settled(bridge)
        talk.enter(text, steers=True)
        assert "_meta" not in (await bridge.asked("session/prompt")).params
        assert texts(talk) == [text]


async def test_alt_enter_sends_into_the_turn_that_runs_and_without_one_as_enter_does(
    tmp_path: Path,
) -> None:
    async with chat(tmp_path) as running:
        running.type("do\x1b\r")
        call = await running.prompted("do")
        assert "_meta" not in call.params
        await running.terminal.shows("Esc stops")
        running.type("also\x1b\r")
        steered = await running.prompted("also")
        assert steered.params["_meta"] == STEERS
        await running.terminal.shows("» also\n\n  waits: also\n\n»\n")
        running.type("/help\x1b\r")
        await running.terminal.until(lambda: "Alt-Enter" in running.terminal.everything)
        assert not running.bridge.notified  # no Escape of it was a Stop
        running.end_turn(call)
        running.end_turn(steered)
        await running.terminal.hides("Esc stops")
