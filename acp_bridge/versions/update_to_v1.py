"""The updates of one session of version 2 as updates of version 1. SANS-IO.

An update of a kind that version 2 has and version 1 has not is dropped (docs/versions.md lists
them): a strict client ends the connection at a kind that it does not know. One of a kind that
neither has passes, and the bridge decides which clients get it.
"""

from __future__ import annotations

from collections.abc import Callable

from acp_bridge.core import protocol
from acp_bridge.core.clients.abilities import is_unknown
from acp_bridge.core.protocol import (
    COMMANDS_UPDATE,
    MODE_UPDATE,
    OPTIONS_UPDATE,
    PLAN,
    PLAN_UPDATE,
    TOOL_CALL_UPDATE,
    Json,
    as_object,
    objects,
    text_chunk,
)
from acp_bridge.core.updates.odd_updates import entry_of_v1
from acp_bridge.versions import v2
from acp_bridge.versions.blocks_to_v1 import block_to_v1, blocks_to_v1
from acp_bridge.versions.cards_to_v1 import Cards
from acp_bridge.versions.messages_to_v1 import WHOLE, Messages
from acp_bridge.versions.options_to_v1 import (
    commands_to_v1,
    mode_option,
    modes_to_v1,
    options_to_v1,
)


class Shown:
    """Translates the updates of one session, and knows what a client of version 1 was shown."""

    def __init__(
        self, *, booleans: bool = False, compaction: bool = False, documents: bool = False
    ) -> None:
        """`booleans`: the client takes config options that are on or off.

        `compaction`: it takes updates about the compaction of a conversation.

        `documents`: it takes plans that are documents.
        """
        self.messages = Messages()
        self.cards = Cards()
        #: the ids of the bridge's own prompts: an agent repeats their words.
        self.prompts: set[str] = set()
        #: a prompt of the bridge's is open: the user's words are its own, and shown already.
        self.prompting = False
        #: the option that version 1 knows as modes, as it was last told.
        self.mode: Json | None = None
        self._booleans = booleans
        self._documents = documents
        self._notices = 0
        of_compaction = _same if compaction else _nothing
        self._rows: dict[str, Callable[[Json], list[Json]]] = {
            **dict.fromkeys(WHOLE.values(), self.messages.chunk),
            **dict.fromkeys(WHOLE, self.messages.whole),
            protocol.USER_MESSAGE: self._chunk_of_user,
            v2.USER_MESSAGE: self._message_of_user,
            TOOL_CALL_UPDATE: self.cards.call,
            v2.TOOL_CALL_CONTENT_CHUNK: self.cards.piece,
            v2.TERMINAL_UPDATE: self.cards.terminal,
            v2.TERMINAL_OUTPUT_CHUNK: self.cards.output,
            PLAN_UPDATE: self._plan,
            COMMANDS_UPDATE: _commands,
            OPTIONS_UPDATE: self._options_update,
            v2.NOTICE: self._notice,
            protocol.SESSION_MESSAGE: _of_sessions,
            protocol.SESSION_MESSAGE_CHUNK: _of_sessions,
            protocol.USAGE_UPDATE: _same,
            protocol.INFO_UPDATE: _same,
            protocol.QUOTA_UPDATE: _same,
            v2.COMPACTION_UPDATE: of_compaction,
            v2.COMPACTION_SUMMARY_CHUNK: of_compaction,
        }

    def update(self, update: Json) -> list[Json]:
        """Return the updates of version 1 for one of version 2: none, one or several."""
        kind = update.get("sessionUpdate")
        if not isinstance(kind, str):
            return []
        if row := self._rows.get(kind):
            return row(update)
        return [update] if kind not in v2.KINDS and is_unknown(kind) else []

    # --- messages ------------------------------------------------------------------------------

    def _chunk_of_user(self, update: Json) -> list[Json]:
        return [] if self._is_echo(update) else self.messages.chunk(update)

    def _message_of_user(self, update: Json) -> list[Json]:
        return [] if self._is_echo(update) else self.messages.whole(update)

    def _is_echo(self, update: Json) -> bool:
        """Return True if an update repeats words of the user that the bridge sent and showed."""
        message_id = update.get("messageId")
        return self.prompting or (isinstance(message_id, str) and message_id in self.prompts)

    def _notice(self, update: Json) -> list[Json]:
        """Return a message with a notice's text; none for one of the severity `info`."""
        if update.get("severity") == "info":
            return []
        self._notices += 1
        said = [each for n in ("title", "description") if isinstance(each := update.get(n), str)]
        text = "\n\n".join(said)
        chunk = text_chunk(
            protocol.AGENT_MESSAGE, f"\n\n{text}\n\n", f"acp-bridge-notice-{self._notices}"
        )
        return [chunk] if text else []

    def _plan(self, update: Json) -> list[Json]:
        """Return the update that shows a plan.

        Version 1 has one plan of items, the last told, and a draft for plans that are documents.
        """
        plan = as_object(update.get(protocol.PLAN))
        if v2.is_document(plan):
            return [update] if self._documents else []
        if plan.get("type") != v2.ITEMS:
            return []
        kept = {name: value for name, value in update.items() if name == "_meta"}
        entries = [entry_of_v1(each) for each in objects(plan.get("entries"))]
        return [{"sessionUpdate": PLAN, "entries": entries, **kept}]

    # --- settings ------------------------------------------------------------------------------

    def settings(self, options: object) -> Json:
        """Return `configOptions` in version 1, and `modes` if there are some; notes the mode."""
        self.mode = mode_option(options)
        told: Json = {"configOptions": options_to_v1(options, booleans=self._booleans)}
        return {**told, "modes": modes_to_v1(self.mode)} if self.mode else told

    def mode_changed(self, options: object) -> list[Json]:
        """Return the update that tells the current mode, if it changed with the new options."""
        before, now = self.mode, mode_option(options)
        self.mode = now or before
        if now is None or (before and before["currentValue"] == now["currentValue"]):
            return []
        return [{"sessionUpdate": MODE_UPDATE, "currentModeId": now["currentValue"]}]

    def options_told(self, options: object) -> Json:
        """Return the update that tells the config options."""
        told = options_to_v1(options, booleans=self._booleans)
        return {"sessionUpdate": OPTIONS_UPDATE, "configOptions": told}

    def _options_update(self, update: Json) -> list[Json]:
        options = update.get("configOptions")
        return [{**update, **self.options_told(options)}, *self.mode_changed(options)]


def _same(update: Json) -> list[Json]:
    return [update]


def _nothing(_update: Json) -> list[Json]:
    return []


def _of_sessions(update: Json) -> list[Json]:
    """Return an update with a message between two sessions, its content in version 1."""
    content = update.get("content")
    if isinstance(content, list):
        return [{**update, "content": blocks_to_v1(content)}]
    if isinstance(content, dict):
        block = block_to_v1(content)
        return [] if block is None else [{**update, "content": block}]
    return [update]


def _commands(update: Json) -> list[Json]:
    return [{**update, "availableCommands": commands_to_v1(update.get("availableCommands"))}]
