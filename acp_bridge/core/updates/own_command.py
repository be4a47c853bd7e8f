"""The command of the bridge's own, and its name beside the commands of the agent. SANS-IO.

It is `/queue`. An agent may have a `/queue` of its own: then the bridge's is `/bridge queue`, or
`/acp-bridge queue` if the agent has a `/bridge`, too. Notices and errors are written with `/queue`,
and get the other name on their way out.
"""

from __future__ import annotations

import re
from typing import Any, Final

from acp_bridge.core.protocol import NOTICE, Json, as_object, objects, own_meta

QUEUE: Final = "queue"
#: commands that stand before `queue` where the agent has one; the last counts in any case.
_BEFORE: Final = ("bridge", "acp-bridge")
#: the command in a sentence of ours; a text of others that begins so is fenced in another way.
_IN_SENTENCE: Final = re.compile(
    r"(?<![`\\])`/queue"
    r"(?=`| (?:pause|hold|go|wait|stop|steer|run|drop|edit|move|memory|title|ask)\b)"
)


class OwnCommand:
    """Knows under which name the bridge's command is offered in one session."""

    def __init__(self, listed: Json | None) -> None:
        """`listed`: the command as clients list it, as `/queue`; None if it is not listed."""
        self._listed = listed
        #: the commands of the agent that have a name of ours.
        self._taken: frozenset[str] = frozenset()

    def offer(self, listed: Json) -> None:
        """List the command in this form from now on."""
        self._listed = listed

    @property
    def name(self) -> str:
        """What a person types: `/queue`, or with another command before it."""
        if QUEUE not in self._taken:
            return f"/{QUEUE}"
        return f"/{self._before} {QUEUE}"

    @property
    def _before(self) -> str:
        return next((each for each in _BEFORE if each not in self._taken), _BEFORE[-1])

    def is_agents(self, prompt: list[Any]) -> bool:
        """Return True if the command with which a prompt begins is the agent's."""
        text = as_object(prompt[0]).get("text") if prompt else None
        first = text.split()[:1] if isinstance(text, str) else []
        return bool(first) and first[0].removeprefix("/") in self._taken - {_BEFORE[-1]}

    def take_up(self, kept: object) -> None:
        """Note the commands of the agent in a list that was kept with ours in it."""
        commands = objects(as_object(as_object(kept).get("update")).get("availableCommands"))
        ours = (self._listed or {}).get("description")
        self._note([each for each in commands if each.get("description") != ours])

    def added(self, update: Json) -> Json:
        """Return an agent's list of commands with ours at its end."""
        commands = update.get("availableCommands")
        if self._listed is None or not isinstance(commands, list):
            return update
        self._note(objects(commands))
        return {**update, "availableCommands": [*commands, self._as_listed()]}

    def _note(self, commands: list[Json]) -> None:
        names = (each.get("name") for each in commands)
        found = {name.removeprefix("/") for name in names if isinstance(name, str)}
        self._taken = frozenset(found & {QUEUE, *_BEFORE})

    def _as_listed(self) -> Json:
        listed = self._listed or {}
        if QUEUE not in self._taken:
            return listed
        hint = str(as_object(listed.get("input")).get("hint", ""))
        rows = [QUEUE, *(f"{QUEUE} {each}" for each in hint.split(" | ") if each)]
        return {**listed, "name": self._before, "input": {"hint": " | ".join(rows)}}

    def named(self, text: str) -> str:
        """Return a sentence of ours with the present name of the command."""
        return _IN_SENTENCE.sub(f"`{self.name}", text) if QUEUE in self._taken else text

    def in_notice(self, params: Json) -> Json:
        """Return a notice with the present name of the command; any other update as it is."""
        if QUEUE not in self._taken or own_meta(params).get(NOTICE) is not True:
            return params
        update = as_object(params.get("update"))
        content = as_object(update.get("content"))
        if not isinstance(text := content.get("text"), str):
            return params
        return {**params, "update": {**update, "content": {**content, "text": self.named(text)}}}
