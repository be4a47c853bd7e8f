"""Compares a whole replay with what an editor was shown of a session, to show the rest. Sans-IO.

It is needed only where a cursor is refused: the session was imported or restored meanwhile, say.

- Texts are compared by their length and digest, for each kind: it makes no difference how the
  transcript cuts them into chunks.
- Tool calls and the plan are compared by the last value of each of their members.
- Words of the user's that the editor has sent are not shown to it again.
"""

from __future__ import annotations

from collections import Counter
from hashlib import sha256
from typing import Any, Final

from acp_bridge.core.protocol import (
    AGENT_MESSAGE,
    AGENT_THOUGHT,
    NOTICE,
    PLAN,
    TOOL_CALL,
    TOOL_CALL_UPDATE,
    USER_MESSAGE,
    Json,
    as_object,
    own_meta,
    without,
)
from acp_bridge.core.wire.jsonrpc import dumps

#: the kinds of updates that are compared by their members: tool calls and plans.
_PIECES: Final = (TOOL_CALL, TOOL_CALL_UPDATE, PLAN)


def _sum(value: Any) -> bytes:
    return sha256(dumps(_sorted(value))).digest()


def _sums(blocks: Any) -> list[bytes]:
    return [_sum(each) for each in blocks] if isinstance(blocks, list) else []


def _sorted(value: Any) -> Any:
    match value:
        case dict():
            return {name: _sorted(value[name]) for name in sorted(value)}
        case list():
            return [_sorted(each) for each in value]
    return value


class _Text:
    """The length and the SHA-256 of a text that grows."""

    def __init__(self) -> None:
        self.length = 0
        self._sum = sha256()

    def add(self, text: str) -> None:
        self.length += len(text)
        self._sum.update(text.encode(errors="surrogatepass"))

    def copy(self) -> _Text:
        other = _Text()
        other.length, other._sum = self.length, self._sum.copy()
        return other

    @property
    def sum(self) -> bytes:
        return self._sum.digest()


class OwnWords:
    """Digests of the prompts that the editor has sent, until they can't be replayed any more."""

    def __init__(self) -> None:
        self._open = Counter[bytes]()
        self._ended = Counter[bytes]()

    def add(self, blocks: Any) -> None:
        """Note the blocks of a prompt that is sent."""
        self._open.update(_sums(blocks))

    def end(self, blocks: Any) -> None:
        """Note that the prompt with these blocks is answered."""
        for each in _sums(blocks):
            if self._open[each] > 0:
                self._open[each] -= 1
                self._ended[each] += 1

    def pass_by(self) -> None:
        """Forget the answered prompts: the session's cursor is past them."""
        self._ended.clear()

    def take(self, block: Any) -> bool:
        """Return True, once for each prompt, if a block of a replay is one that the editor sent."""
        own = _sum(block)
        for words in (self._open, self._ended):
            if words[own] > 0:
                words[own] -= 1
                return True
        return False


class Shown:
    """A summary of what the editor was shown of one session's transcript."""

    def __init__(self) -> None:
        """Nothing was shown yet."""
        self.texts: dict[str, _Text] = {AGENT_MESSAGE: _Text(), AGENT_THOUGHT: _Text()}
        #: by the id of a tool call (None: the plan), the digest of each member.
        self.pieces: dict[str | None, dict[str, bytes]] = {}
        #: the digests of users' words.
        self.words = Counter[bytes]()

    def copy(self) -> Shown:
        """Return an independent copy."""
        other = Shown()
        other.texts = {kind: text.copy() for kind, text in self.texts.items()}
        other.pieces = {name: dict(known) for name, known in self.pieces.items()}
        other.words = self.words.copy()
        return other

    def note(self, params: Json) -> None:
        """Add an update that the editor is shown; notices do not count."""
        update = as_object(params.get("update"))
        kind = update.get("sessionUpdate")
        if own_meta(params).get(NOTICE):
            return
        if kind in self.texts:
            self.texts[str(kind)].add(text_of(update))
        elif kind == USER_MESSAGE:
            self.words[_sum(update.get("content"))] += 1
        elif kind in _PIECES:
            known = self.pieces.setdefault(_piece(update), {})
            known.update({name: _sum(value) for name, value in _members(update).items()})


