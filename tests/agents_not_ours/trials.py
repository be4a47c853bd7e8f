"""What each agent is put through, alone or behind the bridge: a word for the table a trial."""

from __future__ import annotations

import json
import os
import signal
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import AbstractAsyncContextManager, contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import anyio

from tests.agent.mcp_servers.support import odd
from tests.agents_not_ours.agents import HERE, AgentNotOurs
from tests.agents_not_ours.model_server import ModelServer
from tests.support.client import RecordingClient
from tests.support.person import Person, person
from tests.support.processes import descendants

OK = "yes"
#: begins the result of a trial that the agent can't do; the reason follows.
SKIPPED = "skipped: "
#: seconds for a slow agent on a busy machine.
PATIENCE = 60
#: what `chat` shows below its input while a permission is asked.
_ASKED = "a permission is asked"


@dataclass
class Stand:
    """One agent in one arrangement, with its folders."""

    agent: AgentNotOurs
    bridged: bool
    home: Path
    server: ModelServer
    results: dict[str, str] = field(default_factory=dict)

    def start(self, **more: str) -> AbstractAsyncContextManager[RecordingClient]:
        """`more`: of the environment."""
        command = self.agent.words()
        if self.bridged:
            command = [sys.executable, "-m", "acp_bridge", "--", *command]
        return RecordingClient.start(command, env={**self.env, **more})

    @property
    def env(self) -> dict[str, str]:
        """The environment of the agent, and of a bridge in front of it."""
        env = self.agent.env(self.home, self.server.port)
        return {**env, "ACP_BRIDGE_HOME": str(self.home / "bridge")}

    @property
    def act(self) -> str:
        """A command that writes a line into the file that it is given."""
        script = self.home / "act"
        if not script.exists():
            script.write_text('#!/bin/sh\necho acted >> "$1"\n')
            script.chmod(0o755)
        return str(script)

    def acted(self, name: str) -> int:
        """How often."""
        file = self.home / name
        return len(file.read_text().splitlines()) if file.exists() else 0

    def order(self, name: str, more: str = "") -> str:
        """A prompt for which the model runs `act`; `more` follows it in the line."""
        return f"RUN {self.act} {self.home / name}{more} END"

    async def begin(self, client: RecordingClient) -> str:
        await client.initialize(within=PATIENCE)
        return await client.new_session(self.home, PATIENCE)

    async def settle(self) -> None:
        """Until the agent can load what it made."""
        if self.agent.loads_from_next_minute:
            await anyio.sleep(61 - time.time() % 60)

    async def load(self, client: RecordingClient, session_id: str) -> None:
        await client.initialize(within=PATIENCE)
        await client.load_session(session_id, self.home, PATIENCE)

    def signal(self, client: RecordingClient, number: signal.Signals) -> None:
        """Send a signal to the agent and all that it has started."""
        assert client.process is not None
        pid = client.process.pid
        tree = self.agent.behind(pid) if self.bridged else [*descendants(pid), pid]
        for victim in tree:
            with suppress(ProcessLookupError):
                os.kill(victim, number)


@contextmanager
def place() -> Iterator[tuple[Path, ModelServer]]:
    """Give a folder and a model of its own to one trial."""
    with (
        tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as home,
        ModelServer() as server,
    ):
        yield Path(home), server


async def tried(stand: Stand, trial: Callable[[Stand], Awaitable[str]]) -> str:
    """Return the result of a trial, also if it fails."""
    try:
        with anyio.fail_after(300):
            return await trial(stand)
    except Exception as exc:
        inner: BaseException = exc
        while isinstance(inner, BaseExceptionGroup):
            inner = inner.exceptions[0]
        first = (str(inner).splitlines() or [""])[0]
        return f"{type(inner).__name__}: {first[:80]}"


def counted(tag: str, count: int) -> str:
    return "".join(f"{tag}{number} " for number in range(count))


def stop_of(answer: dict[str, Any]) -> str:
    if "error" in answer:
        return f"error {answer['error'].get('code')}"
    return str(answer["result"].get("stopReason"))


async def prompt(stand: Stand) -> str:
    """One prompt, streamed and ended."""
    async with stand.start() as client:
        await stand.begin(client)
        answer = await client.prompt("COUNT 20 0 P", within=PATIENCE)
        if counted("P", 20) not in client.text():
            return f"words missing: {client.text()[-60:]!r}"
        return OK if answer["stopReason"] == "end_turn" else str(answer["stopReason"])


