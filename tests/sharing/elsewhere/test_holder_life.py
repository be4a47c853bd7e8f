"""Whether a bridge at the other end still lives: what its silence means, and what it does not."""

import anyio
import anyio.lowlevel
import pytest

from acp_bridge.core.wire.jsonrpc import Ok, RpcError
from acp_bridge.sharing.bridge_client.sent import Sent
from acp_bridge.sharing.elsewhere.holder_life import HolderLife
from tests.core.sessions.agent import until

pytestmark = pytest.mark.hazard("V8")


class Looks:
    """A truth that counts how often it is looked at."""

    def __init__(self, value: bool) -> None:
        self.value, self.count = value, 0

    def __bool__(self) -> bool:
        self.count += 1
        return self.value


class There:
    """The way to a bridge that is asked, and answers when the test lets it."""

    def __init__(self) -> None:
        self.asked: list[Sent] = []
        self.received = 0
        self.taken = 0
        self.lost: RpcError | None = None

    def send(self, method: str, params: object) -> Sent:
        self.asked.append(Sent(self, method))
        self.asked[-1].id = len(self.asked)
        return self.asked[-1]

    def cancel(self, sent: Sent) -> None:
        raise AssertionError(sent.method)


class Watched:
    """The life of a connection, and whether it was given up."""

    def __init__(self) -> None:
        self.there, self.owes, self.lost = There(), False, anyio.Event()
        self.life = HolderLife(self.there, 0.1, lambda: self.owes)

    async def answers(self, number: int) -> None:
        """Let the question of this number be answered, waited for."""
        await until(lambda: len(self.there.asked) == number)
        self.there.asked[-1].take(Ok({}))
        await until(lambda: self.life.has_read == number)

    async def run(self) -> None:
        await self.life.lost()
        self.lost.set()


async def test_one_that_was_sent_nothing_is_asked_nothing_and_one_that_answers_is_not_lost() -> (
    None
):
    it = Watched()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(it.run)
        for sent in range(3):
            assert len(it.there.asked) == sent
            it.life.note_sent()
            await it.answers(sent + 1)
        assert not it.lost.is_set()
        tasks.cancel_scope.cancel()


@pytest.mark.hazard("V8.7")
async def test_silence_counts_only_while_something_could_be_heard() -> None:
    it, held_up = Watched(), Looks(True)
    it.life.held_up = held_up  # type: ignore[assignment]
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(it.run)
        it.life.note_sent()
        await until(lambda: held_up.count > 10)
        assert not it.lost.is_set()
        held_up.value = False
        with anyio.fail_after(5):
            await it.lost.wait()
        assert (len(it.there.asked), it.life.has_read) == (1, 0)


@pytest.mark.parametrize("moves", ["received", "taken"])
async def test_one_that_says_something_else_or_takes_a_long_prompt_lives_though_it_does_not_answer(
    moves: str,
) -> None:
    async def goes_on() -> None:
        while True:
            setattr(it.there, moves, getattr(it.there, moves) + 1)
            await anyio.lowlevel.checkpoint()

    it, looks = Watched(), Looks(False)
    it.life.held_up = looks  # type: ignore[assignment]
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(goes_on)
        tasks.start_soon(it.run)
        it.life.note_sent()
        await until(lambda: looks.count > 10)
        tasks.cancel_scope.cancel()
    assert not it.lost.is_set()


async def test_what_it_owes_is_asked_for_again_and_again() -> None:
    it = Watched()
    it.owes = True
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(it.run)
        for asked in range(1, 4):
            await it.answers(asked)
        with anyio.fail_after(5):
            await it.lost.wait()  # the fourth is not answered
