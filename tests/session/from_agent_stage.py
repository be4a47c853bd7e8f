"""A session with a client and one process, which the test plays."""

from pathlib import Path
from typing import Any

from acp_bridge.journal import Journal, SessionJournal
from acp_bridge.machine.states import Phase, State
from acp_bridge.protocol import text_chunk
from acp_bridge.session.clients.to_client import ToClient
from acp_bridge.session.from_agent import FromAgent
from acp_bridge.session.process.work import Work
from acp_bridge.session.prompts.steering import Steering
from acp_bridge.session.requests.to_agent import ToAgent
from acp_bridge.session.requests.user_settings import UserSettings
from acp_bridge.session.transcript.pacing import Pacing
from acp_bridge.session.transcript.title import Title
from acp_bridge.session.transcript.transcript_out import TranscriptOut
from acp_bridge.updates.updates import Updates
from acp_bridge.wire.jsonrpc import encode
from tests.session.memory import ClientEnd, MemoryLink
from tests.session.played_core import PlayedCore
from tests.sessions.world import settings

Json = dict[str, Any]
CAN_ALL: Json = {"fs": {"readTextFile": True, "writeTextFile": True}, "terminal": True}
LIMIT = 100


def chunk(text: str, message_id: str = "m") -> Json:
    return text_chunk("agent_message_chunk", text, message_id)


def card(card_id: str = "t", *, opens: bool = True) -> Json:
    kind = "tool_call" if opens else "tool_call_update"
    return {"sessionUpdate": kind, "toolCallId": card_id}


USAGE: Json = {"sessionUpdate": "usage_update", "used": 1, "size": 2}


class Settings(UserSettings):
    """Keeps what is noted."""

    def __init__(self, journal: SessionJournal) -> None:
        super().__init__(journal)
        self.kept: list[Json] = []

    def note_update(self, update: Json, *, announced: bool = True) -> None:
        self.kept.append(update)
        super().note_update(update, announced=announced)


class NoSteering(Steering):
    """No words have joined a turn."""

    def __init__(self) -> None:
        self.listens = False


class Busy(ToAgent):
    """Has a request at the agent, if the test says so."""

    def __init__(self) -> None:
        self.busy = False


class Stage:
    """A session with a client and one process, which the test plays."""

    def __init__(self, journal: SessionJournal, *clients: ClientEnd) -> None:
        self.clients = clients or (ClientEnd(CAN_ALL),)
        self.core = PlayedCore()
        self.updates = Updates(set())
        self.updates.new_turn(1)
        self.transcript = TranscriptOut("s", journal, self.updates)
        self.views = [self.transcript.attach(end.client) for end in self.clients]
        self.to_client = ToClient("s", self.transcript.asked, self.updates)
        self.settings, self.to_agent = Settings(journal), Busy()
        pacing = Pacing(self.core, self.transcript, LIMIT, lambda view: None)
        self.from_agent = FromAgent(
            self.core,
            journal,
            self.updates,
            self.transcript,
            self.to_client,
            pacing,
            self.settings,
            Title(self.core, Journal(Path()), journal, self.transcript),
            self.to_agent,
            NoSteering(),
            Work(self.core, self.updates, self.transcript, settings(Path())),
            lambda: None,
        )
        self.link = self.process(1)

    @property
    def client(self) -> ClientEnd:
        return self.clients[0]

    def process(self, epoch: int) -> MemoryLink:
        link = MemoryLink(f"agent#{epoch}", self.from_agent)
        link.epoch = epoch
        return link

    def enter(self, state: State, phase: Phase | None = None) -> None:
        """The machine goes into a state."""
        self.core.machine_state, self.core.phase_now = state, phase
        self.from_agent.follow(self.core.state, self.core.state)

    def says(self, *updates: Any, link: MemoryLink | None = None, **more: Any) -> None:
        """The agent sends these in one write."""
        link = link or self.link
        lines = [
            {
                "jsonrpc": "2.0",
                "method": "session/update",
                "params": {"sessionId": link.agent_session_id, "update": update, **more},
            }
            for update in updates
        ]
        link.peer.feed(b"".join(encode(line) for line in lines))

    def shown(self) -> list[Json]:
        return [message["params"]["update"] for message in self.client.sent.take()]

    def answers(self, link: MemoryLink | None = None) -> list[Any]:
        """Return what the agent is answered: results, and codes of errors."""
        return [
            message["error"]["code"] if "error" in message else message["result"]
            for message in (link or self.link).sent.take()
        ]
