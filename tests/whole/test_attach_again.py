"""`acp-bridge attach` comes back by itself when its connection to a real bridge ends."""

import random
import signal
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial

import anyio
import pytest

from acp_bridge.sharing.bridge_client.by_socket import over_socket
from acp_bridge.sharing.bridge_client.connection import Connection
from acp_bridge.sharing.bridge_client.listener import Listener
from acp_bridge.terminal.chat import opening
from acp_bridge.terminal.chat.conversation import Conversation
from acp_bridge.terminal.chat.main import Plan, _Running
from acp_bridge.terminal.view.blocks import Line, Paragraph
from tests.support.client import RecordingClient
from tests.support.joined import listening
from tests.support.person import person
from tests.support.waiting import until
from tests.whole.bridge_support import World, stopped

pytestmark = [pytest.mark.process, pytest.mark.hazard("N2")]
AGAIN = "the connection has ended: connecting again"


class Guest:
    """One who has attached, without a screen."""

    def __init__(self, running: _Running) -> None:
        self._running = running
        self.talk: Conversation = running.conversation
        self.connections: list[Connection] = []
        self.texts: list[str] = []

    def cut(self) -> None:
        self.connections[-1].close()

    def collect(self) -> list[str]:
        """All that stands on the terminal."""
        while self.talk.unprinted.more:
            blocks = self.talk.unprinted.pop_next()
            self.texts += [b.text.strip() for b in blocks if isinstance(b, Paragraph | Line)]
        return self.texts


@asynccontextmanager
async def attached(world: World, editor: RecordingClient) -> AsyncIterator[Guest]:
    bridge = await listening(world.home)
    session_id = editor.session_id

    @asynccontextmanager
    async def connect(
        listener: Listener, *, tell: Callable[[str], None]
    ) -> AsyncIterator[Connection]:
        async with over_socket(bridge.socket, listener) as connection:
            guest.connections.append(connection)
            yield connection

    plan = Plan(
        connect,
        opening.attach(session_id),
        world.cwd,
        world.home / "history",
        world.home,
        str,
        str,
        own_bridge=False,
        come_again=partial(opening.attach, session_id),
    )
    guest = Guest(running := _Running(plan))
    async with connect(guest.talk, tell=running.log) as first, anyio.create_task_group() as tasks:
        await running._open(first)
        tasks.start_soon(running._watch, first)
        yield guest
        tasks.cancel_scope.cancel()
    running._sessions._send.close()
    running._sessions._asked.close()


@pytest.mark.hazard("X2")
@pytest.mark.parametrize("seed", range(5))
async def test_cut_at_any_moment_every_word_is_shown_once(world: World, seed: int) -> None:
    rng = random.Random(seed)
    said = [f"w{number:03}." for number in range(60)]
    prompts = ["; ".join(f"say {word}" for word in said[at : at + 20]) for at in (0, 20, 40)]
    async with world.inside(capabilities={}) as editor, attached(world, editor) as guest:
        theirs = editor.send_prompt(prompts[0])
        guest.talk.enter(prompts[1])
        guest.talk.enter(prompts[2])
        for _ in range(4):
            for _ in range(rng.randrange(300)):
                await anyio.lowlevel.checkpoint()
            guest.cut()
            count = len(guest.connections)
            await until(lambda: len(guest.connections) > count)  # noqa: B023
        assert await stopped(editor, theirs) == "end_turn"
        await until(lambda: not guest.talk.prompts.unanswered)
        guest.talk.transcript.end_turn()
        guest.talk.unprinted.collect()
        lines = guest.collect()
        words = " ".join(line for line in lines if not line.startswith("say ")).split()
        turns = [said[at : at + 20] for at in (0, 20, 40)]
        starts = sorted(turns, key=lambda turn: words.index(turn[0]))
        assert [word for word in words if word in said] == [w for turn in starts for w in turn]
        assert sorted(line for line in lines if line.startswith("say ")) == sorted(prompts)
        assert lines.count(AGAIN) == 4
    assert sorted(world.log.prompts()) == sorted(prompts)


@pytest.mark.hazard("V4")
async def test_one_who_reads_too_little_is_let_go_and_comes_back_by_itself_with_every_word(
    world: World,
) -> None:
    said = [f"w{number:03}" for number in range(200)]
    more = "x" * 3000
    env = {**world.env, "ACP_BRIDGE_HOME": str(world.home)}
    async with world.inside(capabilities={}, client_limit=20_000, unread=0.2) as editor:
        await listening(world.home)
        async with person(["attach"], world.cwd, env) as there:
            await there.sees("/help lists keys")
            there.process.send_signal(signal.SIGSTOP)
            asked = editor.send_prompt("; ".join(f"say {word} {more}" for word in said))
            assert await stopped(editor, asked, within=30) == "end_turn"
            await editor.logged("client.let_go")
            there.process.send_signal(signal.SIGCONT)
            await there.until(lambda: AGAIN in there.seen)
            asked = editor.send_prompt("say last")
            await there.sees("last")
            there.type("\x04")
            assert await there.process.wait() == 0
            seen = there.seen
        assert await stopped(editor, asked) == "end_turn"
    assert [seen.count(word) for word in said] == [2] * 200  # in the prompt, and said
