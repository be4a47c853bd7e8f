"""The story of `make test-remote`, told on the machine that is away."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import anyio
from anyio.streams.buffered import BufferedByteReceiveStream

from tests.page_not_ours.browser import Browser, BrowserPage, browser
from tests.remote.serve.certificate import certificate
from tests.support.client import RecordingClient
from tests.support.fixture_agents import fixture_command
from tests.support.gates import Gates
from tests.support.wire import Wire, wire
from tests.two_machines.machines import HOME, PORT, at

ROOT = Path(__file__).parents[2]
BRIDGE = (sys.executable, "-m", "acp_bridge")
SERVED = f"https://{HOME.address}:{PORT}"
#: the same server through the wire that can be cut.
WIRED = f"https://127.0.0.1:{PORT}"
#: seconds for each thing that is waited for, on a machine that may be busy.
LONG = 60.0
#: for which a button of the page must have stood still before it acts, and some more.
SETTLED = 0.8


class Folders:
    """Where both machines keep what they keep, on one disk."""

    def __init__(self, folder: Path) -> None:
        self.project = folder / "project"
        self.profile = folder / "profile"
        self.cert, self.key = certificate(folder, f"IP:{HOME.address}", "IP:127.0.0.1")
        for made in (self.project, self.profile):
            made.mkdir()
        common = {**os.environ, "PYTHONPATH": str(ROOT), "SSL_CERT_FILE": self.cert}
        agent = {"FIXTURE_HOME": str(folder / "agent")}
        self.home = {**common, **agent, "ACP_BRIDGE_HOME": str(folder / "home")}
        self.away = {**common, "ACP_BRIDGE_HOME": str(folder / "laptop")}


async def story(folder: Path) -> None:
    """Tell it; raises AssertionError or TimeoutError where it does not hold."""
    at_hand = Folders(folder)
    async with Gates() as gates:
        at_hand.home |= gates.env
        token = await _command(at_hand.home, "serve", "token", "laptop")
        dial = partial(anyio.connect_tcp, HOME.address, PORT)
        async with _server(at_hand), _editor(at_hand) as editor, wire(dial, PORT) as line:
            login = ["connect", "--login", WIRED]
            await _command(at_hand.away, *login, said=token)
            code = (await _command(at_hand.home, "serve", "token", "--phone", "phone")).split()[-1]
            connect = [*BRIDGE, "connect", WIRED]
            async with (
                RecordingClient.start(connect, env=at_hand.away) as laptop,
                browser(at_hand.profile, "--ignore-certificate-errors") as chromium,
            ):
                await laptop.initialize({})
                phone = await _phone(chromium, code)
                them = Them(at_hand, gates, editor, laptop, phone, line, token)
                await them.see_and_approve()
                await them.stop_after_a_cut()
                await them.stop_while_the_line_is_down()
                await them.lose_nothing_in_twenty_cuts()


class Them:
    """Everybody who has the session: an editor at home, a laptop and a phone away."""

    def __init__(
        self,
        at_hand: Folders,
        gates: Gates,
        editor: RecordingClient,
        laptop: RecordingClient,
        phone: BrowserPage,
        line: Wire,
        token: str,
    ) -> None:
        self.at_hand, self.gates = at_hand, gates
        self.editor, self.laptop, self.phone, self.line = editor, laptop, phone, line
        self.token = token
        editor.side.permission = laptop.side.permission = "never"
        assert editor.session_id
        self.session = editor.session_id

    async def see_and_approve(self) -> None:
        """A turn of the editor's is seen by all, cut, and approved on the page."""
        _say("the editor starts a turn, which a laptop, a phone and a client on the SDK look at")
        turn = self.editor.send_prompt("say hello; permission; gate one; say there")
        await self.editor.until_request("session/request_permission", within=LONG)
        await self.laptop.load_session(self.session, self.at_hand.project)
        await self.laptop.until_text("hello", within=LONG)
        watched = await self._watch("there")
        await self.phone.shows("project")
        await self.phone.value(f"void (location.hash = {'#s=' + self.session!r})")
        await self.phone.shows("The agent asks", "#questions")
        await self.line.cut()
        await anyio.sleep(SETTLED)
        _say("the phone approves")
        await self.phone.click(".answers .allow")
        await self.laptop.until_text("[permission allow]", within=LONG)
        await self.line.cut()
        self.gates.open("one")
        assert (await self.editor.answer_to(turn, LONG))["result"]["stopReason"] == "end_turn"
        await self.laptop.until_text("there", within=LONG)
        words = "hello[permission allow]there"
        assert _words(self.editor) == words
        assert _words(self.laptop) == words
        with anyio.fail_after(LONG):
            assert (await watched.receive()) == words
        await self.phone.until(_count("[permission allow]") + " === 1")
        await self.phone.until(_count("there") + " === 2")  # in the prompt, and in the answer

    async def stop_after_a_cut(self) -> None:
        """A turn of the laptop's is stopped by it on the next connection."""
        _say("the laptop starts a turn, is cut off, and stops it")
        since = self.editor.mark()
        turn = self.laptop.send_prompt("stream 1000000 5", self.session)
        await self._shown_to_editor("7 ", since)
        await self.line.cut()
        self.laptop.cancel(self.session)
        await self._is_cancelled(turn)

    async def stop_while_the_line_is_down(self) -> None:
        """A Stop that is said without a line reaches its turn when there is one again."""
        _say("it starts another, and stops it while there is no line")
        since = self.editor.mark()
        turn = self.laptop.send_prompt("stream 1000000 5", self.session)
        await self._shown_to_editor("7 ", since)
        self.line.down = True
        await self.line.cut()
        self.laptop.cancel(self.session)
        await self.laptop.until_text("line", within=LONG)
        self.line.down = False
        await self._is_cancelled(turn)

    async def _is_cancelled(self, turn: Any) -> None:
        answer = await self.laptop.answer_to(turn, within=LONG)
        assert answer["result"]["stopReason"] == "cancelled"
        with anyio.fail_after(LONG):
            await self.phone.until("!document.body.innerText.includes('Stop the turn')")

    async def lose_nothing_in_twenty_cuts(self) -> None:
        """Twenty prompts under twenty cuts: every word and every answer once, for all."""
        _say("twenty turns, with twenty cuts anywhere in them")
        since, words = (self.editor.mark(), self.laptop.mark()), []
        for number in range(20):
            said = " ".join(f"w{number}.{part}" for part in range(12))
            words.append(said)
            self.line.breaks_after = 1 + number * 173
            turn = self.laptop.send_prompt(f"say {said}", self.session)
            answer = await self.laptop.answer_to(turn, within=LONG)
            assert answer["result"]["stopReason"] == "end_turn"
            assert len(self.laptop.recording.answers(turn)) == 1
            if self.line.breaks_after is not None:  # the turn was shorter
                await self.line.cut()
        assert self.line.cuts >= 20
        whole = "".join(words)
        await self._shown_to_editor(words[-1], since[0])
        assert _words(self.editor, since[0]) == whole
        await self.laptop.until_recorded(lambda: _words(self.laptop, since[1]) == whole, LONG)
        with anyio.fail_after(LONG):
            await self.phone.until(_count("w19.11") + " === 2")

    async def _shown_to_editor(self, text: str, since: int) -> None:
        await self.editor.until_recorded(lambda: text in _words(self.editor, since), LONG)

    async def _watch(self, words: str) -> "Watch":
        """Start the SDK's client; returns when it has loaded the session."""
        node = shutil.which("node")
        assert node
        given = {"url": f"wss://{HOME.address}:{PORT}/acp", "token": self.token}
        given |= {"session": self.session, "words": words, "cwd": str(self.at_hand.project)}
        env = {**self.at_hand.away, "NODE_EXTRA_CA_CERTS": self.at_hand.cert}
        script = str(Path(__file__).with_name("watch.mjs"))
        process = await anyio.open_process(
            [node, script], env={**env, "GIVEN": json.dumps(given)}, stderr=None
        )
        assert process.stdout
        watch = Watch(BufferedByteReceiveStream(process.stdout))
        with anyio.fail_after(LONG):
            await watch.receive()
        return watch


