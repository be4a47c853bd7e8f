"""`--at`: the commands on live sessions, as processes, at a server over WebSocket.

The commands have a data folder of their own, as on another machine: what they know is the token.
"""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

import anyio
import pytest
from anyio.abc import SocketAttribute, SocketStream

from acp_bridge.sharing.bridge_client.tasks import beside
from tests.remote.connect.site import logged_in
from tests.support.person import person
from tests.support.waiting import until
from tests.whole.bridge_support import World
from tests.whole.test_serve import Serving, serving

pytestmark = [pytest.mark.process, pytest.mark.hazard("N1")]

_GONE = (anyio.EndOfStream, anyio.BrokenResourceError, anyio.ClosedResourceError, OSError)


@dataclass
class Laptop:
    """Where the commands run: a data folder with a token, and a port."""

    world: World
    home: Path
    port: int

    @property
    def at(self) -> list[str]:
        return ["--at", f"http://127.0.0.1:{self.port}", "--home", str(self.home)]

    async def says(self, command: str, *words: str) -> tuple[int, str]:
        """The exit code of a command at the server, and what it prints."""
        code, out, err = await self.world.command(command, *words, *self.at)
        return code, out + err


def laptop(it: Serving, tmp_path: Path, token: str | None = None, port: int = 0) -> Laptop:
    """Log in, with another token if one is given, by way of another port if one is."""
    found = Laptop(it.world, tmp_path / "laptop", port or it.port)
    logged_in(found.home, found.port, token or it.secret)
    return found


async def test_a_turn_in_the_editor_s_own_bridge_is_seen_fed_answered_and_stopped_from_elsewhere(
    world: World, tmp_path: Path
) -> None:
    async with serving(world, tmp_path) as it, world.bridge(capabilities={}) as editor:
        here, session = laptop(it, tmp_path), editor.session_id
        editor.side.permission = "never"
        first = editor.send_prompt("permission; gate middle; say never")
        await editor.until_request("session/request_permission")
        code, out = await here.says("ps")
        assert (
            code,
            f"(acp-bridge approve --home {here.home} --at {here.at[1]} {session[:8]}" in out,
        ) == (0, True)
        code, out = await here.says("send", session[:6], "say queued")
        assert (code, out.split()[:4]) == (0, ["In", "the", "queue", "of"])
        code, out = await here.says("approve", session[:6], "--option", "allow")
        assert (code, out.splitlines()[-1].split()[:2]) == (0, ["Approved", "(Allow):"])
        await world.gates.reached("middle")
        assert (await here.says("cancel", session))[0] == 0
        assert (await editor.answer_to(first))["result"]["stopReason"] == "cancelled"
        await editor.until_text("queued")
        assert (await here.says("close", session))[0] == 0
        assert (await here.says("delete", "--yes", session))[0] == 0


async def test_a_prompt_runs_there_and_its_answer_comes_here(world: World, tmp_path: Path) -> None:
    async with serving(world, tmp_path) as it:
        here = laptop(it, tmp_path)
        code, out, err = await world.command("run", "say one", *here.at)
        assert (code, out) == (0, "one\n")
        session = err.splitlines()[0].rpartition(" ")[2]
        assert (await world.command("run", "say four", "--continue", *here.at))[1] == "four\n"
        code, out, _ = await world.command("send", "--wait", session, "say five", *here.at)
        assert (code, out) == (0, "five\n")
        code, out, _ = await world.command("run", "permission; say seven", "--json", *here.at)
        assert (code, json.loads(out.splitlines()[-1])["exitCode"]) == (3, 3)
    assert len(world.log.received("session/new")) == 2


@pytest.mark.parametrize(
    "words",
    [
        ("ps",),
        ("attach", "3f"),
        ("run", "words"),
    ],
)
async def test_without_a_token_each_says_how_to_get_one(
    world: World, tmp_path: Path, words: tuple[str, ...]
) -> None:
    here = Laptop(world, tmp_path / "laptop", 1)
    if words[0] == "attach":
        async with person([*words, *here.at], tmp_path, world.env) as there:
            await there.sees("there is no token for")
            assert await there.process.wait() == 9
        return
    code, said = await here.says(*words)
    assert code == 9
    assert f"run acp-bridge connect --home {here.home} --login http://127.0.0.1:1\n" in said


