"""What the agent remembers of a session, and the way on when it won't load it (invariant R15).

The way on is the user's word: `/queue memory new` gives the session up at the agent and goes on
with a new one, `/queue memory restore` gives that one a transcript with its first prompt.
"""

from __future__ import annotations

import re
from collections import deque
from typing import Any, Final

from acp_bridge.core.journal import JournalError, PromptState, SessionJournal
from acp_bridge.core.protocol import (
    AGENT_MESSAGE,
    CONTEXT,
    FEEDBACK,
    NOTICE,
    TOOL_CALL,
    USER_MESSAGE,
    ErrorCode,
    Json,
    own_meta,
)
from acp_bridge.core.runtime.log import event
from acp_bridge.core.session.opening import Known, in_words
from acp_bridge.core.updates import notices
from acp_bridge.core.wire.jsonrpc import Err, Ok

#: characters of a transcript that a prompt carries; what is older is left out.
_TRANSCRIPT: Final = 32_000
_KEY: Final = "memory"
#: how agents say, in errors of any code, that they don't have a session.
_UNKNOWN: Final = re.compile(
    r"\b(?:no such|no|unknown|unrecogni[sz]ed|missing) session\b"
    r"|\bsession\b.{0,80}\b(?:not (?:be )?found|unknown|does ?n.t exist|does not exist)",
    re.IGNORECASE | re.DOTALL,
)


class Memory:
    """Knows what one session's agent remembers; what the user decided is kept in the journal."""

    def __init__(self, journal: SessionJournal) -> None:
        """Read what an earlier bridge has kept in the journal. Raises JournalError."""
        self._journal = journal
        #: given_up: the next process gets a new session. restore: that one gets the transcript.
        #: sent: it was sent. turns: how many turns had ended well before the new session.
        #: inherited: the agent's session has turns that are not in this journal. doubted: it was
        #: said that the agent may have forgotten the session.
        self._kept: Json = journal.get(_KEY) or {}
        #: why the agent would not load the session when it was asked last.
        self.refusal: str | None = None
        #: the process was given the session by a resume, and has not shown since that it has it.
        self.resumed = False
        #: the transcript for the next prompt that can carry it.
        self.transcript: str | None = None

    @property
    def given_up(self) -> bool:
        """The user has given up the agent's session, and no process has opened another one yet."""
        return bool(self._kept.get("given_up"))

    @property
    def known(self) -> Known:
        """Return which session of the agent a new process is to open. Raises JournalError."""
        info = self._journal.info
        if self.given_up:
            return Known(None, False)
        # A session that has the agent's own id was the agent's before: it had turns of its own.
        imported = info.session_id == info.agent_session_id and "turns" not in self._kept
        remembered = imported or bool(self._kept.get("inherited")) or self._turns() > 0
        begun = remembered or bool(self._journal.prompts(PromptState.SENT, PromptState.DONE))
        return Known(info.agent_session_id, remembered, begun)

    def inherit(self) -> None:
        """Note that the agent's session remembers turns that are not in this journal.

        Raises JournalError.
        """
        self._keep({"inherited": True})

    def give_up(self, *, restore: bool) -> str:
        """Go on with a new session of the agent, in its next process; returns the notice of that.

        `restore`: the new session gets the transcript with its first prompt.
        """
        turns = self._journal.turns_finished()
        try:
            self._keep({"given_up": True, "restore": restore, "turns": turns})
        except JournalError:
            return notices.MEMORY_STOPPED
        return notices.MEMORY_RESTORED if restore else notices.MEMORY_NEW

    async def note_open(self, *, is_new: bool, resumed: bool = False) -> None:
        """Note that a process has opened the session; `is_new`: as a new one of the agent.

        `resumed`: it says that it has resumed the session, which it should remember.
        A transcript that is to be restored is made ready. Raises JournalError.
        """
        self.refusal, self.resumed = None, resumed
        if self.given_up:
            self._keep({**self._kept, "given_up": False})
        lost = is_new and self._turns() == 0  # it forgot a turn that did not end well
        if self._kept.get("restore") and (lost or not self._kept.get("sent")):
            self.transcript = await transcript(self._journal)

    def note_doubt(self, *, doubt: bool) -> bool:
        """Note if the agent may have forgotten the session; returns True if that is to be said.

        It is said once for a session, and again only if the agent has remembered it in between.
        """
        if doubt == bool(self._kept.get("doubted")):
            return False
        try:
            self._keep({**self._kept, "doubted": doubt})
        except JournalError as exc:
            event("journal.failed", session=self._journal.info.session_id, what=exc)
        return doubt

    def doubt_resumed(self, answer: object, *, spoke: bool) -> bool | None:
        """Return True, once, if an agent that says it has resumed the session surely lacks it.

        It refuses the prompt without a word, or says that there is no such session. False: it has
        answered; None: there is nothing new to know. `spoke`: it has said something in the turn.
        """
        if not self.resumed:
            return None
        match answer:
            case Err(error):
                unknown = error.code == ErrorCode.RESOURCE_NOT_FOUND
                unknown = unknown or _UNKNOWN.search(in_words(error)) is not None
                doubt = True if unknown and not spoke else None
            case Ok({"stopReason": "refusal"}) if not spoke:
                doubt = True
            case _:
                doubt = False if spoke else None
        self.resumed = doubt is None
        return doubt

    def take_transcript(self, prompt: list[Any]) -> Json | None:
        """Return the content block with the transcript, once, for the prompt that carries it.

        A command of the agent's must stand first in its prompt, so it carries none.
        """
        if self.transcript is None:
            return None
        first = prompt[0].get("text") if isinstance(prompt[0], dict) else None
        if isinstance(first, str) and first.startswith("/"):
            return None
        text, self.transcript = self.transcript, None
        try:
            self._keep({**self._kept, "sent": True})
        except JournalError as exc:
            event("journal.failed", session=self._journal.info.session_id, what=exc)
        return {"type": "text", "text": text}

    def _turns(self) -> int:
        """Return how many turns have ended well in the agent's present session."""
        before: int = self._kept.get("turns", 0)
        return self._journal.turns_finished() - before

    def _keep(self, kept: Json) -> None:
        self._journal.set(_KEY, kept)
        self._kept = kept


