"""Keeps track of a session's children: subagents with sessions of their own. SANS-IO.

ACP's subagents (RFD, version 1): an agent announces a child on its parent with `subagent_update`,
and what the child does comes under the child's own id.

- A child has a key, `:1` and so on, for as long as the session is kept. The journal has the keys;
  clients know the child by the session's id and the key, and never by the agent's id. An id of the
  agent's names one child for good, whichever process says it.
- The ids of a child's tool calls and messages have its key in front, so that they meet no other's.
- Work of a child that was told to stop, or whose process is gone, has one end: the agent's word, or
  the bridge's.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any, Final

from msgspec import Struct, field

from acp_bridge.core.protocol import (
    ENDED,
    OF_SUBAGENTS,
    SUBAGENT_UPDATE,
    Json,
    as_object,
    is_link,
    kind_of,
)

#: the states of a child that works.
WORKING: Final = ("running", "requires_action")
#: the reasons to stop with which a child's work has ended well.
_WELL: Final = (None, "end_turn")
_STOPPED: Final[Json] = {"state": "idle", "stopReason": "cancelled"}
#: the beginning of an id that has a child's key in front.
_SCOPED: Final = re.compile(r"(:\d+)/")
_NAMING: Final = ("sessionId", "senderSessionId", "recipientSessionId")
_COUNT: Final = "children"
"""The journal's key of how many children a session has; each has the key `child:1` and so on."""


class Child(Struct, eq=False):
    """What is known of one child."""

    key: str
    #: the key of the child that it belongs to; empty for the session itself.
    parent: str = ""
    agent_id: str = ""
    #: the members of its announcement and what has changed them, by name.
    told: Json = field(default_factory=dict)
    #: how often it was given work, and the status of that as a tool card has it.
    run: int = 1
    status: str = "pending"
    #: clients were told of it.
    announced: bool = False
    #: its agent was told to cancel its work.
    stopping: bool = False
    #: its work was then ended by the bridge.
    stopped: bool = False

    @property
    def title(self) -> str:
        """Its title as one line; without one its description, or a name with its number."""
        for name in ("title", "description"):
            if isinstance(said := self.told.get(name), str) and (line := " ".join(said.split())):
                return line if len(line) <= 100 else f"{line[:99]}…"
        return f"Subagent {self.key[1:]}"

    @property
    def at_work(self) -> bool:
        """True while its agent says that it works."""
        return as_object(self.told.get("state")).get("state") in WORKING

    @property
    def can_cancel(self) -> bool:
        """True if a client may cancel its work."""
        return as_object(self.told.get("capabilities")).get("cancel") is not None

    def patch(self, update: Json) -> None:
        """Note what a `subagent_update` says: what it leaves out stays, null clears."""
        for name, said in update.items():
            if name not in ("sessionUpdate", "sessionId", "_meta"):
                self.told[name] = said
        state = as_object(update.get("state"))
        if state.get("state") in WORKING:
            self.run += self.status in ENDED
            self.status = "in_progress"
        elif state.get("state") == "idle" and self.status not in ENDED:
            self.status = "completed" if state.get("stopReason") in _WELL else "failed"

    def says(self, update: Json) -> Json:
        """Return the params of a `subagent_update` of the child, as recorded on its parent."""
        said = {**update, "sessionUpdate": SUBAGENT_UPDATE, "sessionId": self.key}
        return {"sessionId": self.parent, "update": said} if self.parent else {"update": said}

    def announcement(self) -> Json:
        """Return the params of an update that tells all that is known of the child by now."""
        return self.says({name: said for name, said in self.told.items() if said is not None})