async def test_a_token_that_was_revoked_and_a_server_that_is_away_are_said(
    world: World, tmp_path: Path
) -> None:
    async with serving(world, tmp_path) as it:
        here = laptop(it, tmp_path)
        await it.command("revoke", "laptop")
        for words in (["ps"], ["run", "words"]):
            code, said = await here.says(*words)
            assert (code, "has refused the token" in said) == (9, True)
            login = f"--home {here.home} --login ws://127.0.0.1:{it.port}/acp"
            assert f"acp-bridge connect {login}" in said
    for words in (["ps"], ["run", "words"]):
        code, said = await here.says(*words)
        assert (code, "can't be reached: " in said) == (1, True), said


async def test_a_token_that_may_only_look_or_approve_gets_one_sentence(
    world: World, tmp_path: Path
) -> None:
    async with serving(world, tmp_path) as it, world.bridge(capabilities={}) as editor:
        looking = (await it.command("token", "--may", "look", "look")).strip()
        approving = (await it.command("token", "--may", "approve", "approve")).strip()
        editor.side.permission = "never"
        session = editor.session_id
        asked = editor.send_prompt("permission; say on")
        await editor.until_request("session/request_permission")
        here = laptop(it, tmp_path, looking)
        code, said = await here.says("send", session, "words")
        assert (code, said) == (1, "acp-bridge send: this login may only look\n")
        code, said = await here.says("run", "words")
        assert (code, said) == (6, "acp-bridge: this login may only look\n")
        code, said = await here.says("approve", session, "--option", "allow")
        assert (code, said.count("\n")) == (1, 1)
        assert "this login may only look: it is asked nothing" in said
        here = laptop(it, tmp_path, approving)
        code, said = await here.says("send", session, "words")
        assert (code, said.count("\n")) == (1, 1)
        assert "this login may look, answer questions and stop a turn, and no more" in said
        assert (await here.says("approve", session, "--option", "allow"))[0] == 0
        assert (await editor.answer_to(asked))["result"]["stopReason"] == "end_turn"


@dataclass
class Line:
    """The line to a server, which can be cut."""

    port: int = 0
    up: bool = True
    count: int = 0
    #: bytes from the server after which it is cut by itself, in the middle of a message, say.
    left: int = 1 << 30
    _open: list[SocketStream] = field(default_factory=list)

    async def take(self, here: SocketStream, port: int) -> None:
        async with here:
            if not self.up:
                return
            self.count += 1
            there = await anyio.connect_tcp("127.0.0.1", port)
            async with there, anyio.create_task_group() as tasks:
                self._open += [here, there]
                asked = await here.receive()  # under the name that the server knows
                name, real = f"127.0.0.1:{self.port}", f"127.0.0.1:{port}"
                await there.send(asked.replace(name.encode(), real.encode()))

                async def carry(one: SocketStream, other: SocketStream) -> None:
                    over = False
                    with suppress(*_GONE):
                        while not over:
                            data = await one.receive()
                            if one is there:
                                data = data[: self.left]
                                self.left -= len(data)
                                over = not self.left
                            await other.send(data)
                    tasks.cancel_scope.cancel()

                tasks.start_soon(carry, here, there)
                tasks.start_soon(carry, there, here)

    async def cut(self) -> None:
        while self._open:
            await anyio.aclose_forcefully(self._open.pop())


@asynccontextmanager
async def line_to(port: int) -> AsyncIterator[Line]:
    line = Line()
    async with await anyio.create_tcp_listener(local_host="127.0.0.1") as listener:
        line.port = listener.extra(SocketAttribute.local_port)
        async with beside() as tasks:
            tasks.start_soon(listener.serve, lambda here: line.take(here, port))
            yield line


@pytest.mark.hazard("N2.1", "X2")
async def test_one_who_attaches_comes_back_when_the_line_drops_and_sees_every_word_once(
    world: World, tmp_path: Path
) -> None:
    async with (
        serving(world, tmp_path) as it,
        line_to(it.port) as line,
        world.bridge(capabilities={}) as editor,
    ):
        here = laptop(it, tmp_path, port=line.port)
        first = editor.send_prompt("say word1; gate one; say word2; gate two; say word3")
        await world.gates.reached("one")
        async with person(["attach", editor.session_id[:6], *here.at], world.cwd, world.env) as me:
            await me.sees("word1")
            me.type("say of mine\r")
            await me.sees("waits: say of mine")
            line.up = False
            await line.cut()
            await me.sees("connecting again")
            world.gates.open("one")
            await world.gates.reached("two")
            line.up = True
            await me.until(lambda: me.seen.count("word2") == 2)
            me.type("say more of mine\r")  # which it takes once it is back
            await me.sees("waits: say more of mine")
            await line.cut()
            world.gates.open("two")
            await me.until(lambda: me.seen.count("word3") == 2)
            await me.sees("\nof mine")
            await me.sees("\nmore of mine")
            assert (await editor.answer_to(first))["result"]["stopReason"] == "end_turn"
            me.type("\x04")
            assert await me.process.wait() == 0
            assert f"acp-bridge attach --home {here.home} --at {here.at[1]}" in me.seen.replace(
                "\n", ""
            )
            words = me.seen
        assert [words.count(f"word{n}") for n in (1, 2, 3)] == [2, 2, 2], words
        assert line.count >= 4


