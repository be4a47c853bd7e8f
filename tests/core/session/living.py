"""A whole session in memory: a client, agents that the test plays, a real journal."""

import os
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractContextManager, asynccontextmanager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import anyio

from acp_bridge.core.agents.connection import AgentCommand, Connection
from acp_bridge.core.agents.link import Link, Owner
from acp_bridge.core.agents.process import StartFailed
from acp_bridge.core.clients.client import ClientRequest
from acp_bridge.core.journal import Journal, PromptState, SessionJournal
from acp_bridge.core.protocol import SESSION_PROMPT, SESSION_RESUME
from acp_bridge.core.session.feature import Feature, Found, MakeFeatures, Plugin
from acp_bridge.core.session.opening import Workspace
from acp_bridge.core.session.session import Session
from acp_bridge.core.session.session_context import Follows, SessionContext
from acp_bridge.core.settings import Settings
from tests.core import plugged
from tests.core.session.journals import states
from tests.core.session.memory import ClientEnd, Json
from tests.core.session.played_agent import AUTH_REQUIRED, PlayedAgent
from tests.core.session.waiting import until

LONG = 3600.0
Prepare = Callable[[PlayedAgent], None]
F = TypeVar("F", bound=Feature)


DONE = {"stopReason": "end_turn"}
CANCELLED = {"stopReason": "cancelled"}


def resumes(agent: PlayedAgent) -> None:
    """Let an agent take the session at once."""
    agent.reply(SESSION_RESUME, {})


def does_nothing(agent: PlayedAgent) -> None:
    """Let an agent leave the request for the session open."""


def never_starts(agent: PlayedAgent) -> None:
    """Let an agent leave `initialize` open."""
    agent.ready = False


def fails_to_start(agent: PlayedAgent) -> None:
    agent.unspawnable = StartFailed("cannot be started now: x", permanent=False)


def does_not_exist(agent: PlayedAgent) -> None:
    agent.unspawnable = StartFailed("command not found: x", permanent=True)


def wants_a_login(agent: PlayedAgent) -> None:
    agent.reply(SESSION_RESUME, AUTH_REQUIRED)


def first(*capabilities: str) -> PlayedAgent:
    """Return the process in which the session was made."""
    return PlayedAgent("resume", *capabilities)


class PlayedPool:
    """Has what the test puts into it: at first nothing, so that each start makes a new process."""

    def __init__(self) -> None:
        #: the process that waits for a session.
        self.ready: PlayedAgent | None = None
        #: set when the process that is being started for nobody yet has come, or failed to.
        self.warming: anyio.Event | None = None
        self.warm: PlayedAgent | None = None

    def note_held(self) -> None:
        """No process of a pool is shared here."""

    def take_ready(self, *, agent_session_id: str | None, back: Connection | None) -> Link | None:
        ready, self.ready = self.ready, None
        return ready

    def starting(self, prompted: Callable[[], bool]) -> AbstractContextManager[None]:
        return nullcontext()

    def look_again(self) -> None:
        """No session waits for another one's start here."""

    async def take_coming(
        self, agent_session_id: str | None, prompted: Callable[[], bool]
    ) -> Link | None:
        if self.warming is None:
            return None
        await self.warming.wait()
        warm, self.warm = self.warm, None
        return warm


@dataclass(slots=True)
class MemoryContext(SessionContext):
    """Starts agents that the test plays, where processes would be started."""

    #: what is done with each agent before it is started; the last one is for all that follow.
    prepare: list[Prepare] = field(default_factory=lambda: [resumes])
    agents: list[PlayedAgent] = field(default_factory=list)
    _made: int = 0

    def new_link(self, owner: Owner, name: str, *, parked: bool = False) -> Link:
        agent = PlayedAgent("resume", name=name, owner=owner, parked=parked)
        self.prepare[min(self._made, len(self.prepare) - 1)](agent)
        self._made += 1
        self.agents.append(agent)
        return agent