class Children:
    """The children of one session."""

    def __init__(self, kept: Callable[[str], Any] = lambda key: None) -> None:
        """Read the children that the journal knows; `kept` returns what it has under a key."""
        self._by_key: dict[str, Child] = {}
        self._by_agent_id: dict[str, Child] = {}
        #: the children of which the journal lacks something, by key.
        self.changed: dict[str, Child] = {}
        #: the client-side ids of calls of children that clients were asked about.
        self.asked: set[str] = set()
        for number in range(1, int(kept(_COUNT) or 0) + 1):
            row = as_object(kept(f"child:{number}"))
            self._add(Child(f":{number}", **{**row, "told": dict(as_object(row.get("told")))}))

    def __bool__(self) -> bool:
        """Return True if the session has, or had, a child."""
        return bool(self._by_key)

    def __iter__(self) -> Iterator[Child]:
        """Give the children in the order in which they came, parents first."""
        return iter(list(self._by_key.values()))

    def _add(self, child: Child) -> Child:
        self._by_key[child.key] = child
        if child.agent_id:
            self._by_agent_id[child.agent_id] = child
        return child

    def get(self, key: object) -> Child | None:
        """Return the child with this key; None if there is none."""
        return self._by_key.get(key) if isinstance(key, str) else None

    def of_agent(self, agent_id: object) -> Child | None:
        """Return the child that the agent knows by this id."""
        return self._by_agent_id.get(agent_id) if isinstance(agent_id, str) else None

    def of(self, there: set[str], params: object) -> Child | None:
        """Return the child whose session a message's parameters name; `there`: the agent's ids of
        those that the process has announced."""
        agent_id = params.get("sessionId") if there and isinstance(params, dict) else None
        return self.of_agent(agent_id) if isinstance(agent_id, str) and agent_id in there else None

    @property
    def at_work(self) -> list[Child]:
        """The children that work."""
        return [child for child in self._by_key.values() if child.at_work]

    # --- what the agent says of them -----------------------------------------------------------

    def new(self, agent_id: str, parent: str) -> Child:
        """Add a child with the next key, of which nothing else is known, and return it."""
        return self._add(Child(f":{len(self._by_key) + 1}", parent, agent_id))

    def note(self, child: Child, update: Json) -> Json:
        """Note what a `subagent_update` says of a child; returns the params to be recorded."""
        child.patch(update)
        self.changed[child.key] = child
        child.stopped = False
        child.stopping &= child.at_work
        return child.says(update)

    def note_recorded(self, params: Json) -> None:
        """Note what a recorded update says of a child: a replay knows children from these alone."""
        update = as_object(params.get("update"))
        if update.get("sessionUpdate") == SUBAGENT_UPDATE and (key := str(update.get("sessionId"))):
            known = self._by_key.get(key) or self._add(Child(key, str(params.get("sessionId", ""))))
            known.patch(update)
            known.announced = True

    def take_changed(self, *, whole: bool = False) -> dict[str, object]:
        """Return journal key -> row of the children that have changed; `whole`: of all of them."""
        changed, self.changed = self._by_key if whole else self.changed, {}
        rows: dict[str, object] = {
            f"child{child.key}": {
                "parent": child.parent,
                "agent_id": child.agent_id,
                "told": child.told,
                "run": child.run,
                "status": child.status,
                "announced": child.announced,
            }
            for child in changed.values()
        }
        return {**rows, _COUNT: len(self._by_key)} if rows else {}

    # --- their ends ----------------------------------------------------------------------------

    def to_cancel(self) -> tuple[list[Child], list[Child]]:
        """Return the children at work that a Stop cancels, and those that can't be cancelled."""
        able: list[Child] = []
        others: list[Child] = []
        for child in self.at_work:
            child.stopping = child.can_cancel
            (able if child.can_cancel else others).append(child)
        return able, others

    def end(self, *, stopped: bool = False) -> list[Json]:
        """End the children that have no end yet; returns the params that say so.

        `stopped`: end only the children that were told to stop.
        """
        ended = []
        for child in self:
            if child.announced and (child.stopping if stopped else child.status not in ENDED):
                ended.append(self.note(child, {"state": dict(_STOPPED)}))
                child.stopped = stopped
        return ended

    # --- names ---------------------------------------------------------------------------------

    def inward(self, update: Json, root: object) -> Json:
        """Return an agent's update with keys in place of the ids of the sessions that it names.

        `root`: the agent's id of the session itself, whose key is empty. Other ids are left out.
        """

        def key_of(agent_id: str) -> str | None:
            child = self.of_agent(agent_id)
            return "" if agent_id == root else child.key if child else None

        return _renamed(update, key_of)

    def unlinked(self, update: Json) -> Json:
        """Return an update, or a tool call, with titles in place of its links to sessions."""

        def title(link: Json) -> Json:
            named = self.get(link.get("sessionId"))
            return _text(named.title if named else "this session")

        return _with_links(update, title)


def scoped(update: Json, key: str) -> Json:
    """Return an update or a tool call of a child with its key in front of the ids in it."""
    named = {
        name: f"{key}/{update[name]}"
        for name in ("toolCallId", "messageId")
        if isinstance(update.get(name), str)
    }
    return {**update, **named} if named else update


def child_of(card_id: object) -> str:
    """Return the key of the child that has a tool call; empty for the session's own."""
    found = _SCOPED.match(card_id) if isinstance(card_id, str) else None
    return found[1] if found else ""


def placed(update: Json) -> Json:
    """Return the params of an update about a tool call, with `sessionId` if a child has it."""
    child = child_of(update.get("toolCallId"))
    return {"sessionId": child, "update": update} if child else {"update": update}


def is_of_subagents(params: Json) -> bool:
    """Return True for a recorded update that names a child, or is of one."""
    return "sessionId" in params or kind_of(params) in OF_SUBAGENTS or names_session(params)


def names_session(params: Json) -> bool:
    """Return True for an update whose content links to a session."""
    content = as_object(params.get("update")).get("content")
    return is_link(content) or (isinstance(content, list) and any(map(is_link, content)))


def outward(params: Json, session_id: str) -> Json:
    """Return a recorded update for a client that can show subagents: their keys become ids."""
    told = {**params, "update": _renamed(params["update"], lambda key: session_id + key)}
    if "sessionId" in params:
        told["sessionId"] = session_id + params["sessionId"]
    return told


def linked(call: Json, session_id: str) -> Json:
    """Return a tool call whose links to sessions have the ids that clients know."""
    return _renamed(call, lambda key: session_id + key)


def _renamed(update: Json, rename: Callable[[str], str | None]) -> Json:
    """Return an update with the sessions in it renamed; one renamed to None is left out."""
    told = dict(update)
    for name in _NAMING if told.get("sessionUpdate") in OF_SUBAGENTS else ():
        if isinstance(session := told.pop(name, None), str):
            told |= {} if (named := rename(session)) is None else {name: named}

    def link(block: Json) -> Json:
        session = block.get("sessionId")
        named = rename(session) if isinstance(session, str) else None
        return _text("another session") if named is None else {**block, "sessionId": named}

    return _with_links(told, link)


def _with_links(update: Json, shown: Callable[[Json], Json]) -> Json:
    """Return an update, or a tool call, with what `shown` makes of each link to a session."""
    content = update.get("content")

    def instead(item: object) -> object:
        block = shown(as_object(item)) if is_link(item) else item
        if block is item or is_link(block) or "toolCallId" not in update:
            return block
        return {"type": "content", "content": block}

    if isinstance(content, list):
        return {**update, "content": [instead(each) for each in content]}
    return {**update, "content": instead(content)} if is_link(content) else update


def _text(words: str) -> Json:
    return {"type": "text", "text": f"[{words}]"}