class Replayed:
    """Filters a whole replay: lets pass only what the editor was not shown yet."""

    def __init__(self, shown: Shown, own: OwnWords) -> None:
        """`shown`: what the editor was shown before; `own`: the prompts that it sent."""
        self._shown, self._own = shown, own
        self._words = shown.words.copy()
        #: what it was shown before, and since.
        self.now = shown.copy()
        self._texts = {kind: _Text() for kind in shown.texts}
        self._pieces: dict[str | None, tuple[Json, Json]] = {}
        #: the replay begins with what was shown.
        self.fits = True

    def take(self, params: Json) -> list[Json]:
        """Return the params of the updates to show for one of the replay: none, all or the rest."""
        new = self._new(params)
        for each in new:
            self.now.note(each)
        return new

    def _new(self, params: Json) -> list[Json]:
        update = as_object(params.get("update"))
        kind, behind = update.get("sessionUpdate"), self._behind
        if own_meta(params).get(NOTICE):
            return [] if behind else [params]
        if kind in self._texts:
            return self._text(str(kind), params, update)
        if kind == USER_MESSAGE:
            return self._users(params, update)
        if kind in _PIECES and (name := _piece(update)) in self._shown.pieces:
            before = self._pieces.get(name, ({}, {}))[1]
            self._pieces[name] = params, {**before, **_members(update)}
            return []
        known = kind in _PIECES  # a card that was never shown is shown wherever it stands
        return [] if behind and not known else [params]

    def _users(self, params: Json, update: Json) -> list[Json]:
        words = _sum(update.get("content"))
        if self._words[words] > 0:
            self._words[words] -= 1
            return []
        if self._own.take(update.get("content")):
            self.now.words[words] += 1
            return []
        return [] if self._behind else [params]

    @property
    def _behind(self) -> bool:
        texts = self._shown.texts.items()
        return any(self._texts[kind].length < text.length for kind, text in texts)

    def _text(self, kind: str, params: Json, update: Json) -> list[Json]:
        now, before, text = self._texts[kind], self._shown.texts[kind], text_of(update)
        left = before.length - now.length
        if left <= 0:
            return [params]
        now.add(text[:left])
        if now.length == before.length:
            self.fits &= now.sum == before.sum
        if left >= len(text):
            return []
        if not _is_text(update):
            return [params]
        content = {**as_object(update.get("content")), "text": text[left:]}
        return [{**params, "update": {**update, "content": content}}]

    def end(self) -> list[Json]:
        """End the replay; returns updates for the changed members of shown tool calls and plan."""
        self.fits &= not self._behind
        told = []
        for name, (params, members) in self._pieces.items():
            known = self._shown.pieces[name]
            new = {each: value for each, value in members.items() if known.get(each) != _sum(value)}
            if new and name is None:
                told.append({**params, "update": {"sessionUpdate": PLAN, **members}})
            elif new:
                said = {"sessionUpdate": TOOL_CALL_UPDATE, "toolCallId": name, **new}
                told.append({**params, "update": said})
        return told


def text_of(update: Json) -> str:
    """Return the text of a chunk; content that is no text as JSON."""
    content = update.get("content")
    if _is_text(update):
        return str(as_object(content)["text"])
    return dumps(_sorted(content)).decode()


def _is_text(update: Json) -> bool:
    content = as_object(update.get("content"))
    return content.get("type") == "text" and isinstance(content.get("text"), str)


def _piece(update: Json) -> str | None:
    call = update.get("toolCallId")
    return call if isinstance(call, str) else None


def _members(update: Json) -> Json:
    kept = without(update, "sessionUpdate")
    return without(kept, "toolCallId")