class Living:
    """A session, the client that has it, and what the two and the agents say."""

    def __init__(
        self,
        context: MemoryContext,
        journal: SessionJournal,
        lease: int,
        link: PlayedAgent | None,
        found: list[Found],
        cwd: str = "/w",
    ) -> None:
        self.context = context
        self.journal = journal
        self.lease = lease
        self.pool = PlayedPool()
        self.session = Session(context, self.pool, journal, lease, Workspace(cwd), link, found)
        self.client = ClientEnd({"terminal": True, "_meta": {"acp_bridge": {"accepted": True}}})
        self.session.transcript.attach(self.client.client)
        self._last_id = 0

    async def agent(self, number: int = 1) -> PlayedAgent:
        """Return the agent that was started as this one, waited for."""
        await until(lambda: len(self.context.agents) >= number)
        return self.context.agents[number - 1]

    async def close(self) -> None:
        """Close the session, whatever its agents are about."""
        self.session.close()
        for agent in self.context.agents:
            if agent.started:
                agent.dies()
        await self.session.closed.wait()

    # --- what the client does ------------------------------------------------------------------

    def request(self, method: str, **params: Any) -> ClientRequest:
        """Return a request of the client, under an id of its own."""
        self._last_id += 1
        return self.client.asks(method, {"sessionId": "s", **params}, self._last_id)

    def prompt(self, text: str = "mend", **params: Any) -> int:
        """Send a prompt; returns the request's id."""
        request = self.request(SESSION_PROMPT, prompt=[{"type": "text", "text": text}], **params)
        self.session.on_prompt(request, request.params)
        return self._last_id

    def feature(self, kind: type[F]) -> F:
        """Return the session's feature of this kind."""
        return next(each for each in self.session.features.on if isinstance(each, kind))

    def takes(self, method: str, **params: Any) -> None:
        """Send a request that a feature takes."""
        request = self.request(method, **params)
        self.session.features.take(request, request.params)

    def asks(self, method: str, **params: Any) -> int:
        """Send a request that is for the agent; returns its id."""
        self.session.to_agent.pass_on(self.request(method, **params))
        return self._last_id

    async def turn(self, agent: PlayedAgent, text: str = "mend") -> None:
        """Run a prompt to its end."""
        request_id = self.prompt(text)
        agent.answer(await agent.asked(SESSION_PROMPT), DONE)
        assert await self.answered(request_id) == DONE

    # --- what the client got -------------------------------------------------------------------

    @property
    def got(self) -> list[Json]:
        """Every message that the client was sent, in order."""
        return self.client.sent.messages

    def answers(self) -> dict[int, Any]:
        """Return the results of the answered requests, or their errors, by id."""
        return {
            message["id"]: message.get("result", message.get("error"))
            for message in self.got
            if "method" not in message
        }

    async def answered(self, request_id: int) -> Any:
        """Return the result or the error of a request, waited for."""
        await until(lambda: request_id in self.answers())
        return self.answers()[request_id]

    def updates(self) -> list[Json]:
        """Return the updates that the client was shown, in order."""
        return [m["params"]["update"] for m in self.got if m.get("method") == "session/update"]

    def texts(self) -> list[str]:
        """Return the texts of the messages that the client was shown."""
        shown = self.updates()
        return [each["content"]["text"].strip() for each in shown if "content" in each]

    # --- the journal ---------------------------------------------------------------------------

    def states(self) -> list[PromptState]:
        return states(self.journal)

    def outcomes(self) -> list[Any]:
        """Return what the journal says of each prompt: as told, and as the agent ended it."""
        return [(row.outcome, row.agent_outcome) for row in self.journal.prompts()]


@asynccontextmanager
async def living(
    folder: Path,
    *prepare: Prepare,
    first: PlayedAgent | None = None,
    title: str | None = None,
    found: list[Found] | None = None,
    cwd: str = "/w",
    capabilities: Json | None = None,
    steers: bool = False,
    before: Callable[[SessionJournal], None] = lambda journal: None,
    notifier: Follows | None = None,
    features: Sequence[MakeFeatures] = (),
    **settings: Any,
) -> AsyncIterator[Living]:
    """A session that has no process yet, or has `first`; `prepare` is for each that is started.

    `steers`: the agent takes words into a turn. `before` writes what an earlier bridge has kept.

    Its deadlines are out of reach, but for those in `settings`. Every task of it must have ended
    by itself when the block is left.
    """
    bounds = dict.fromkeys(("drain_timeout", "kill_timeout", "restart_timeout"), LONG)
    chosen = Settings(("agent",), "a", folder, **{**bounds, "close_grace": LONG, **settings})
    home = Journal(folder)
    journal = await home.create("s", cwd="/w", agent="a", agent_session_id="0")
    journal.change_info(title=title)
    before(journal)
    lease = os.open(folder / "lock", os.O_CREAT | os.O_RDWR)
    with anyio.fail_after(5):
        async with anyio.create_task_group() as tasks:
            context = MemoryContext(chosen, home, tasks, AgentCommand(("agent",), {}))
            context.prepare = [*prepare] or context.prepare
            context.capabilities, context.steers = capabilities, steers
            context.notifier, context.plugins = notifier, plugged.PLUGGED.plugins
            found = await context.find(cwd) if found is None else found
            if features:
                context.plugins = [Plugin(make) for make in features]
            if first:
                first.agent_session_id = "0"
                context.agents.append(first)
                await first.start(tasks)
            here = Living(context, journal, lease, first, found, cwd)
            if first:
                first.adopt(here.session.from_agent)
            yield here
            await here.close()
    await home.close()
