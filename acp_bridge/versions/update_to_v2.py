"""Translates the updates of a session in version 1 into those of version 2.

- Version 2 wants an id for each message. A run of chunks without one gets an id that is made here.
- In version 1 null leaves a member of a tool call as it is, in version 2 it clears the member.
"""

from __future__ import annotations

from collections.abc import Callable
from difflib import unified_diff
from itertools import count
from typing import Final

from acp_bridge.core import protocol
from acp_bridge.core.protocol import Json, as_object, follows_apart, meta_of, objects, own_meta
from acp_bridge.versions import v2
from acp_bridge.versions.settings_to_v2 import Settings, commands

#: members of a tool call that stay when an update leaves them out.
_OF_A_CALL: Final = (
    *("name", "title", "kind", "status", "content", "locations", "rawInput", "rawOutput"),
)
#: how many messages of the user's have their ids remembered.
_REMEMBERED: Final = 200
#: the most characters of two texts of which a patch is made; longer ones are told without one.
_MOST_COMPARED: Final = 400_000


class ToV2:
    """Translates the updates of one session, in their order."""

    def __init__(self, ids: str, settings: Settings) -> None:
        """`ids`: the prefix of each message id that is made here."""
        self._ids = ids
        self._settings = settings
        self._numbers = count(1)
        #: the chunk before, if the next one may continue its message, and the id of that message.
        self._before: Json | None = None
        self._message = ""
        #: a replay of the session is on its way to the client.
        self.replays = False
        #: the id of the prompt that the update belongs to, if that is known.
        self._prompt: object = None
        #: the tool calls that the client was shown.
        self._calls: set[str] = set()
        #: the id of the last message of the user's that came without one of its own.
        self.last_user_message = ""
        #: the ids of such messages since a replay or a turn began or ended last.
        self.without_turn: tuple[str, ...] = ()
        #: the ids of the user's last messages, by their text.
        self._said: dict[str | None, str] = {}
        self._rows: dict[str, Callable[[Json], list[Json]]] = {
            **dict.fromkeys(v2.KINDS, _nothing),  # no word of an agent of version 1
            protocol.USER_MESSAGE: self._chunk,
            protocol.AGENT_MESSAGE: self._chunk,
            protocol.AGENT_THOUGHT: self._chunk,
            protocol.TOOL_CALL: self._tool_call,
            protocol.TOOL_CALL_UPDATE: self._tool_call_update,
            protocol.PLAN: _plan,
            protocol.PLAN_UPDATE: _plan,
            protocol.PLAN_REMOVED: _nothing,
            protocol.COMMANDS_UPDATE: _commands,
            protocol.MODE_UPDATE: self._mode,
            protocol.OPTIONS_UPDATE: self._options,
            protocol.SAID_UPDATE: self._as_said,
        }

    def end_message(self) -> None:
        """Make the next chunk without an id begin a new message."""
        self._before = None

    def begin_replay(self) -> None:
        """Forget what the client was shown: it is shown the session from its beginning."""
        self._calls.clear()
        self.replays, self.without_turn = True, ()
        self.end_message()

    def shown_as(self, blocks: object) -> str:
        """Return the id of the user message that showed `blocks`; empty if none did."""
        words = objects(blocks)
        return self._said.get(_text(words), "") if words else ""

    def begun_as(self, blocks: object) -> str:
        """Return the id of the user message that showed the words of a turn that begins, or "".

        A client that loads a session is shown its own prompts in the replay, or right after it.
        """
        return shown if (shown := self.shown_as(blocks)) in self.without_turn else ""

    def note_shown(self, blocks: list[Json], message: str) -> None:
        """Note that `message` is the id of the user message with `blocks`; forget old ones."""
        self._said[_text(blocks)] = message
        if len(self._said) > _REMEMBERED:
            del self._said[next(iter(self._said))]

    def updates(self, params: Json) -> list[Json]:
        """Return the parameters of each `session/update` of version 2 for one of version 1.

        Parameters that are the same in both versions are the very same object.
        """
        if protocol.OF_VERSION_1 in own_meta(params):
            return []
        self._prompt = own_meta(params).get(protocol.PROMPT_ID)
        update = as_object(params.get("update"))
        kind = update.get("sessionUpdate")
        row = self._rows.get(kind) if isinstance(kind, str) else None
        if row != self._chunk:
            self.end_message()
        told = [update] if row is None else row(update)
        return [params if each is update else {**params, "update": each} for each in told]

    # --- messages ------------------------------------------------------------------------------

    def _chunk(self, update: Json) -> list[Json]:
        before, self._before = self._before, update
        own = update.get("messageId")
        if isinstance(own, str) and own:
            return [update]
        if follows_apart(before, update):
            made = f"{self._ids}{next(self._numbers)}"
            self._message = self._prompt if isinstance(self._prompt, str) else made
            if update.get("sessionUpdate") == protocol.USER_MESSAGE:
                self.last_user_message = self._message
                goes_on = (
                    before is not None and before.get("sessionUpdate") == protocol.USER_MESSAGE
                )
                self.without_turn = (*(self.without_turn if goes_on else ()), self._message)
                self.note_shown([as_object(update.get("content"))], self._message)
        return [{**update, "messageId": self._message}]

    # --- tool calls ----------------------------------------------------------------------------

    def _tool_call(self, update: Json) -> list[Json]:
        told = {**tool_call(update), "sessionUpdate": protocol.TOOL_CALL_UPDATE}
        told.setdefault("status", "pending")
        if (
            _call_id(update) in self._calls
        ):  # the agent begins it anew: nothing of the old one stays
            told = {**dict.fromkeys(_OF_A_CALL), **told}
        self._calls.add(_call_id(update))
        return [told]

    def _tool_call_update(self, update: Json) -> list[Json]:
        self._calls.add(_call_id(update))
        return [tool_call(update)]

    # --- what an agent of version 2 has said ---------------------------------------------------

    def _as_said(self, update: Json) -> list[Json]:
        said = as_object(update.get(protocol.SAID))
        if said.get("sessionUpdate") == v2.NOTICE and self.replays:
            return []  # a notice of an old turn is no news
        if "toolCallId" in said:
            self._calls.add(_call_id(said))
        return [said]

    # --- settings ------------------------------------------------------------------------------

    def _mode(self, update: Json) -> list[Json]:
        self._settings.set_mode(update.get("currentModeId"))
        # The answer to the request that opens the session tells all modes.
        return self._all_options(update) if self._settings.has_modes else []

    def _options(self, update: Json) -> list[Json]:
        self._settings.take(update)
        return self._all_options(update)

    def _all_options(self, update: Json) -> list[Json]:
        told: Json = {"sessionUpdate": protocol.OPTIONS_UPDATE}
        told["configOptions"] = self._settings.shown
        return [{**told, **meta_of(update)}]


