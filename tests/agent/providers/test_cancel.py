"""Cancelling an answer closes its connection, in whatever state it is."""

import anyio
import pytest

from agent.model import Token
from agent.providers.provider_model import ProviderModel
from agent.providers.retry import Retry
from tests.agent.providers.support import ASK, BOTH, OPENAI, TOOLS, Open
from tests.agent.support import Tokens
from tests.support.model_replies import Gate, Status, Text
from tests.support.model_server import ModelServer


class Asking:
    """A model that is being asked in a task of its own."""

    def __init__(self, model: ProviderModel) -> None:
        self.tokens = Tokens()
        self.token_told = anyio.Event()
        self.ended = anyio.Event()
        self.scope = anyio.CancelScope()
        self._model = model

    async def run(self) -> None:
        with self.scope:
            await self._model.complete(ASK, TOOLS, self._told)
        self.ended.set()

    async def _told(self, token: Token) -> None:
        await self.tokens(token)
        self.token_told.set()


@BOTH
@pytest.mark.parametrize("direct", [True, False])
async def test_the_server_sees_a_cancel_in_the_middle(
    server: ModelServer, open_model: Open, name: str, direct: bool
) -> None:
    server.say(Text("one "), Gate("never"), Text("two"))
    asking = Asking(open_model(name, direct=direct))
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(asking.run)
        with anyio.fail_after(5):
            await asking.token_told.wait()
            asking.scope.cancel()
            await server.requests[0].gone.wait()
            await asking.ended.wait()
    assert asking.tokens.texts == ["one "]


@BOTH
@pytest.mark.parametrize("direct", [True, False])
async def test_the_server_sees_a_cancel_before_the_first_token(
    server: ModelServer, open_model: Open, name: str, direct: bool
) -> None:
    server.say(Gate("never"), Text("one"))
    asking = Asking(open_model(name, direct=direct))
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(asking.run)
        with anyio.fail_after(5):
            await server.reached("never")
            asking.scope.cancel()
            await server.requests[0].gone.wait()
            await asking.ended.wait()
    assert asking.tokens.told == []


async def test_a_cancel_while_it_waits_to_try_again_ends_it(
    server: ModelServer, open_model: Open
) -> None:
    waiting = anyio.Event()

    async def wait(seconds: float) -> None:
        waiting.set()
        await anyio.sleep_forever()

    server.say(Status(429))
    asking = Asking(open_model(OPENAI, retry=Retry(sleep=wait)))
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(asking.run)
        with anyio.fail_after(5):
            await waiting.wait()
            asking.scope.cancel()
            await asking.ended.wait()
    assert len(server.requests) == 1


async def test_a_cancel_from_within_a_token_tells_no_other(
    server: ModelServer, open_model: Open
) -> None:
    server.say(*(Text(f"{i} ") for i in range(50)))
    tokens = Tokens()
    with anyio.fail_after(5), anyio.CancelScope() as scope:

        async def stop(token: Token) -> None:
            await tokens(token)
            scope.cancel()
            await anyio.lowlevel.checkpoint()

        await open_model(OPENAI).complete(ASK, TOOLS, stop)
    assert tokens.texts == ["0 "]


async def test_a_flood_that_is_buffered_can_be_cancelled(
    server: ModelServer, open_model: Open
) -> None:
    """However little `on_token` waits for."""
    server.say(*(Text(f"{i} ") for i in range(200)), Gate("all"))
    told = 0
    with anyio.fail_after(5), anyio.CancelScope() as scope:

        async def count(token: Token) -> None:
            nonlocal told
            told += 1
            if told == 1:
                await server.reached("all")
            scope.cancel()

        await open_model(OPENAI).complete(ASK, TOOLS, count)
    assert told < 200
