"""What a session tells beside its prompts: its title, and once that nothing is streamed."""

from __future__ import annotations

from acp_bridge.core.protocol import INFO_UPDATE
from agent.openhands.events import Json
from agent.openhands.problems import ServerProblem
from agent.openhands.server import Server
from agent.openhands.shown import Shown
from agent.openhands.turn_words import NOT_STREAMED


class News:
    def __init__(self, conversation_id: str, server: Server, shown: Shown) -> None:
        self._id = conversation_id
        self._server = server
        self._shown = shown
        self._title = ""
        self._told_whole = False

    async def title(self) -> None:
        """Reads the conversation's title and tells it to the client if it has changed.

        It is read because no event of the server tells of the change.
        """
        try:
            title = (await self._server.info(self._id)).get("title")
        except ServerProblem:
            return
        if isinstance(title, str) and title and title != self._title:
            self._title = title
            await self._shown.update({"sessionUpdate": INFO_UPDATE, "title": title})

    async def whole(self, state: Json) -> None:
        """Tells the user, once, that nothing is streamed if the agent's model doesn't stream.

        `state`: the whole state of the conversation.
        """
        agent = state.get("agent")
        if self._told_whole or not isinstance(agent, dict) or agent.get("kind") == "ACPAgent":
            return
        self._told_whole = True
        model = agent.get("llm")
        if isinstance(model, dict) and model.get("stream") is False:
            await self._shown.say(NOT_STREAMED)