async def three(stand: Stand) -> str:
    """Three prompts at once: each answered once, in order, its words before its answer."""
    async with stand.start() as client:
        await stand.begin(client)
        ids = [client.send_prompt(f"COUNT 10 20 {tag}") for tag in ("AA", "BB", "CC")]
        seen = []
        with anyio.move_on_after(20):
            for request in ids:
                seen.append(stop_of(await client.answer_to(request, within=PATIENCE)))
        if seen != ["end_turn"] * 3:
            missing = ["no answer"] * (3 - len(seen))
            return ", ".join([*seen, *missing])
        text = client.text()
        at = [text.find(counted(tag, 10)) for tag in ("AA", "BB", "CC")]
        return OK if -1 not in at and at == sorted(at) else "mixed or missing words"


async def cancel(stand: Stand) -> str:
    """Cancelled in the stream; then the next prompt, with nothing of the old one in it."""
    async with stand.start() as client:
        await stand.begin(client)
        running = client.send_prompt("COUNT 1000 20 X")
        await client.until_text("X3", within=PATIENCE)
        client.cancel()
        stopped = stop_of(await client.answer_to(running, within=PATIENCE))
        if stopped != "cancelled":
            return stopped
        mark = client.mark()
        answer = await client.prompt("COUNT 5 0 Y", within=PATIENCE)
        if answer["stopReason"] != "end_turn" or counted("Y", 5) not in client.text(since=mark):
            return "next prompt lost"
        return "leaks" if " X" in client.text(since=mark) else OK


def choosing(client: RecordingClient, *kinds: str) -> list[dict[str, Any]]:
    """Answers the permissions with options of these kinds in turn; returns those that come.

    One that is not offered, or is one too many, is answered as cancelled.
    """
    asked: list[dict[str, Any]] = []

    def choose(params: dict[str, Any]) -> dict[str, Any]:
        asked.append(params)
        kind = kinds[len(asked) - 1] if len(asked) <= len(kinds) else None
        for option in params["options"]:
            if option["kind"] == kind:
                return {"outcome": {"outcome": "selected", "optionId": option["optionId"]}}
        return {"outcome": {"outcome": "cancelled"}}

    client.side.handlers["session/request_permission"] = choose
    return asked


def _cards(client: RecordingClient, since: int = 0) -> dict[str, str]:
    """How each tool card stands after what was shown since then."""
    cards: dict[str, str] = {}
    for update in client.updates(since=since):
        if update["sessionUpdate"] in ("tool_call", "tool_call_update"):
            known = cards.get(update["toolCallId"], "pending")
            cards[update["toolCallId"]] = update.get("status") or known
    return cards


async def next_one(client: RecordingClient, tag: str) -> str | None:
    """What is wrong with one more prompt."""
    mark = client.mark()
    answer = await client.prompt(f"COUNT 3 0 {tag}", within=PATIENCE)
    said = answer["stopReason"] == "end_turn" and counted(tag, 3) in client.text(since=mark)
    return None if said else "next prompt lost"


async def asked(stand: Stand) -> str:
    """A command is asked for: allowed it runs once, denied never; then the next prompt."""
    async with stand.start() as client:
        await stand.begin(client)
        permissions = choosing(client, "allow_once", "reject_once")
        await client.prompt(stand.order("one"), within=PATIENCE)
        if (len(permissions), stand.acted("one")) != (1, 1):
            return f"asked {len(permissions)} times, ran {stand.acted('one')} times"
        if "RAN0" not in client.text():
            return "words missing"
        await client.prompt(stand.order("two"), within=PATIENCE)
        if (len(permissions), stand.acted("two")) != (2, 0):
            return f"denied: asked {len(permissions) - 1} times, ran {stand.acted('two')} times"
        return await next_one(client, "N") or OK


async def always(stand: Stand) -> str:
    """Always allowed: the second time it is not asked for."""
    async with stand.start() as client:
        await stand.begin(client)
        permissions = choosing(client, "allow_always")
        await client.prompt(stand.order("one"), within=PATIENCE)
        if permissions and "allow_always" not in str(permissions[0]["options"]):
            return f"{SKIPPED}doesn't offer it"
        await client.prompt(stand.order("one"), within=PATIENCE)
        if (len(permissions), stand.acted("one")) != (1, 2):
            return f"asked {len(permissions)} times, ran {stand.acted('one')} times"
        return OK