@pytest.mark.hazard("N2.1", "X2")
async def test_cut_after_any_byte_every_word_is_shown_once(world: World, tmp_path: Path) -> None:
    rng = Random(0)
    parts = [[f"w{part}{number:02}" for number in range(20)] for part in range(4)]
    words = [word for part in parts for word in part]
    steps = [
        f"gate {at}; " + "; ".join(f"say {word}" for word in part) for at, part in enumerate(parts)
    ]
    async with (
        serving(world, tmp_path) as it,
        line_to(it.port) as line,
        world.bridge(capabilities={}) as editor,
    ):
        here = laptop(it, tmp_path, port=line.port)
        first = editor.send_prompt("; ".join(steps))
        async with person(["attach", editor.session_id[:6], *here.at], world.cwd, world.env) as me:
            await me.sees("/help lists keys")
            for at, part in enumerate(parts):
                line.left = rng.randrange(1, 4000)
                count = line.count
                await world.gates.reached(str(at))
                world.gates.open(str(at))
                await until(lambda: line.left == 0, within=20)
                line.left = 1 << 30
                await until(lambda: line.count > count, within=20)  # noqa: B023
                await me.until(lambda: me.seen.count(part[-1]) >= 2)  # noqa: B023
            assert (await editor.answer_to(first))["result"]["stopReason"] == "end_turn"
            me.type("\x04")
            assert await me.process.wait() == 0
            seen = me.seen.replace("\n", "")  # where a word is wrapped
        assert [seen.count(word) for word in words] == [2] * len(words)  # in the prompt, and said


async def test_a_run_whose_line_drops_says_how_to_come_back_to_its_turn(
    world: World, tmp_path: Path
) -> None:
    async with serving(world, tmp_path) as it, line_to(it.port) as line:
        here, said = laptop(it, tmp_path, port=line.port), list[str]()

        async def run() -> None:
            code, out = await here.says("run", "gate middle; say on")
            assert code == 1
            said.append(out)

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(run)
            await world.gates.reached("middle")
            await line.cut()
        back = f"the turn goes on there: acp-bridge attach --home {here.home} --at {here.at[1]} "
        assert back in said[0]
        world.gates.open("middle")
        session = said[0].partition(back)[2][:8]
        code, out = await here.says("send", "--wait", session, "say more")
        assert (code, out) == (0, "more\n")


async def test_a_session_that_is_not_live_is_opened_there_and_a_look_sends_nothing(
    world: World, tmp_path: Path
) -> None:
    async with serving(world, tmp_path) as it:
        here = laptop(it, tmp_path)
        await world.command("run", "say before", *here.at)
        session = json.loads((await here.says("ps", "--json"))[1])["sessionId"]
        code, said = await here.says("close", session)
        assert code == 0 or "is not live" in said  # nobody is in it, so it may end by itself
        async with person(["attach", session[:6], *here.at], world.cwd, world.env) as me:
            await me.sees("before")
            me.type("say after\r")
            await me.until(lambda: me.seen.count("after") >= 2)
            me.type("/export\r")
            await me.sees("which is on another machine")
            me.type("\x04")
            assert await me.process.wait() == 0
        looking = (await it.command("token", "--may", "look", "look")).strip()
        here = laptop(it, tmp_path, looking)
        async with person(["attach", session[:6], *here.at], world.cwd, world.env) as me:
            await me.sees("after")
            await me.sees("this login may only look")
            me.type("say more\r")
            await me.sees("this only looks on")
            me.type("\x04")
            assert await me.process.wait() == 0
    assert [each.split()[1] for each in world.log.prompts()] == ["before", "after"]
