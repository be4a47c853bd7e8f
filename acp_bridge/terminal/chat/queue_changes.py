"""Asks the bridge to edit, move or drop prompts that wait, one change after the other.

Invariants:
- A change names its prompt by the bridge's id: what has begun meanwhile is refused, and said.
- The next change is thought out when the one before is answered, on what the bridge told last.
- Words that were edited are never lost: what is refused comes back into the input line.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, Protocol

from acp_bridge.core import protocol as acp
from acp_bridge.core.protocol import Json, as_object, objects
from acp_bridge.core.wire.jsonrpc import RpcError
from acp_bridge.sharing.bridge_client.sent import ConnectionLost, Sent
from acp_bridge.terminal.chat.mentions import blocks_of, text_of
from acp_bridge.terminal.chat.own_prompts import OwnPrompts
from acp_bridge.terminal.chat.queue_shown import Edit, QueueShown
from acp_bridge.terminal.view.block_text import harmless
from acp_bridge.terminal.view.blocks import Tone
from acp_bridge.terminal.view.queue_rows import Row


class Say(Protocol):
    """Prints a line."""

    def __call__(self, text: str, tone: Tone = Tone.NEWS) -> None:
        """Print a line of this program's own."""


#: Sends a request about the session; returns None if there is no connection any more.
Request = Callable[[str, Json], Sent | None]


class QueueChanges:
    """Sends the user's changes of the waiting prompts to the bridge, one after the other."""

    def __init__(
        self, queue: QueueShown, own: OwnPrompts, folder: Path, request: Request, say: Say
    ) -> None:
        """`own`: this terminal's prompts; `folder`: where mentioned files are looked for."""
        self._queue, self._own, self._folder = queue, own, folder
        self._request, self._say = request, say
        #: the changes that wait for the answer to the one before.
        self._next: deque[Callable[[], bool]] = deque()
        self._busy = False

    # -- what a person does

    def move(self, by: int) -> None:
        """Move the chosen prompt one place down, or up if `by` is -1."""
        if (row := self._queue.chosen) is not None:
            self._then(partial(self._move, row.prompt_id, by))

    def drop(self) -> None:
        """Drop the chosen prompt from the queue: it never runs."""
        if (row := self._queue.chosen) is not None:
            self._then(partial(self._drop, row))

    def edit(self, put: Callable[[str], None]) -> None:
        """Fetch the chosen prompt's words for `put`, unless the user leaves the list meanwhile."""
        if (row := self._queue.chosen) is not None:
            self._then(partial(self._ask, lambda listed: self._edit(row, put, listed)))

    def save(self, text: str, put: Callable[[str], None]) -> None:
        """Send `text` as the edited prompt's words; `put` gets it back if the bridge refuses it."""
        edit, self._queue.editing = self._queue.editing, None
        if edit is not None:
            blocks = [*edit.before, *blocks_of(text, self._folder), *edit.after]
            self._then(partial(self._save, edit.row, blocks, lambda: put(text)))

    def refresh(self) -> None:
        """Ask the bridge for the words of this terminal's prompts: somebody has changed some."""
        self._then(partial(self._ask, self._note_words))

    # -- the changes, each of which returns False if there is nothing to ask for

    def _move(self, prompt_id: object, by: int) -> bool:
        params = self._queue.moved(prompt_id, by)
        return params is not None and self._send(acp.QUEUE_MOVE, params)

    def _drop(self, row: Row) -> bool:
        own = self._own.with_id(row.prompt_id)

        def done(_: Json) -> None:
            if own is None:  # an own prompt has an answer, which says it where needed
                self._say(f"dropped: {row.text}")

        def refused() -> None:
            if own is not None:
                own.taken_back = False

        sends = self._send(acp.QUEUE_DROP, {"promptId": row.prompt_id}, done, refused)
        if own is not None and sends:
            own.taken_back = True
            self._queue.settle()
        return sends

    def _ask(self, then: Callable[[list[Json]], None]) -> bool:
        return self._send(acp.QUEUE_LIST, {}, lambda result: then(objects(result.get("prompts"))))

    def _edit(self, row: Row, put: Callable[[str], None], listed: list[Json]) -> None:
        blocks = _words_of(row.prompt_id, listed)
        if self._queue.chosen is None:
            return
        self._queue.leave()
        if blocks is None:
            self._say("nothing is changed: this prompt has begun or has ended", Tone.ERROR)
            return
        text, before, after = text_of(blocks, self._folder)
        self._queue.editing = Edit(row, tuple(before), tuple(after))
        put(text)

    def _save(self, row: Row, blocks: list[Json], refused: Callable[[], None]) -> bool:
        def done(_: Json) -> None:
            self._note_words([{"promptId": row.prompt_id, "prompt": blocks}])

        return self._send(
            acp.QUEUE_EDIT, {"promptId": row.prompt_id, "prompt": blocks}, done, refused
        )

    def _note_words(self, listed: list[Json]) -> None:
        """Note the words in `listed` as those of this terminal's prompts: Up brings them back."""
        for prompt in self._own.unanswered:
            if (blocks := _words_of(prompt.prompt_id, listed)) is not None:
                prompt.blocks, prompt.text = blocks, text_of(blocks, self._folder)[0]

    # -- one request

    def _then(self, change: Callable[[], bool]) -> None:
        self._next.append(change)
        self._go_on()

    def _go_on(self) -> None:
        while self._next and not self._busy:
            self._busy = self._next.popleft()()

    def _send(
        self,
        method: str,
        params: Json,
        done: Callable[[Json], None] = lambda _: None,
        refused: Callable[[], None] = lambda: None,
    ) -> bool:
        sent = self._request(method, params)
        if sent is not None:
            sent.when_answered(lambda: self._answered(sent, done, refused))
        return sent is not None

    def _answered(
        self, sent: Sent, done: Callable[[Json], None], refused: Callable[[], None]
    ) -> None:
        self._busy = False
        try:
            result: Any = sent.outcome()
        except RpcError as error:
            self._say(f"nothing is changed: {harmless(error.message)}", Tone.ERROR)
            refused()
        except ConnectionLost:
            pass  # the chat ends, and says so
        else:
            done(as_object(result))
        self._go_on()


def _words_of(prompt_id: object, listed: list[Json]) -> list[Json] | None:
    found = (each for each in listed if prompt_id and each.get("promptId") == prompt_id)
    prompt = next(found, None)
    return None if prompt is None else objects(prompt.get("prompt"))