async def ruled(stand: Stand) -> str:
    """The user's rules: what they allow runs unasked, what they deny never, the rest is asked."""
    if not stand.bridged:
        return f"{SKIPPED}no rules without the bridge"
    rules = (
        f'allow = ["Bash({stand.act} *)", "mcp__bench__echo"]\n'
        'deny = ["Bash(rm *)", "mcp__other__*"]\nask = ["Bash(* asked)"]\n'
    )
    (stand.home / "bridge").mkdir(exist_ok=True)
    (stand.home / "bridge" / "permissions.toml").write_text(rules)
    async with stand.start() as client:
        await client.initialize(within=PATIENCE)
        servers = [odd("bench"), odd("other")]
        await client.new_session(stand.home, PATIENCE, mcpServers=servers)
        permissions = choosing(client)
        wrong = []
        said = stand.agent.tells_commands  # else no rule allows them
        for name, more, runs, asks in (
            ("allowed", "", int(said), int(not said)),
            ("denied", f"; rm {stand.home / 'allowed'}", 0, 0),
            ("asked", " asked", 0, 1),
            ("chain", " && ls", 0, 1),
            ("redirect", f" > {stand.home / 'out'}", 0, 1),
        ):
            before = len(permissions)
            await client.prompt(stand.order(name, more), within=PATIENCE)
            found = stand.acted(name), len(permissions) - before
            if found != (runs, asks):
                wrong.append(f"{name}: ran {found[0]} times, asked {found[1]} times")
        if said and not stand.acted("allowed"):
            wrong.append("rm ran")
        wrong += await _ruled_tools(stand, client, permissions)
    for through in (_ruled_run, _ruled_chat, _ruled_sdk):
        wrong += await through(stand)
    return ", ".join(wrong) or OK


async def _ruled_tools(stand: Stand, client: RecordingClient, permissions: list[Any]) -> list[str]:
    """What is wrong with tools of MCP servers, of which rules allow the one and deny the other."""
    wrong, told = [], stand.agent.tells_tools
    for server, runs, asks in (
        ("bench", told == "name", told != "name"),
        ("other", False, not told),
    ):
        before, mark = len(permissions), client.mark()
        await client.prompt(f"USE {server} END", within=PATIENCE)
        used = "completed" in _cards(client, since=mark).values()
        if (used, count := len(permissions) - before) != (runs, asks):
            wrong.append(f"tool of {server}: ran {used}, asked {count} times")
    return wrong


async def _ruled_run(stand: Stand) -> list[str]:
    """What is wrong with the same rules through `acp-bridge run`."""
    wrong = []
    said = stand.agent.tells_commands
    rm = f"; rm {stand.home / 'run'}"
    for name, more, permissions, runs in (
        ("run", "", "deny", int(said)),
        ("run-denied", rm, "allow", 0),
        ("run-asked", " asked", "deny", 0),
        ("run-allowed", " asked", "allow", 1),
    ):
        order = stand.order(name, more)
        command = [sys.executable, "-m", "acp_bridge", "run", "--permissions", permissions, order]
        with anyio.fail_after(PATIENCE):
            done = await anyio.run_process(
                [*command, "--", *stand.agent.words()],
                env={**os.environ, **stand.env},
                cwd=stand.home,
                check=False,
            )
        if stand.acted(name) != runs:
            wrong.append(f"{name}: ran {stand.acted(name)} times")
        if name == "run-denied" and b"denied by rule" not in done.stderr:
            wrong.append("run doesn't say what was denied")
    return wrong


