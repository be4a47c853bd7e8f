"""Clients that attach at any moment to a session in which anything happens see the same of it."""

from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

import anyio
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from acp_bridge.core.protocol import ASSUMED, own_meta
from tests.core.sessions.agent import Agent, Json, Process, until
from tests.core.sessions.bench import Bench, Served, bench
from tests.core.sessions.world import SETUP
from tests.support.in_memory import MEMORY

LIMIT = 400
MODES: Json = {"currentModeId": "0", "availableModes": [{"id": str(n)} for n in range(100)]}
KINDS = ("agent_message_chunk", "agent_thought_chunk")
#: stands in what one client alone is told, when it loads a session at work.
AT_WORK = "`/queue wait` waits until the turn ends"
#: what happens, and to which client, or of which kind.
Event = tuple[str, int]
EVENTS = ("says", "opens", "ends", "mode", "joins", "stops", "reads", "prompts", "titles", "sets")


@dataclass(slots=True)
class Play:
    """A session, its clients in the order of their coming, and what they did."""

    it: Bench
    id: str
    process: Process
    clients: list[Served]
    #: the requests that wait for an answer, with their clients.
    asked: list[tuple[Served, int]] = field(default_factory=list)
    #: the mode that a client has set, by the request.
    sets: dict[tuple[int, int], str] = field(default_factory=dict)
    count: int = 0

    def update(self, **update: object) -> None:
        params = {"sessionId": "agent-1", "update": update}
        self.process.says({"method": "session/update", "params": params})

    async def take(self, event: Event) -> None:
        what, number = event
        self.count += 1
        client = self.clients[index := number % len(self.clients)]
        text = {"type": "text", "text": f"[{self.count}]"}
        match what:
            case "says":
                kind = KINDS[number % 2]
                self.update(sessionUpdate=kind, content=text, messageId=f"m{number % 3}")
            case "opens":
                self.update(sessionUpdate="tool_call", toolCallId=f"t{number % 3}", title="x")
            case "ends":
                card = f"t{number % 3}"
                self.update(sessionUpdate="tool_call_update", toolCallId=card, status="completed")
            case "mode":
                self.update(sessionUpdate="current_mode_update", currentModeId=str(self.count))
            case "joins":
                client = await self.it.joined()
                client.way.stuck = number * LIMIT // 10
                given = {**SETUP, "sessionId": self.id}
                self.asked.append((client, client.send("session/load", given)))
                self.clients.append(client)
            case "stops":
                client.way.stuck = LIMIT // 2 if client is not self.it.editor else 0
            case "reads":
                client.way.take_all()
            case "prompts" | "titles" if self.loaded(client):
                command = "/queue title " if what == "titles" else ""
                asked = client.prompt(self.id, f"{command}p{index}-{self.count}")
                self.asked.append((client, asked))
            case "sets":
                given = {"sessionId": self.id, "modeId": str(self.count)}
                asked = client.send("session/set_mode", given)
                self.asked.append((client, asked))
                self.sets[index, asked] = str(self.count)
                await until(lambda: self.mode == str(self.count))
        for _ in range(number):
            await anyio.lowlevel.checkpoint()

    @property
    def mode(self) -> object:
        """The mode that is in force."""
        session = self.it.bridge._sessions.live[self.id]
        return session.user_settings.shown["modes"]["currentModeId"]

    def loaded(self, client: Served) -> bool:
        """Return True if the client was answered all that it asked before."""
        return all(c is not client or c.answers(asked) for c, asked in self.asked)

    async def settle(self) -> None:
        for client in self.clients:
            client.way.take_all()
        for client, asked in self.asked:
            await client.result(asked)
        for client in self.clients:
            client.notify("session/cancel", {"sessionId": self.id})  # a word ends its quiet
            await client.handled()

    def seen(self, index: int) -> list[Json]:
        """Return the conversation that a client has, its chunks joined."""
        joined: list[Json] = []
        for update in self.updates(index):
            if update["sessionUpdate"] in ("current_mode_update", "session_info_update"):
                continue
            last = joined[-1] if joined else {}
            same = [last.get(key) == update.get(key) for key in ("sessionUpdate", "messageId")]
            if "content" in update and all(same):
                text = last["content"]["text"] + update["content"]["text"]
                joined[-1] = {**last, "content": {"type": "text", "text": text}}
            else:
                joined.append({key: value for key, value in update.items() if key != "_meta"})
        return joined

    def updates(self, index: int) -> list[Json]:
        said = [m["params"] for m in self.clients[index].asked("session/update")]
        found = [each["update"] for each in said if not own_meta(each).get(ASSUMED)]
        shown = [each for each in found if AT_WORK not in str(each.get("content"))]
        return [each for each in shown if each["sessionUpdate"] != "available_commands_update"]

    def modes(self, index: int) -> list[int]:
        """Return the modes that a client was in, one after the other."""
        modes: list[int] = []
        for message in self.clients[index].messages:
            update = message.get("params", {}).get("update", {})
            result = message.get("result") or {}
            held = result.get("modes", {}).get("currentModeId")
            chosen = self.sets.get((index, message.get("id", -1))) if "method" not in message else 0
            if mode := update.get("currentModeId") or held or chosen:
                modes.append(int(mode))
        return modes


async def play(events: list[Event], home: Path) -> None:
    agent = Agent()
    agent.script["session/new"] = {"sessionId": "agent-1", "modes": MODES}
    agent.script["session/set_mode"] = {}
    async with bench(home, agent, client_limit=LIMIT, unread=3600, stop_delay=3600) as it:
        session_id = await it.new()
        (process,) = it.agent.processes
        here = Play(it, session_id, process, [it.editor])
        for event in events:
            await here.take(event)
        await here.settle()
        await here.take(("joins", 0))  # it sees what is recorded
        await here.settle()
        whole = here.seen(len(here.clients) - 1)
        for index in range(len(here.clients) - 1):
            own = f"p{index}-"

            def is_own(update: Json, own: str = own) -> bool:
                said = str(update.get("content", {}).get("text"))
                return update["sessionUpdate"] == "user_message_chunk" and own in said

            assert here.seen(index) == [each for each in whole if not is_own(each)]
            assert not [each for each in here.updates(index) if is_own(each)]
        for index in range(len(here.clients)):
            modes = here.modes(index)
            assert modes == sorted(modes), "a state went back"
            assert modes[-1:] == here.modes(len(here.clients) - 1)[-1:]


@pytest.mark.hazard("V1", "V2", "T2")
@settings(max_examples=15)
@given(st.lists(st.tuples(st.sampled_from(EVENTS), st.integers(0, 9)), max_size=25))
@example([("says", 0), ("joins", 9), ("mode", 0), ("says", 0), ("mode", 3), ("reads", 1)])
@example([("joins", 9), ("titles", 0), ("titles", 1)])
@example([("prompts", 9), ("joins", 9), ("prompts", 0), ("joins", 1), ("sets", 1), ("says", 2)])
def test_all_clients_of_a_session_have_the_same_of_it_whenever_they_came(
    events: list[Event],
) -> None:
    with TemporaryDirectory(dir=MEMORY) as home:
        anyio.run(partial(play, events, Path(home)))