async def transcript(journal: SessionJournal) -> str:
    """Return the newest `_TRANSCRIPT` characters of the conversation, as text for an agent."""
    said: deque[str] = deque()
    size, whole = 0, True
    async for page in journal.replay():
        for params in page:
            if line := _line(params):
                said.append(line)
                size += len(line)
            while size > _TRANSCRIPT:
                size -= len(said.popleft())
                whole = False
    head = notices.TRANSCRIPT_WHOLE if whole else notices.TRANSCRIPT_CUT
    return f"{head}\n\n<transcript>\n" + "\n\n".join(said) + "\n</transcript>"


def _line(params: Json) -> str | None:
    update = params.get("update")
    if not isinstance(update, dict) or own_meta(params).get(NOTICE) or "sessionId" in params:
        return None
    content = update.get("content")
    text = content.get("text") if isinstance(content, dict) else None
    match update.get("sessionUpdate"):
        case kind if kind == USER_MESSAGE and isinstance(text, str):
            if own_meta(params).keys() & {FEEDBACK, CONTEXT}:
                return _cut(f"Hook: {text}")
            return None if text.startswith("/queue") else _cut(f"User: {text}")
        case kind if kind == AGENT_MESSAGE and isinstance(text, str):
            return _cut(f"Agent: {text}")
        case kind if kind == TOOL_CALL and isinstance(update.get("title"), str):
            return _cut(f"[tool: {update['title']}]")
    return None


def _cut(line: str) -> str:
    """Return the line; of a very long one only beginning and end, to leave room for others."""
    half = _TRANSCRIPT // 8
    return line if len(line) <= 2 * half else f"{line[:half]}\n[...]\n{line[-half:]}"