def _text(blocks: list[Json]) -> str | None:
    """Return the text of the first content block, if it has one."""
    text = blocks[0].get("text") if blocks else None
    return text if isinstance(text, str) else None


def _call_id(update: Json) -> str:
    """Return the `toolCallId` of an update; empty if it is no string."""
    call = update.get("toolCallId")
    return call if isinstance(call, str) else ""


def tool_call(update: Json) -> Json:
    """Return a tool call, or an update of one, in version 2.

    One that is the same in both versions is the very same object.
    """
    if update.get("content") is None and None not in update.values():
        return update
    told = {key: value for key, value in update.items() if value is not None}
    if isinstance(content := told.get("content"), list):
        told["content"] = [_content(each) for each in objects(content) if _is_known(each)]
    return told


def _is_known(item: Json) -> bool:
    """Return False for a client's terminal: version 2 has terminals of the agent only."""
    return item.get("type") != "terminal"


def _content(item: Json) -> Json:
    if item.get("type") != "diff":
        return item
    path, old, new = item.get("path"), item.get("oldText"), item.get("newText")
    operation = "add" if old is None else "modify"
    told: Json = {"type": "diff", "changes": [{"operation": operation, "path": path}]}
    if (text := _patch(path, old, new)) is not None:
        told["patch"] = {"format": "git_patch", "text": text}
    return {**told, **meta_of(item)}


def _patch(path: object, old: object, new: object) -> str | None:
    """Return a git patch from `old` to `new`; None if they are no texts, or too long to compare.

    An `old` of None means that the file is new.
    """
    before = "" if old is None else old
    if not (isinstance(path, str) and isinstance(before, str) and isinstance(new, str)):
        return None
    if len(before) + len(new) > _MOST_COMPARED:
        return None
    name = path.lstrip("/")
    names = ("/dev/null" if old is None else f"a/{name}"), f"b/{name}"
    lines = [f"diff --git a/{name} b/{name}\n"]
    lines += ["new file mode 100644\n"] if old is None else []
    for line in unified_diff(_lines(before), _lines(new), *names):
        lines.append(line if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n")
    return "".join(lines)


def _lines(text: str) -> list[str]:
    """Return the lines of a text with their ends; only a newline ends a line."""
    *whole, last = text.split("\n")
    return [f"{line}\n" for line in whole] + ([last] if last else [])


# --- translations that need no state of the session -----------------------------------------------


def _nothing(_update: Json) -> list[Json]:
    return []


def _plan(update: Json) -> list[Json]:
    plan = as_object(update.get(protocol.PLAN)) or update
    if v2.is_document(plan):
        return [update]
    if plan.get("type", v2.ITEMS) != v2.ITEMS:
        return []
    entries = objects(plan.get("entries"))
    told = {"type": v2.ITEMS, "planId": v2.PLAN_ID, "entries": entries}
    shown: Json = {"sessionUpdate": protocol.PLAN_UPDATE, protocol.PLAN: told}
    return [{**shown, **meta_of(update)}]


def _commands(update: Json) -> list[Json]:
    return [{**update, "availableCommands": commands(update.get("availableCommands"))}]
