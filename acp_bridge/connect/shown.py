"""What an editor was shown of a session, and what of a whole replay it was not. Sans-IO.

It is needed only where a cursor is refused: the session was imported or restored meanwhile, say.

- Texts are known by their length and their sum, for each kind: it makes no difference how the
  transcript cuts them into chunks.
- A tool call, and a plan, is known by what was said last of each of its members.
- Words of the user's that the editor has sent are not shown to it again.
"""

from __future__ import annotations

from collections import Counter
from hashlib import sha256
from typing import Any, Final

from acp_bridge.protocol import (
    AGENT_MESSAGE,
    AGENT_THOUGHT,
    PLAN,
    TOOL_CALL,
    TOOL_CALL_UPDATE,
    USER_MESSAGE,
    Json,
    as_object,
    own_meta,
)
from acp_bridge.wire.jsonrpc import dumps

#: what is said of a card or a plan, by its members.
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
    """So many characters, and their sum."""

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
    """The words that the editor itself has sent, until the transcript is known to be past them."""

    def __init__(self) -> None:
        self._open = Counter[bytes]()
        self._ended = Counter[bytes]()

    def add(self, blocks: Any) -> None:
        """Note the blocks of a prompt that is sent."""
        self._open.update(_sums(blocks))

    def end(self, blocks: Any) -> None:
        """Note that the prompt has its answer."""
        for each in _sums(blocks):
            if self._open[each] > 0:
                self._open[each] -= 1
                self._ended[each] += 1

    def pass_by(self) -> None:
        """Note a place that is behind all prompts that have their answers."""
        self._ended.clear()

    def take(self, block: Any) -> bool:
        """Return True for words of the editor's own in a replay; once for each prompt."""
        own = _sum(block)
        for words in (self._open, self._ended):
            if words[own] > 0:
                words[own] -= 1
                return True
        return False


class Shown:
    """What was shown of one transcript."""

    def __init__(self) -> None:
        """Nothing."""
        self.texts: dict[str, _Text] = {AGENT_MESSAGE: _Text(), AGENT_THOUGHT: _Text()}
        #: by tool call (None: the plan), the sum of each member.
        self.pieces: dict[str | None, dict[str, bytes]] = {}
        #: the sums of users' words.
        self.words = Counter[bytes]()

    def copy(self) -> Shown:
        """Return what goes on from here by itself."""
        other = Shown()
        other.texts = {kind: text.copy() for kind, text in self.texts.items()}
        other.pieces = {name: dict(known) for name, known in self.pieces.items()}
        other.words = self.words.copy()
        return other

    def note(self, params: Json) -> None:
        """Note an update that is recorded."""
        update = as_object(params.get("update"))
        kind = update.get("sessionUpdate")
        if own_meta(params).get("notice"):
            return
        if kind in self.texts:
            self.texts[str(kind)].add(text_of(update))
        elif kind == USER_MESSAGE:
            self.words[_sum(update.get("content"))] += 1
        elif kind in _PIECES:
            known = self.pieces.setdefault(_piece(update), {})
            known.update({name: _sum(value) for name, value in _members(update).items()})


class Replayed:
    """Takes a whole replay and gives what of it was not shown."""

    def __init__(self, shown: Shown, own: OwnWords) -> None:
        """`shown`: up to where the editor was shown the transcript."""
        self._shown, self._own = shown, own
        self._words = shown.words.copy()
        #: what it was shown then, and since.
        self.now = shown.copy()
        self._texts = {kind: _Text() for kind in shown.texts}
        self._pieces: dict[str | None, tuple[Json, Json]] = {}
        #: what was shown is the beginning of what is replayed.
        self.fits = True

    def take(self, params: Json) -> list[Json]:
        """Return what is to be shown of an update of the replay."""
        new = self._new(params)
        for each in new:
            self.now.note(each)
        return new

    def _new(self, params: Json) -> list[Json]:
        update = as_object(params.get("update"))
        kind, behind = update.get("sessionUpdate"), self._behind
        if own_meta(params).get("notice"):
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
        """Return what has become of the cards that were shown; the replay is whole."""
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
    """Return the text of a chunk; another content as JSON."""
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
    kept = {name: value for name, value in update.items() if name != "sessionUpdate"}
    return {name: value for name, value in kept.items() if name != "toolCallId"}