async def _ruled_chat(stand: Stand) -> list[str]:
    """What is wrong with the same rules through `acp-bridge chat`, on a terminal."""
    said, wrong = stand.agent.tells_commands, []
    words = ["chat", "--", *stand.agent.words()]
    async with person(words, stand.home, {**os.environ, **stand.env}) as there:
        await there.sees("/help lists keys")
        for name, more, runs, asks, tag in (
            ("chat", "", 1, not said, "A"),
            ("chat-denied", f"; rm {stand.home / 'chat'}", 0, False, "B"),
            ("chat-asked", " asked", 1, True, "C"),
        ):
            before = there.seen.count(_ASKED)
            there.type(f"{stand.order(name, more)}\r")
            if asks:
                await there.until(partial(_sees_more, there, before))
                await there.answers("y")
            there.type(f"COUNT 1 0 END{tag}\r")
            await there.sees(f"END{tag}0")
            if stand.acted(name) != runs:
                wrong.append(f"{name}: ran {stand.acted(name)} times")
            if not asks and there.seen.count(_ASKED) > before:
                wrong.append(f"{name}: asked")
        there.type("\x04")
        await there.process.wait()
    return wrong


def _sees_more(there: Person, questions: int) -> bool:
    return there.seen.count(_ASKED) > questions


async def _ruled_sdk(stand: Stand) -> list[str]:
    """What is wrong with the same rules through the TypeScript SDK's client."""
    said = stand.agent.tells_commands
    cases = (
        ("sdk", "", 1, int(not said)),
        ("sdk-denied", f"; rm {stand.home / 'sdk'}", 0, 0),
        ("sdk-asked", " asked", 1, 1),
    )
    given = {
        "command": [sys.executable, "-m", "acp_bridge", "--", *stand.agent.words()],
        "cwd": str(stand.home),
        "orders": [stand.order(name, more) for name, more, _, _ in cases],
    }
    with anyio.fail_after(PATIENCE * len(cases)):
        done = await anyio.run_process(
            ["node", str(HERE / "sdk_rules.mjs")],
            env={**os.environ, **stand.env, "GIVEN": json.dumps(given)},
            check=False,
        )
    if done.returncode != 0:
        return [f"the SDK's client: {done.stderr.decode()[-300:]}"]
    counts = json.loads(done.stdout.splitlines()[-1])
    return [
        f"{name}: ran {stand.acted(name)} times, asked {asked} times"
        for (name, _, runs, asks), asked in zip(cases, counts, strict=True)
        if (stand.acted(name), asked) != (runs, asks)
    ]


async def denied(stand: Stand) -> str:
    """A card that was denied, in the replay of a fresh process."""
    async with stand.start() as client:
        session_id = await stand.begin(client)
        permissions = choosing(client, "reject_once")
        await client.prompt(stand.order("one"), within=PATIENCE)
        if not permissions:
            return "not asked"
        about = permissions[0].get("toolCall") or permissions[0]["subject"]
        card = about.get("toolCall", about)["toolCallId"]
        if wrong := await next_one(client, "N"):
            return wrong
    await stand.settle()
    async with stand.start() as client:
        await stand.load(client, session_id)
        await client.until_text("N2", within=PATIENCE)  # some agents replay after their answer
        cards = _cards(client)
    return OK if cards.get(card) == "failed" else f"{cards.get(card, 'gone')}"


async def stop_asking(stand: Stand) -> str:
    """Cancelled while a permission is open: the command never runs; then the next prompt."""
    async with stand.start() as client:
        await stand.begin(client)
        client.side.permission = "never"
        running = client.send_prompt(stand.order("one"))
        request = await client.until_request("session/request_permission", within=PATIENCE)
        client.cancel()
        client.answer(request["id"], {"outcome": {"outcome": "cancelled"}})
        stopped = stop_of(await client.answer_to(running, within=PATIENCE))
        if stopped != "cancelled":
            return stopped
        wrong = await next_one(client, "N")
        return wrong or ("the command ran" if stand.acted("one") else OK)


async def steer(stand: Stand) -> str:
    """`_session/steering` after a Stop starts a turn: its words and its question are shown."""
    async with stand.start() as client:
        about = await client.initialize(within=PATIENCE)
        if not (about.get("_meta") or {}).get("steering"):
            return f"{SKIPPED}has no `_session/steering`"
        await client.new_session(stand.home, PATIENCE)
        running = client.send_prompt("COUNT 1000 20 X")
        await client.until_text("X3", within=PATIENCE)
        client.cancel()
        stopped = stop_of(await client.answer_to(running, within=PATIENCE))
        if stopped != "cancelled":
            return stopped
        mark = client.mark()
        await _steer(client, "COUNT 20 20 S")
        await client.until_text(counted("S", 20), since=mark, within=PATIENCE)
        # Codex alone loses what is injected into a turn that is about to end.
        if wrong := await next_one(client, "M"):
            return wrong
        permissions = choosing(client, "allow_once")
        await _steer(client, stand.order("one"))
        await client.until_text("RAN0", since=mark, within=PATIENCE)
        if (len(permissions), stand.acted("one")) != (1, 1):
            return f"asked {len(permissions)} times, ran {stand.acted('one')} times"
        return await next_one(client, "N") or OK


