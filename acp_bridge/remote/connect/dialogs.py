"""The questions of a remote bridge, and the editor's dialogs that they open. Sans-IO.

- A question that comes again on another connection keeps its open dialog; an answer that was given
  meanwhile, or may have been lost, is sent to it again.
- An editor that answers for all that is known of a tool call (`wholeCalls`) is asked anew if the
  call has changed: its answer to what it was shown before counts no more (invariant V9).
- A question that does not come again was settled elsewhere: its dialog is withdrawn.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from acp_bridge.core.protocol import CANCEL_REQUEST, QUESTION, as_object, own_meta, parted, without
from acp_bridge.core.wire import jsonrpc
from acp_bridge.core.wire.jsonrpc import Message, RequestId
from acp_bridge.remote.connect.kept import Dialog
from acp_bridge.remote.connect.way_out import WayOut

#: answers that are kept, to be sent again if they were lost on their way.
_ANSWERS: Final = 100


class Dialogs:
    """All questions that the editor is asked, and its answers to them."""

    def __init__(self, out: WayOut, numbers: Iterator[int]) -> None:
        """`numbers` gives the ids of the editor's dialogs, which no other requests to it have."""
        #: the editor answers for all that it was shown of a tool call.
        self.whole_calls = False
        self._out = out
        self._numbers = numbers
        #: the dialogs, by the id under which the editor is asked.
        self._open: dict[RequestId, Dialog] = {}

    def ask(self, message: Message) -> None:
        """Ask the editor a question; one that comes again keeps its dialog, or gets its answer."""
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
        """Take the editor's answer; it is sent now, or when its question comes again."""
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
        """Withdraw the dialog for the question that has the id `asked_as` at the server."""
        for id, dialog in list(self._open.items()):
            here = dialog.line == self._out.line and dialog.answer is None
            if here and type(dialog.asked_as) is type(asked_as) and dialog.asked_as == asked_as:
                self._call_back(id, dialog)

    def line_down(self, kept: set[str]) -> None:
        """Withdraw the dialogs of questions that can't come again.

        `kept`: the ids of the sessions that will be opened again.
        """
        for id, dialog in list(self._open.items()):
            if dialog.question is None or dialog.session_id not in kept:
                self._withdraw(id, dialog)

    def leave(self, session_id: str) -> None:
        """Withdraw all dialogs of a session that moves to another bridge."""
        for id, dialog in list(self._open.items()):
            if dialog.session_id == session_id:
                self._withdraw(id, dialog)

    def waits_for_word(self, session_id: str) -> bool:
        """Return True if questions of a session have not come again on this connection yet."""
        return any(self._stale(each, session_id) for each in self._open.values())

    def settle(self, session_id: str) -> None:
        """Withdraw a session's dialogs whose questions have not come again: they are settled."""
        for id, dialog in list(self._open.items()):
            if self._stale(dialog, session_id):
                self._withdraw(id, dialog)

    def _stale(self, dialog: Dialog, session_id: str) -> bool:
        return dialog.session_id == session_id and dialog.line != self._out.line

    def _withdraw(self, id: RequestId, dialog: Dialog) -> None:
        if dialog.answer is not None:
            del self._open[id]
        else:
            dialog.line = 0  # its answer goes nowhere
            self._call_back(id, dialog)

    def _call_back(self, id: RequestId, dialog: Dialog) -> None:
        if not dialog.called_back:
            dialog.called_back = True
            self._out.to_editor(jsonrpc.notification(CANCEL_REQUEST, {"requestId": id}))


def _said(params: Any) -> Any:
    return without(as_object(params), "_meta")
