"""An agent that says as much as its prompt asks for, and what it shows beside words."""

import re
from dataclasses import dataclass, field

import anyio

from acp_bridge.core.protocol import Json
from tests.core.sessions.agent import Agent, Process, until
from tests.page_not_ours.site import PERMISSION
from tests.terminal.view.test_images import coded, png

TABLE = (
    "| option | default | what it does |\n|---|---|---|\n"
    "| `ACP_BRIDGE_PERMISSIONS_UNATTENDED` | reject | answers for a person who is away |\n"
    "| Donaudampfschifffahrtsgesellschaft | Kapitaen | unbreakablewordsstaytogetherhere |\n"
)
LINES = "\n".join(f"line {number}" for number in range(40))


@dataclass
class Talking:
    """`say N` says N messages; `card`, `table`, `picture` and `ask` show one of those."""

    agent: Agent = field(default_factory=Agent)
    said: int = 0
    go_on: anyio.Event = field(default_factory=anyio.Event)

    def __post_init__(self) -> None:
        self.agent.script["session/prompt"] = self._prompt

    async def _prompt(self, process: Process, params: Json) -> Json:
        session, asked = params["sessionId"], params["prompt"][0]["text"]
        for word, number in re.findall(r"(say|card|table|picture|wait|ask)(?: (\d+))?", asked):
            match word:
                case "say":
                    await self._say_all(process, session, int(number))
                case "card":
                    self._card(process, session, {"type": "text", "text": LINES})
                case "table":
                    self._say(process, session, TABLE)
                case "picture":
                    image = {"type": "image", "mimeType": "image/png", "data": coded(png(160, 90))}
                    self._card(process, session, image)
                case "ask":
                    asks = {**PERMISSION, "sessionId": session}
                    process.says({"id": 77, "method": "session/request_permission", "params": asks})
                    await until(lambda: any(each.get("id") == 77 for each in process.received))
                case "wait":
                    await until(lambda: self.go_on.is_set() or process.params("session/cancel"))
        return {"stopReason": "end_turn"}

    async def _say_all(self, process: Process, session: str, count: int) -> None:
        for _ in range(count):
            words = f"Message {self.said + 1} of the agent, with some words to fill a line."
            self._say(process, session, words)
            if self.said % 100 == 0:
                await anyio.lowlevel.checkpoint()

    def _say(self, process: Process, session: str, text: str) -> None:
        self.said += 1
        content = {"type": "text", "text": text}
        update = {"sessionUpdate": "agent_message_chunk", "content": content}
        process.shows(session, {**update, "messageId": f"m{self.said}"})

    def _card(self, process: Process, session: str, block: Json) -> None:
        self.said += 1
        card = {"title": f"pytest {self.said}", "kind": "execute", "status": "completed"}
        content = [{"type": "content", "content": block}]
        update = {"sessionUpdate": "tool_call", "toolCallId": f"t{self.said}", "content": content}
        process.shows(session, {**update, **card})
