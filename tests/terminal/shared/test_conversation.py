"""A conversation without a terminal: opening, replay, errors, and what is refused."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest

from acp_bridge.core.wire.jsonrpc import Err, RpcError
from acp_bridge.terminal.chat import questions
from acp_bridge.terminal.chat.conversation import Conversation
from acp_bridge.terminal.view.blocks import Block, Line, Paragraph, Tone
from tests.sharing.bridge_client.fake_bridge import FakeBridge, connection_to

SESSION = "s1"


def conversation(folder: Path) -> Conversation:
    return Conversation(folder, lambda: None, lambda: 0.0)


def texts(talk: Conversation) -> list[str]:
    blocks: list[Block] = []
    while talk.unprinted.more:
        blocks += talk.unprinted.pop_next()
    return [block.text.strip() for block in blocks if isinstance(block, Paragraph | Line)]


def answer(talk: Conversation, monkeypatch: pytest.MonkeyPatch) -> None:
    """Mark the first answer and take it, as if it had been on the screen for long enough."""
    monkeypatch.setattr(questions, "_SETTLED", 0)
    talk.questions.drawn()
    assert talk.questions.press("1", "")
    assert isinstance(talk.press_enter(), questions.Taken)


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
    assert [prompt.text for prompt in talk.prompts.waiting] == ["one", "two"]
    async with connection_to(bridge, talk) as connection:
        talk.use(connection)
        talk.opened(SESSION, {})
        with anyio.fail_after(5):
            await bridge.until(lambda: len(bridge.calls) == 2)
        assert [call.params["prompt"][0]["text"] for call in bridge.calls] == ["one", "two"]
        assert [prompt.text for prompt in talk.prompts.waiting] == ["two"]


async def test_the_header_stands_below_a_replay_and_above_what_was_entered_before(
    tmp_path: Path,
) -> None:
    talk, bridge = conversation(tmp_path), FakeBridge()
    talk.enter("entered early")
    async with connection_to(bridge, talk) as connection:
        bridge.say(SESSION, "replayed", "user_message_chunk")
        await settled(bridge)
        talk.use(connection)
        talk.opened(SESSION, {}, header="the header")
        assert texts(talk) == ["replayed", "the header", "entered early"]


async def test_of_a_long_replay_the_newest_blocks_are_shown_and_the_rest_is_counted(
    tmp_path: Path,
) -> None:
    talk, bridge = conversation(tmp_path), FakeBridge()
    async with connection_to(bridge, talk):
        for number in range(200):
            bridge.say(SESSION, f"said {number}", "user_message_chunk")
            bridge.say(SESSION, f"answer {number}")
        await settled(bridge)
        assert talk.unprinted.pop_next() == []
        assert talk.unprinted.tail() == []
        talk.opened(SESSION, {})
        shown = texts(talk)
        assert shown[0] == "340 earlier blocks are not shown here: acp-bridge show s1"
        assert shown[-2:] == ["said 199", "answer 199"]
        assert len(shown) == 61
        talk.end()
        assert texts(talk) == []


async def test_what_the_chat_itself_says_is_shown_at_once_also_before_the_session_is_open(
    tmp_path: Path,
) -> None:
    talk, bridge = conversation(tmp_path), FakeBridge()
    async with connection_to(bridge, talk):
        bridge.say(SESSION, "replayed", "user_message_chunk")
        await settled(bridge)
        talk.say("of the chat")
        assert talk.unprinted.more
        assert texts(talk) == ["of the chat"]
        talk.say("right before")
        talk.opened(SESSION, {})
        assert texts(talk) == ["right before", "replayed"]


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
                assert len(texts(talk)) >= 299


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        ({"stopReason": "end_turn"}, []),
        ({"stopReason": "cancelled"}, ["stopped"]),
        ({"stopReason": "refusal"}, ["ended: the agent refused"]),
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
            while talk.prompts.unanswered:
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
                blocks += talk.unprinted.pop_next()
                await anyio.lowlevel.checkpoint()
        assert blocks[0] == Line("the session is not open yet")
        assert blocks[1] == Line("error: no such mode", Tone.ERROR)


def told(
    bridge: FakeBridge, state: str, *, prompt: str | None = None, mine: bool = True, **more: Any
) -> None:
    turn = {"turn": {"promptId": prompt, "mine": mine, "text": ""}} if prompt else {}
    params = {"sessionId": SESSION, "state": state, "waiting": 0, "clients": 2, "seconds": 0}
    bridge.peer.notify("_acp_bridge/state", {**params, **turn, **more})


@asynccontextmanager
async def attached(folder: Path, **kinds: Any) -> AsyncGenerator[tuple[Conversation, FakeBridge]]:
    """A conversation at a live session whose bridge tells where it stands."""
    talk = Conversation(folder, lambda: None, lambda: 0.0, **kinds)
    bridge = FakeBridge()
    async with connection_to(bridge, talk) as connection:
        talk.use(connection)
        talk.opened(SESSION, {}, live=True)
        with anyio.fail_after(5):
            yield talk, bridge


async def test_a_prompt_beside_another_client_s_turn_begins_when_the_bridge_says_so(
    tmp_path: Path,
) -> None:
    async with attached(tmp_path) as (talk, bridge):
        told(bridge, "running", prompt="theirs")
        await settled(bridge)
        talk.enter("mine")
        assert [prompt.text for prompt in talk.prompts.waiting] == ["mine"]
        call = await bridge.asked("session/prompt")
        bridge.peer.notify("_acp_bridge/accepted", {"requestId": call.id, "promptId": "p1"})
        bridge.say(SESSION, "for them")
        told(bridge, "running", prompt="p1")
        bridge.say(SESSION, "for me")
        await settled(bridge)
        assert talk.prompts.waiting == []
        talk.transcript.end_turn()
        talk.unprinted.collect()
        assert texts(talk) == ["for them", "mine", "for me"]


async def test_a_prompt_of_an_idle_session_begins_at_once_and_once(tmp_path: Path) -> None:
    async with attached(tmp_path) as (talk, bridge):
        told(bridge, "idle")
        await settled(bridge)
        talk.enter("mine")
        assert talk.prompts.waiting == []
        call = await bridge.asked("session/prompt")
        bridge.peer.notify("_acp_bridge/accepted", {"requestId": call.id, "promptId": "p1"})
        told(bridge, "running", prompt="p1")
        bridge.peer.answer(call.id, {"stopReason": "end_turn"})
        told(bridge, "idle")
        await settled(bridge)
        assert texts(talk) == ["mine"]
        assert not talk.running


async def test_ctrl_c_ends_the_turn_of_whoever_asked_it_but_not_of_one_who_looks_on(
    tmp_path: Path,
) -> None:
    async with attached(tmp_path) as (talk, bridge):
        told(bridge, "running", prompt="theirs")
        await settled(bridge)
        assert not talk.interrupt()
        assert (await bridge.asked("_acp_bridge/cancel")).params == {"sessionId": SESSION}
        assert not bridge.notified
    async with attached(tmp_path, read_only=True) as (talk, bridge):
        told(bridge, "running", prompt="theirs")
        await settled(bridge)
        assert not talk.interrupt()
        talk.enter("hello")
        talk.choose("mode", "x")
        await settled(bridge)
        assert (bridge.calls, bridge.notified) == ([], [])


async def test_an_agent_that_works_without_a_prompt_is_at_work_and_ctrl_c_stops_it(
    tmp_path: Path,
) -> None:
    async with attached(tmp_path) as (talk, bridge):
        told(bridge, "working")
        await settled(bridge)
        assert talk.running
        assert not talk.interrupt()
        assert (await bridge.asked("_acp_bridge/cancel")).params == {"sessionId": SESSION}
        told(bridge, "idle")
        await settled(bridge)
        assert not talk.running


async def test_the_bell_rings_when_a_question_is_shown_and_when_nothing_runs_any_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rung: list[None] = []
    async with attached(tmp_path, ring=lambda: rung.append(None)) as (talk, bridge):
        told(bridge, "idle")
        told(bridge, "running", prompt="one")
        told(bridge, "running", prompt="two")
        await settled(bridge)
        assert rung == []
        options = [{"optionId": "yes", "name": "Yes", "kind": "allow_once"}]
        for call in ({"toolCallId": "t1", "title": "a"}, {"toolCallId": "t2", "title": "b"}):
            params = {"sessionId": SESSION, "toolCall": call, "options": options}
            bridge.ask("session/request_permission", params)
        before = len(bridge.answered)
        bridge.ask("fs/read_text_file", {})
        await bridge.until(lambda: len(bridge.answered) > before)
        assert len(rung) == 1
        answer(talk, monkeypatch)
        assert len(rung) == 2
        answer(talk, monkeypatch)
        told(bridge, "idle")
        told(bridge, "asleep")
        await settled(bridge)
        assert len(rung) == 3


async def test_that_an_own_turn_was_stopped_is_said_once(tmp_path: Path) -> None:
    async with attached(tmp_path) as (talk, bridge):
        talk.enter("mine")
        call = await bridge.asked("session/prompt")
        bridge.peer.notify("_acp_bridge/accepted", {"requestId": call.id, "promptId": "p"})
        told(bridge, "running", prompt="p")
        told(bridge, "cancelling", prompt="p")
        bridge.peer.answer(call.id, {"stopReason": "cancelled"})
        told(bridge, "idle")
        await settled(bridge)
        assert texts(talk) == ["mine", "stopped"]


async def test_a_session_that_is_closed_and_a_client_that_is_let_go_are_said(
    tmp_path: Path,
) -> None:
    async with attached(tmp_path) as (talk, bridge):
        bridge.peer.notify("_acp_bridge/let_go", {"reason": "too slow\x1b[2J"})
        told(bridge, "closed", waiting=None, clients="x", seconds=None)
        await settled(bridge)
        assert talk.closed.is_set()
        assert texts(talk) == [r"too slow\x1b[2J", "the session was closed"]


async def test_a_command_of_the_bridge_never_waits_and_begins_no_turn(tmp_path: Path) -> None:
    async with attached(tmp_path) as (talk, bridge):
        told(bridge, "running", prompt="theirs")
        await settled(bridge)
        talk.enter("/queue")
        assert talk.prompts.waiting == []
        call = await bridge.asked("session/prompt")
        bridge.say(SESSION, "Nothing is waiting.")
        bridge.peer.answer(call.id, {"stopReason": "end_turn"})
        told(bridge, "idle")
        await settled(bridge)
        assert texts(talk) == ["/queue", "Nothing is waiting."]


async def test_a_prompt_that_is_answered_before_it_began_is_shown_with_its_error(
    tmp_path: Path,
) -> None:
    async with attached(tmp_path) as (talk, bridge):
        told(bridge, "held")
        await settled(bridge)
        talk.enter("mine")
        call = await bridge.asked("session/prompt")
        bridge.peer.fail(call.id, RpcError(-32603, "not ready"))
        await settled(bridge)
        assert texts(talk) == ["mine", "error: not ready"]
        assert talk.prompts.unanswered == []


async def test_a_turn_of_another_is_timed_from_when_its_prompt_is_being_written(
    tmp_path: Path,
) -> None:
    async with attached(tmp_path) as (talk, bridge):
        told(bridge, "running", seconds=3, waiting=1)
        await settled(bridge)
        assert talk.prompts.seconds == 3