class Watch:
    """What the SDK's client has said."""

    def __init__(self, out: BufferedByteReceiveStream) -> None:
        self._out = out

    async def receive(self) -> str:
        """Return its next text."""
        (text,) = json.loads(await self._out.receive_until(b"\n", 1 << 20)).values()
        return str(text)


def _words(client: RecordingClient, since: int = 0) -> str:
    """Return what the agent has said, without what the bridge and `connect` say."""
    told = client.recording.incoming(since)
    shown = [each["params"] for each in told if each.get("method") == "session/update"]
    words = [
        params["update"]["content"]["text"]
        for params in shown
        if params["update"]["sessionUpdate"] == "agent_message_chunk"
        and not params.get("_meta", {}).get("acp_bridge", {}).get("notice")
    ]
    return "".join(words)


def _count(text: str) -> str:
    return f"(document.querySelector('#pieces').innerText.split({text!r}).length - 1)"


def _say(what: str) -> None:
    print(f"- {what}", flush=True)


async def _command(env: dict[str, str], *words: str, said: str = "") -> str:
    """Run a command of acp-bridge on this machine, and return what it prints."""
    with anyio.fail_after(LONG):
        done = await anyio.run_process([*BRIDGE, *words], input=f"{said}\n".encode(), env=env)
    return done.stdout.decode().strip()


@asynccontextmanager
async def _server(at_hand: Folders) -> AsyncIterator[None]:
    """The server at home, until the block ends."""
    tls = ("--tls", at_hand.cert, at_hand.key, "--root", str(at_hand.project))
    words = [*BRIDGE, "serve", f"{HOME.address}:{PORT}", *tls, "--", *fixture_command()]
    process = await anyio.open_process(
        at(HOME, *words), env=at_hand.home, stdout=subprocess.DEVNULL
    )
    try:
        assert process.stderr
        said = BufferedByteReceiveStream(process.stderr)
        with anyio.fail_after(LONG):
            while b"wss://" not in await said.receive_until(b"\n", 10_000):
                pass
        yield
    finally:
        with anyio.move_on_after(LONG, shield=True):
            process.terminate()
            await process.wait()
        await process.aclose()


@asynccontextmanager
async def _editor(at_hand: Folders) -> AsyncIterator[RecordingClient]:
    """An editor at home, in front of a bridge of its own, with a session."""
    words = at(HOME, *BRIDGE, "--", *fixture_command())
    async with RecordingClient.start(words, env=at_hand.home) as editor:
        await editor.initialize({})
        await editor.new_session(str(at_hand.project))
        yield editor


async def _phone(chromium: Browser, code: str) -> BrowserPage:
    """A phone that has changed its code for a login."""
    page = await chromium.page(f"{SERVED}/#code={code.rpartition('=')[2]}")
    await page.shows("Sessions", "h1")
    await page.until("!document.querySelector('#list').hidden")
    return page
