"""An agent that says as much as its prompt asks for, and what it shows beside words."""

import re
from dataclasses import dataclass, field

import anyio

from acp_bridge.protocol import Json
from tests.page_not_ours.site import PERMISSION
from tests.sessions.agent import Agent, Process, until
from tests.view.test_images import coded, png

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

        def say(text: str) -> None:
            self.said += 1
            process.shows(
                session,
                {
                    "sessionUpdate": "agent_message_chunk",
                    "content": {"type": "text", "text": text},
                    "messageId": f"m{self.said}",
                },
            )

        def card(block: Json) -> None:
            self.said += 1
            content = [{"type": "content", "content": block}]
            process.shows(
                session,
                {
                    "sessionUpdate": "tool_call",
                    "toolCallId": f"t{self.said}",
                    "title": f"pytest {self.said}",
                    "kind": "execute",
                    "status": "completed",
                    "content": content,
                },
            )

        for word, number in re.findall(r"(say|card|table|picture|wait|ask)(?: (\d+))?", asked):
            match word:
                case "say":
                    for _ in range(int(number)):
                        say(
                            f"Message {self.said + 1} of the agent, with some words to fill a line."
                        )
                        if self.said % 100 == 0:
                            await anyio.lowlevel.checkpoint()
                case "card":
                    card({"type": "text", "text": LINES})
                case "table":
                    say(TABLE)
                case "picture":
                    card({"type": "image", "mimeType": "image/png", "data": coded(png(160, 90))})
                case "ask":
                    process.says(
                        {
                            "id": 77,
                            "method": "session/request_permission",
                            "params": {**PERMISSION, "sessionId": session},
                        }
                    )
                    await until(lambda: any(each.get("id") == 77 for each in process.received))
                case "wait":
                    await until(lambda: self.go_on.is_set() or process.params("session/cancel"))
        return {"stopReason": "end_turn"}