async def _steer(client: RecordingClient, text: str) -> None:
    prompt = [{"type": "text", "text": text}]
    params = {"sessionId": client.session_id, "prompt": prompt}
    await client.request("_session/steering", params, within=PATIENCE)


async def join(stand: Stand) -> str:
    """Words while a turn runs: in it or next, answered, shown once and given to the model once."""
    async with stand.start() as client:
        about = await client.initialize(within=PATIENCE)
        if not (about.get("_meta") or {}).get("steering"):
            return f"{SKIPPED}has no `_session/steering`"
        await client.new_session(stand.home, PATIENCE)
        running = client.send_prompt("COUNT 100 20 X")
        await client.until_text("X3", within=PATIENCE)
        words = "COUNT 5 0 J"
        if stand.bridged:
            own = {"acp_bridge": {"delivery": "steer"}}
            joined = client.send_prompt(words, _meta=own)
            ended = [
                stop_of(await client.answer_to(each, within=PATIENCE)) for each in (running, joined)
            ]
        else:
            await _steer(client, words)
            ended = [stop_of(await client.answer_to(running, within=PATIENCE))]
        if set(ended) != {"end_turn"}:
            return ", ".join(ended)
        if wrong := await next_one(client, "N"):
            return wrong
        shown, given = client.text().count(counted("J", 5)), stand.server.given_for("N")
        if (shown, given.count(words)) != (1, 1):
            return f"shown {shown} times, given {given.count(words)} times"
        return OK


async def fork(stand: Stand) -> str:
    """A fork is prompted at once, and knows what was said; its source goes on."""
    async with stand.start() as client:
        about = await client.initialize(within=PATIENCE)
        if "fork" not in about["agentCapabilities"].get("sessionCapabilities", {}):
            return f"{SKIPPED}has no `session/fork`"
        source = await client.new_session(stand.home, PATIENCE)
        await client.prompt("COUNT 5 0 H", within=PATIENCE)
        params = {"sessionId": source, "cwd": str(stand.home), "mcpServers": []}
        forked = (await client.request("session/fork", params, within=PATIENCE))["sessionId"]
        for each, tag in ((forked, "F"), (source, "G")):
            answer = await client.prompt(f"COUNT 3 0 {tag}", each, within=20)
            if answer["stopReason"] != "end_turn" or counted(tag, 3) not in client.text(each):
                return "words of the fork missing" if tag == "F" else "words of the source missing"
            if "COUNT 5 0 H" not in stand.server.given_for(tag):
                return "first turn not remembered"
        return OK


async def limit(stand: Stand) -> str:
    """A prompt meets a usage limit: an error; what waits is held with the reset until go, once."""
    if stand.agent.limit is None:
        return f"{SKIPPED}its limits are not recognised"
    async with stand.start(**dict(stand.agent.subscription)) as client:
        await stand.begin(client)
        if wrong := await next_one(client, "A"):
            return wrong
        met = client.send_prompt("LIMIT")
        if not stand.bridged:
            answer = await client.answer_to(met, within=PATIENCE)
            return await next_one(client, "N") or OK if "error" in answer else stop_of(answer)
        waits = client.send_prompt("COUNT 3 0 W")
        answer = await client.answer_to(met, within=PATIENCE)
        if "error" not in answer:
            return stop_of(answer)
        said = f"[acp-bridge] The agent has met a usage limit. {stand.agent.limit}"
        await client.until_text(said, within=PATIENCE)
        if stand.server.given_for("W"):
            return "what waited was sent"
        await client.prompt("/queue go", within=PATIENCE)
        stopped = stop_of(await client.answer_to(waits, within=PATIENCE))
        if stopped != "end_turn" or counted("W", 3) not in client.text():
            return f"what waited: {stopped}"
        return OK
