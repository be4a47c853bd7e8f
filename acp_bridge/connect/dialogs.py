"""The questions of the other end, and the dialogs in which the editor asks them. Sans-IO.

- A question that is asked again on another connection is the dialog that is open; an answer that
  was given meanwhile, or may have been lost, goes to that very question.
- An editor that answers for all that is known of a call (`wholeCalls`) is asked anew if that is
  something else now: its answer to what it was shown before counts no more (invariant V9).
- One that is not asked again was settled elsewhere: its dialog is withdrawn.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from acp_bridge.connect.kept import Dialog
from acp_bridge.connect.way_out import WayOut
from acp_bridge.protocol import CANCEL_REQUEST, QUESTION, as_object, own_meta, parted
from acp_bridge.wire import jsonrpc
from acp_bridge.wire.jsonrpc import Message, RequestId

#: answers that are kept, lest they are lost on their way.
_ANSWERS: Final = 100


class Dialogs:
    """All that the editor is asked."""

    def __init__(self, out: WayOut, numbers: Iterator[int]) -> None:
        """Nothing is asked yet; `numbers`: ids that nobody else has who asks this editor."""
        #: the editor answers for what it was shown of a call.
        self.whole_calls = False
        self._out = out
        self._numbers = numbers
        #: by the id under which the editor is asked.
        self._open: dict[RequestId, Dialog] = {}

    def ask(self, message: Message) -> None:
        """Ask the editor, or take its answer to the same question."""
        params = message.get("params")
        named = as_object(params)
        question = own_meta(named).get(QUESTION)
        for id, dialog in list(self._open.items()):
            same = question is not None and dialog.question == question
            if not same or dialog.called_back or dialog.message["method"] != message["method"]:
                continue
            if dialog.line != self._out.line and self._is_as_shown(dialog, params):
                dialog.line, dialog.asked_as = self._out.line, message["id"]
                if dialog.answer is not None:
                    self._answer(dialog)
                return
            self._withdraw(id, dialog)
        id = next(self._numbers)
        of = named.get("sessionId")
        above = parted(of)[0] or (of if isinstance(of, str) else "")
        line = self._out.line
        self._open[id] = Dialog(message, params, above, question, line, message["id"])
        self._out.to_editor({**message, "id": id})

    def _is_as_shown(self, dialog: Dialog, params: Any) -> bool:
        return not self.whole_calls or _said(dialog.params) == _said(params)

    def take_answer(self, message: Message) -> None:
        """Pass an answer of the editor's on, now or when the question is asked again."""
        dialog = self._open.get(message.get("id"))
        if dialog is None or dialog.answer is not None:
            return
        here = dialog.line == self._out.line and self._out.up
        dialog.answer = message
        if here:
            self._answer(dialog)
        if dialog.called_back or dialog.question is None:
            del self._open[message["id"]]
        answered = [id for id, each in self._open.items() if each.answer is not None]
        for id in answered[:-_ANSWERS]:
            del self._open[id]

    def _answer(self, dialog: Dialog) -> None:
        if dialog.answer is not None:
            self._out.to_server({**dialog.answer, "id": dialog.asked_as})

    def call_back(self, asked_as: object) -> None:
        """Tell the editor that nobody waits for an answer any more."""
        for id, dialog in list(self._open.items()):
            here = dialog.line == self._out.line and dialog.answer is None
            if here and type(dialog.asked_as) is type(asked_as) and dialog.asked_as == asked_as:
                self._call_back(id, dialog)

    def line_down(self, kept: set[str]) -> None:
        """Withdraw what can't be asked again; `kept`: the sessions that will be opened again."""
        for id, dialog in list(self._open.items()):
            if dialog.question is None or dialog.session_id not in kept:
                self._withdraw(id, dialog)

    def leave(self, session_id: str) -> None:
        """Withdraw all questions of a session: it goes to another place."""
        for id, dialog in list(self._open.items()):
            if dialog.session_id == session_id:
                self._withdraw(id, dialog)

    def waits_for_word(self, session_id: str) -> bool:
        """Return True if questions of a session were not asked again on this connection."""
        return any(self._stale(each, session_id) for each in self._open.values())

    def settle(self, session_id: str) -> None:
        """Withdraw the questions of a session that were not asked again: they are settled."""
        for id, dialog in list(self._open.items()):
            if self._stale(dialog, session_id):
                self._withdraw(id, dialog)

    def _stale(self, dialog: Dialog, session_id: str) -> bool:
        return dialog.session_id == session_id and dialog.line != self._out.line

    def _withdraw(self, id: RequestId, dialog: Dialog) -> None:
        if dialog.answer is not None:
            del self._open[id]
        else:
            dialog.line = 0  # its answer is for nobody
            self._call_back(id, dialog)

    def _call_back(self, id: RequestId, dialog: Dialog) -> None:
        if not dialog.called_back:
            dialog.called_back = True
            self._out.to_editor(jsonrpc.notification(CANCEL_REQUEST, {"requestId": id}))


def _said(params: Any) -> Any:
    return {name: value for name, value in as_object(params).items() if name != "_meta"}
