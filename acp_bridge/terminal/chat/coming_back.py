"""How a chat comes back to its session on another connection: as whom, and from which place on.

No I/O. Words that stand on the terminal are not shown again: the bridge shows a session from the
last cursor on, and the words of this terminal's prompts, which that may include, are known here.
"""

from __future__ import annotations

from typing import Final

from acp_bridge.core import protocol as acp
from acp_bridge.core.protocol import Json, own_meta
from acp_bridge.terminal.chat.own_prompts import OwnPrompts
from acp_bridge.terminal.chat.prompts import Prompt

#: connections in a row that end without a word of the session.
_TRIES: Final = 5


class ComingBack:
    """What a chat knows, and has shown, so that it can go on over another connection."""

    def __init__(self, name: str | None, own: OwnPrompts) -> None:
        """`name`: the client's, the same on each connection; None: there is one connection only."""
        self.name = name
        #: the cursor behind all updates that were read; None if the bridge tells no cursors.
        self.cursor: str | None = None
        self._own = own
        self._tries = 0
        #: the ids of answered prompts of this terminal whose words are shown.
        self._ended: set[object] = set()
        #: the ids of prompts whose words the bridge has shown.
        self._told: set[object] = set()
        #: the ids of the questions that are printed.
        self._asked: set[object] = set()

    @property
    def abilities(self) -> Json:
        """What the bridge is told in `_meta.acp_bridge`, so that this client can come back."""
        return {acp.CLIENT_NAME: self.name, acp.TAKES_CURSORS: True} if self.name else {}

    def may_try(self) -> bool:
        """Count one more attempt to connect; return True if it may be made."""
        self._tries += 1
        return self.name is not None and self._tries <= _TRIES

    def forget(self) -> None:
        """Forget what is shown: the session is shown anew, from its beginning."""
        self.cursor = None
        self._ended.clear()
        self._told.clear()
        for prompt in self._own.unanswered:
            prompt.shown = False

    def note_opened(self, result: Json) -> None:
        """Note the cursor in the answer that ends a replay, unless an update told a later one."""
        if self.cursor is None:
            self._note_cursor(result)

    def _note_cursor(self, holder: Json) -> None:
        if isinstance(cursor := own_meta(holder).get(acp.CURSOR), str):
            self.cursor, self._tries = cursor, 0

    def shows(self, params: Json) -> bool:
        """Note an update that was read; False if it has a prompt's words that are shown already."""
        self._note_cursor(params)
        prompt_id = own_meta(params).get(acp.PROMPT_ID)
        words = acp.kind_of(params) == acp.USER_MESSAGE and isinstance(prompt_id, str)
        if not words or prompt_id in self._told:
            return True
        prompt = self._own.with_id(prompt_id) or self._own.unnamed(params["update"].get("content"))
        if prompt_id in self._ended or (prompt and prompt.shown):
            return False
        self._told.add(prompt_id)
        if prompt:
            prompt.prompt_id, prompt.shown = prompt_id, True
        return True

    def note_answered(self, prompt: Prompt) -> None:
        """Note that a prompt of this terminal was answered."""
        if prompt.shown and prompt.prompt_id is not None:
            self._ended.add(prompt.prompt_id)

    def prints(self, question_id: object) -> bool:
        """Return True if a question is to be printed: for the first time, or since it has no id."""
        if question_id in self._asked:
            return False
        if question_id is not None:
            self._asked.add(question_id)
        return True
