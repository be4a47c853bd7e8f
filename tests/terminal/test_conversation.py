"""A conversation without a terminal: opening, replay, errors, and what is refused."""

from pathlib import Path
from typing import Any

import anyio
import pytest

from acp_bridge.terminal.chat.conversation import Conversation
from acp_bridge.terminal.view.blocks import Line, Text, Tone
from acp_bridge.wire.jsonrpc import Err, RpcError
from tests.terminal.fake_bridge import FakeBridge, connection_to

SESSION = "s1"


def conversation(folder: Path) -> Conversation:
    return Conversation(folder, lambda: None, lambda: 0.0)


def texts(talk: Conversation) -> list[str]:
    return [block.text.strip() for block in talk.unprinted.take() if isinstance(block, Text | Line)]


async def settled(bridge: FakeBridge) -> None:
    """Wait until the other end has read all that was sent: it answers what comes last."""
    number = bridge.ask("fs/read_text_file", {})
    with anyio.fail_after(5):
        await bridge.until(lambda: len(bridge.answered) >= number)


async def test_what_is_entered_before_the_session_is_open_is_sent_then_in_order(
    tmp_path: Path,
) -> None:
    talk, bridge = conversation(tmp_path), FakeBridge()
    talk.enter("one")
    talk.enter("two")
    assert [prompt.text for prompt in talk.waiting] == ["one", "two"]
    async with connection_to(bridge, talk) as connection:
        talk.use(connection)
        talk.opened(SESSION, {})
        with anyio.fail_after(5):
            await bridge.until(lambda: len(bridge.calls) == 2)
        assert [call.params["prompt"][0]["text"] for call in bridge.calls] == ["one", "two"]
        assert [prompt.text for prompt in talk.waiting] == ["two"]


async def test_of_a_long_replay_the_newest_blocks_are_shown_and_the_rest_is_counted(
    tmp_path: Path,
) -> None:
    talk, bridge = conversation(tmp_path), FakeBridge()
    async with connection_to(bridge, talk):
        for number in range(200):
            bridge.say(SESSION, f"said {number}", "user_message_chunk")
            bridge.say(SESSION, f"answer {number}")
        await settled(bridge)
        assert talk.unprinted.take() == []
        assert talk.unprinted.tail() == []
        talk.opened(SESSION, {})
        shown = texts(talk)
        assert shown[0] == "340 earlier blocks are not shown here: acp-bridge show s1"
        assert shown[-2:] == ["said 199", "answer 199"]
        assert len(shown) == 61


async def test_more_is_read_only_when_the_terminal_keeps_up(tmp_path: Path) -> None:
    talk, bridge = conversation(tmp_path), FakeBridge()
    async with connection_to(bridge, talk):
        talk.opened(SESSION, {})
        bridge.say(SESSION, "x\n\n" * 300)
        waiting = anyio.Event()

        async def room() -> None:
            waiting.set()
            await talk.room()

        with anyio.fail_after(5):
            while not talk.unprinted.tail():
                await anyio.lowlevel.checkpoint()
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(room)
                await waiting.wait()
                assert len(talk.unprinted.take()) >= 299


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        ({"stopReason": "end_turn"}, []),
        ({"stopReason": "cancelled"}, ["stopped"]),
        ({"stopReason": "refusal"}, ["the agent refused"]),
        ({"stopReason": "odd\x1b[2J"}, [r"ended: odd\x1b[2J"]),
        (RpcError(-32603, "it\x1b[2J broke"), [r"error: it\x1b[2J broke"]),
        (RpcError.received(-32603, "no", {"details": "why"}), ["error: no: why"]),
    ],
)
async def test_how_a_turn_ended_is_said_unless_it_ended_well(
    tmp_path: Path, answer: Any, said: list[str]
) -> None:
    talk, bridge = conversation(tmp_path), FakeBridge(**{"session/prompt": answer})
    async with connection_to(bridge, talk) as connection:
        talk.use(connection)
        talk.opened(SESSION, {})
        talk.enter("go")
        with anyio.fail_after(5):
            while talk.prompts:
                await anyio.lowlevel.checkpoint()
        assert texts(talk) == ["go", *said]


async def test_nothing_is_done_for_an_agent_but_asking(tmp_path: Path) -> None:
    talk, bridge = conversation(tmp_path), FakeBridge()
    async with connection_to(bridge, talk):
        for method in ("fs/read_text_file", "terminal/create", "elicitation/create"):
            bridge.ask(method, {"sessionId": SESSION})
        with anyio.fail_after(5):
            await bridge.until(lambda: len(bridge.answered) == 3)
        assert all(isinstance(answer, Err) for answer in bridge.answered)
        assert talk.questions.shown is None


async def test_a_mode_that_is_refused_is_said(tmp_path: Path) -> None:
    talk = conversation(tmp_path)
    bridge = FakeBridge(**{"session/set_mode": RpcError(-32602, "no such mode")})
    async with connection_to(bridge, talk) as connection:
        talk.choose("mode", "x")
        talk.use(connection)
        talk.opened(SESSION, {})
        talk.choose("mode", "x")
        blocks: list[Any] = []
        with anyio.fail_after(5):
            while len(blocks) < 2:
                blocks += talk.unprinted.take()
                await anyio.lowlevel.checkpoint()
        assert blocks[0] == Line("the session is not open yet")
        assert blocks[1] == Line("error: no such mode", Tone.ERROR)
