"""A client of either version, a bridge, and an agent of either version: what tests of them share.

What every client got and sent is judged by the schema of its version, and so is what every agent
got: a word of the other version is refused there (invariant X1).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from tests.clients_not_ours.judge import Connection, Kind, Schema
from tests.support.client import RecordingClient
from tests.support.fixture_agents import V2_AGENT, fixture_command
from tests.support.joined import joined, listening
from tests.support.recording import Message
from tests.support.v1_schema import v1_schema
from tests.support.v2_schema import HELLO, V2Connection, v2_schema, without_old
from tests.whole.bridge_support import World

#: for what starts a process.
SECONDS = 20.0


@dataclass(frozen=True, slots=True)
class Pairing:
    """The versions that the client and the agent speak."""

    client: int
    agent: int

    def __str__(self) -> str:
        """As a test is called."""
        return f"client v{self.client}, agent v{self.agent}"

    def command(self, *, deaf: bool = False, quotas: bool = False) -> list[str]:
        """Return the command of an agent of this version.

        `deaf`: it goes on at a cancel. `quotas`: it reports limits.
        """
        if self.agent == 1:
            return fixture_command(*["ignores-cancel"] * deaf, *["quotas"] * quotas)
        return [*V2_AGENT, *["--deaf"] * deaf, *["--quota"] * quotas]

    @asynccontextmanager
    async def inside(
        self,
        world: World,
        *,
        session: bool = True,
        deaf: bool = False,
        quotas: bool = False,
        able: Message | None = None,
        **settings: Any,
    ) -> AsyncIterator[Speaker]:
        """A bridge in this process; its client has a session of its own.

        `able`: what a client of version 1 declares.
        """
        command = self.command(deaf=deaf, quotas=quotas)
        async with world.inside(command=command, initialized=False, **settings) as client:
            yield (speaker := await self._began(client, world, session=session, able=able))
        speaker.judge()
        judge_agents(world)

    @asynccontextmanager
    async def killed(self, world: World) -> AsyncIterator[Speaker]:
        """A bridge in a process of its own, which the test kills."""
        command = self.command()
        async with world.bridge(command=command, initialized=False, exits=-9) as client:
            yield (speaker := await self._began(client, world))
        speaker.judge()

    async def _began(
        self,
        client: RecordingClient,
        world: World,
        *,
        session: bool = True,
        able: Message | None = None,
    ) -> Speaker:
        speaker = Speaker(client, self.client)
        await speaker.greet(able)
        if session:
            await speaker.new(world)
        return speaker


@dataclass
class Speaker:
    """A client that speaks one of the versions, and can be asked the same in both."""

    client: RecordingClient
    version: int
    #: the prompts that it has sent, by the ids of their requests: their sessions.
    prompts: dict[Any, str] = field(default_factory=dict)

    # --- what it does --------------------------------------------------------------------------

    async def greet(self, able: Message | None = None) -> None:
        """Say which version it speaks, and nothing of the bridge's own.

        `able`: what it declares in version 1.
        """
        if self.version == 1:
            await self.client.initialize(able or {})
            return
        answer = await self.client.request("initialize", HELLO, SECONDS)
        assert answer["protocolVersion"] == 2

    async def new(self, world: World) -> str:
        """Open a session; returns its id."""
        return await self.client.new_session(world.cwd)

    async def load(self, session_id: str, world: World) -> Any:
        """Come to a session with a replay from its start."""
        self.client.session_id = session_id
        params: Message = {"sessionId": session_id, "cwd": str(world.cwd), "mcpServers": []}
        if self.version == 1:
            return await self.client.request("session/load", params, SECONDS)
        params["replayFrom"] = {"type": "start"}
        return await self.client.request("session/resume", params, SECONDS)

    def send(self, text: str, key: str = "", **own: Any) -> Any:
        """Send a prompt, under a key if there is one; returns the id of its request.

        `own`: what it says to the bridge, as `delivery`.
        """
        extra: Message = {"idempotencyKey": key} if key and self.version == 2 else {}
        if key and self.version == 1:
            own["promptKey"] = key
        if own:
            extra["_meta"] = {"acp_bridge": own}
        request = self.client.send_prompt(text, **extra)
        self.prompts[request] = self.client.session_id
        return request

    async def prompt(self, text: str, key: str = "") -> Any:
        """Send a prompt; returns how its turn has ended."""
        return await self.ended(self.send(text, key))

    # --- what it was told ----------------------------------------------------------------------

    async def answer(self, prompt: Any) -> Any:
        """Return the result of a prompt's request, or its error's code."""
        answer = await self.client.answer_to(prompt, SECONDS)
        return answer["error"]["code"] if "error" in answer else answer["result"]

    async def ended(self, prompt: Any) -> Any:
        """Return how the turn of a prompt ended: its stop reason, or the code of an error."""
        answer = await self.answer(prompt)
        if self.version == 1 or isinstance(answer, int):
            return answer["stopReason"] if isinstance(answer, dict) else answer
        ends = self.client.recording
        at = next(n for n, each in enumerate(ends) if _answers(each.message, prompt))
        session = self.prompts[prompt]
        end = (await self.client.until_recorded(lambda: self._ends(session, at), SECONDS))[0]
        return end["error"]["code"] if end["stopReason"] == "error" else end["stopReason"]

    def _ends(self, session_id: str, since: int = 0) -> list[Message]:
        updates = self.client.updates(session_id, since)
        states = [each for each in updates if each["sessionUpdate"] == "state_update"]
        return [each for each in states if each.get("stopReason") is not None]

    def ends(self) -> list[str]:
        """Return how each turn of its session ended that it was told of by states, in order."""
        return [each["stopReason"] for each in self._ends(self.client.session_id)]

    def said(self) -> str:
        """Return what the agent said, without what the bridge says by itself."""
        chunks = [
            each
            for each in self.client.updates(self.client.session_id)
            if each["sessionUpdate"] == "agent_message_chunk"
        ]
        own = [each for each in chunks if str(each.get("messageId")).startswith("acp-bridge-")]
        return "".join(each["content"]["text"] for each in chunks if each not in own)

    def words(self) -> list[str]:
        """Return the prompts that it was shown."""
        found = []
        for each in self.client.updates(self.client.session_id):
            if each["sessionUpdate"] == "user_message_chunk":
                found.append(each["content"]["text"])
            elif each["sessionUpdate"] == "user_message":
                found += [block["text"] for block in each["content"]]
        return found

    # --- what must hold of all of it -----------------------------------------------------------

    def judge(self) -> None:
        """Hold every message against the version; raises Refused, or AssertionError."""
        connection = V2Connection() if self.version == 2 else None
        old = Connection(v1_schema())
        for record in self.client.recording:
            assert record.message is not None
            sender = "client" if record.direction == "out" else "agent"
            method = str(record.message.get("method"))
            assert sender == "client" or "_acp_bridge" not in method, "it has not asked for that"
            if connection:
                connection.judge("client" if sender == "client" else "agent", record.message)
            else:
                old.judge("client" if sender == "client" else "agent", record.raw.decode())
        if self.version == 2:
            self._judge_states()

    def _judge_states(self) -> None:
        """Each turn that has begun has one end, and none ends twice (invariant X3)."""
        state, replays = "idle", Counter[str]()
        for record in self.client.recording:
            message = record.message or {}
            if message.get("method") == "session/resume":
                replays["asked"] += "replayFrom" in message["params"]
            update = (message.get("params") or {}).get("update", {})
            replays["complete"] += update.get("sessionUpdate") == "replay_complete"
            if update.get("sessionUpdate") == "state_update":
                if update.get("stopReason") is not None:
                    assert state != "idle", f"a turn ends twice: {update}"
                state = update["state"]
        assert replays["asked"] == replays["complete"]


@asynccontextmanager
async def second(world: World, version: int, session_id: str) -> AsyncIterator[Speaker]:
    """One client more of the bridge that lives, with the session."""
    bridge = await listening(world.home)
    async with joined(bridge.socket) as client:
        speaker = Speaker(client, version)
        await speaker.greet()
        await speaker.load(session_id, world)
        yield speaker
    speaker.judge()


def judge_agents(world: World) -> None:
    """Hold what each agent was asked and told against the version that it was spoken to in."""
    schemas: dict[int, Schema] = {}
    old = {event["pid"] for event in world.log.events("started") if "argv" in event}
    for event in world.log.events("received"):
        message = event["message"]
        method, params = message.get("method"), message.get("params", {})
        if method is None or method.startswith("_"):
            continue
        if method == "initialize":
            schemas[event["pid"]] = v1_schema() if event["pid"] in old else v2_schema()
            if event["pid"] in old and params["protocolVersion"] == 2:
                continue  # it was asked for version 2, and answers in version 1
            params = without_old(params) if params["protocolVersion"] == 2 else params
            if params["protocolVersion"] == 1 and event["pid"] not in old:
                continue  # it is asked once more, in version 2
        schema = schemas[event["pid"]]
        kind: Kind = "Request" if "id" in message else "Notification"
        schema.check(schema.find(method, kind, "client"), params)


def _answers(message: Message | None, request: Any) -> bool:
    return message is not None and "method" not in message and message.get("id") == request
