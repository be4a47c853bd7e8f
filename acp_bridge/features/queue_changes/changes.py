"""The user's changes of prompts that wait: other words, another place, or never.

- One change at a time, in the order of asking. It is on disk before it is answered; until then the
  machine sends nothing, so neither the old words nor the old order run. (invariant Q16)
- If the journal can't take it, words and order stay as they were, and who asked is told.
- What is left over is changed in the same way, among its own kind: it may be run meanwhile.
- A drop is written first, and acts before it is synced; if that fails, who asked is told.
- A prompt of another client may be changed, and that client is told.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final, TypeAlias

import anyio

from acp_bridge.core import errors
from acp_bridge.core.clients.client import Client, ClientRequest
from acp_bridge.core.journal import JournalError
from acp_bridge.core.machine import events as ev
from acp_bridge.core.machine.effects import RefuseChange, WriteChange
from acp_bridge.core.protocol import (
    QUEUE_CHANGES,
    QUEUE_DROP,
    QUEUE_EDIT,
    QUEUE_LIST,
    Json,
    add_own_methods,
    as_unread,
    is_feedback,
)
from acp_bridge.core.session.feature import Command, Feature, Parts, Plugin
from acp_bridge.core.session.prompts.prompts import Prompt
from acp_bridge.core.settings import Settings
from acp_bridge.core.updates.notices import beginning, notice
from acp_bridge.core.updates.wording import words
from acp_bridge.core.wire.jsonrpc import RpcError

_BEGUN: Final = "this prompt has begun or has ended"
_KEEPS_PLACE: Final = "one of the two prompts keeps its place: it has begun, or is about to"
_FEEDBACK: Final = "a hook's feedback keeps its words and its place"
_ENDS: Final = "the session is being closed"
_APART: Final = "these are not two prompts that wait, or two that are left over"
_NOT_WRITTEN: Final = "the journal can't be written: words and order of the queue stay as they were"
_Asked: TypeAlias = ev.EditWaiting | ev.MoveWaiting | ev.DropWaiting | ev.ChangeLeftOver


class Changes(Feature):
    """Carries the user's changes of waiting prompts to machine and journal."""

    words = (
        "drop NUMBER",
        "edit NUMBER WORDS",
        "move NUMBER before NUMBER",
        "move NUMBER after NUMBER",
        "move NUMBER first",
        "move NUMBER last",
    )

    def __init__(self, session: Parts) -> None:
        """No change is asked for yet."""
        self._core = session.core
        self._journal = session.journal
        self._transcript = session.transcript
        self._prompts = session.prompts
        self._tell_queue = session.tell_queue
        self.answers = dict.fromkeys((QUEUE_LIST, *QUEUE_CHANGES), self._answer)
        self.effects = dict.fromkeys((WriteChange, RefuseChange), self._note)
        self._one_at_a_time = anyio.Lock()
        #: the machine's word about the change that is asked for now.
        self._said: WriteChange | RefuseChange | None = None

    def _note(self, said: WriteChange | RefuseChange) -> None:
        """Keep the machine's answer to the change that is asked for."""
        self._said = said

    # --- asked by method -----------------------------------------------------------------------

    async def _answer(self, request: ClientRequest, params: Json) -> Json:
        """Return the result of one of the `_acp_bridge/queue` methods; raises RpcError."""
        if request.method == QUEUE_LIST:
            return {"prompts": self._prompts.listed()}
        key = self._key(params, "promptId")
        before = None if params.get("before") is None else self._key(params, "before")
        prompt = self._prompts.get(key)
        others = self._prompts.senders_but(prompt, request.client)
        number = prompt.seq
        if request.method == QUEUE_EDIT:
            blocks = await self.edit(key, lambda _: params["prompt"])
            how = edited(number, blocks)
        elif request.method == QUEUE_DROP:
            if not await self.drop(key, request.client):
                raise errors.agent_trouble(dropped_unsynced(number))
            return {}
        else:
            await self.move(key, before)
            how = moved(number)
            # The others have the new order already, after each key.
            others = [each for each in others if not each.abilities.hears_queue]
        for each in others:
            self._transcript.show_to(each, notice(changed_by_other(how)))
        return {}

    def _key(self, params: Json, name: str) -> int:
        wanted = params.get(name)
        if not isinstance(wanted, str):
            raise errors.invalid("must be the id of a prompt", name)
        found = (key for key in self._prompts.unsent if self._prompts.get(key).prompt_id == wanted)
        key = next(found, None)
        if key is None:
            raise errors.refused(f"{name}: no prompt of this id waits: it has begun or has ended")
        return key

    # --- asked in words ------------------------------------------------------------------------

    def take_command(self, command: Command) -> bool:
        """Carry out `/queue edit`, `/queue move` or `/queue drop NUMBER` and answer it, in a task.

        The words name a prompt that waits or is left over.
        """
        match command.words:
            case (
                ["edit", _, _, *_]
                | ["move", _, "before" | "after", _]
                | ["move", _, "first" | "last"]
                | ["drop", _]
            ):
                command.show()
                self._core.spawn(self._command, command)
                return True
        return False

    async def _command(self, command: Command) -> None:
        request = command.request
        try:
            said = await self._carry_out(request, command.words, command.text)
        except RpcError as error:
            said = not_changed(error.message)
        except Exception as exc:  # whatever breaks, the prompt is answered (invariant Q9)
            request.fail(errors.internal(exc))
            return
        self._transcript.end_quiet(request.client)  # its own prompt may have been dropped
        command.end(said)

    async def _carry_out(self, request: ClientRequest, words: list[str], text: str) -> str:
        key = self._prompts.with_number(words[1], self._prompts.unsent)
        if key is None:
            raise errors.refused(no_such_prompt(words[1]))
        prompt = self._prompts.get(key)
        match words:
            case ["drop", _]:
                synced = await self.drop(key, request.client)
                said = dropped_one if synced else dropped_unsynced
                return said(prompt.seq)
            case ["edit", *_]:
                given = text.strip().split(maxsplit=3)[3]
                blocks = await self.edit(key, lambda prompt: _with_words(prompt, given))
                return edited(prompt.seq, blocks)
            case [_, _, "before" | "after" as where, number]:
                other = self._prompts.with_number(number, self._prompts.unsent)
                if other is None:
                    raise errors.refused(no_such_prompt(number))
                if where == "before":
                    await self.move(key, other)
                else:
                    await self.move(key, after=other)
            case [_, _, "first"]:
                await self.move(key, first=True)
            case _:
                await self.move(key)
        return moved(prompt.seq)

    # --- one change ----------------------------------------------------------------------------

    async def edit(self, key: int, words: Callable[[list[Any]], list[Any]]) -> list[Any]:
        """Give a prompt other words, on disk on return; raises RpcError if that can't be done.

        `words` gets the prompt's blocks and returns the new ones, which this returns, too.
        """
        async with self._one_at_a_time:
            prompt = self._get(key)
            was = prompt.params, prompt.added, prompt.edited, prompt.seen, prompt.shown
            left_over = key in self._prompts.left_over
            if left_over and is_feedback(prompt.params):
                raise errors.refused(_FEEDBACK)
            blocks = words(prompt.params["prompt"])
            new = as_unread({**prompt.params, "prompt": blocks})

            def write(_order: tuple[int, ...]) -> None:
                self._journal.edit(prompt.seq, new)
                prompt.params, prompt.added, prompt.edited = new, [], True
                prompt.seen, prompt.shown = {}, False

            def undo() -> None:
                prompt.params, prompt.added, prompt.edited, prompt.seen, prompt.shown = was
                if now := self._prompts.find(key):  # a copy, if it was left over meanwhile
                    now.params = prompt.params
                self._journal.change_params(prompt.seq, prompt.params)

            event = ev.ChangeLeftOver(key) if left_over else ev.EditWaiting(key)
            await self._make(event, write, undo, _BEGUN)
            if was[-1]:  # the words stand in a transcript that is another one now
                self._transcript.places.lose()
        return blocks

    def _behind(self, other: int, moved: int) -> int | None:
        """Return the prompt that follows `other` if `moved` is left out; None: none does.

        Raises RpcError if the two are not of one kind.
        """
        left = other in self._prompts.left_over
        kind = list(self._prompts.left_over if left else self._core.now.waiting)
        if other == moved or other not in kind or moved not in kind:
            raise errors.refused(_APART)
        rest = [each for each in kind if each != moved]
        return next(iter(rest[rest.index(other) + 1 :]), None)

    def _first_left(self, moved: int) -> int | None:
        """Return the first prompt left over, but `moved`, that can be moved, or None."""
        left = (each for each in self._prompts.left_over if each != moved)
        movable = (each for each in left if not is_feedback(self._prompts.get(each).params))
        return next(movable, None)

    async def move(
        self,
        key: int,
        before: int | None = None,
        *,
        after: int | None = None,
        first: bool = False,
    ) -> None:
        """Let a prompt run before or after another one, or last of its kind, on disk on return.

        `first`: in the first place of its kind that it can take. Raises RpcError if that can't be
        done.
        """
        async with self._one_at_a_time:
            left = list(self._prompts.left_over)
            if after is not None:
                before = self._behind(after, key)
            elif first and key in left:
                before = self._first_left(key)
            if key == before or (before is not None and (key in left) != (before in left)):
                raise errors.refused(_APART)
            both = {key, before or key} & {*left}
            if any(is_feedback(self._prompts.get(each).params) for each in both):
                raise errors.refused(_FEEDBACK)
            here, old = [each for each in left if each != key], list[int]()
            if key in left:
                here.insert(len(here) if before is None else here.index(before), key)

            def write(order: tuple[int, ...]) -> None:
                old[:] = self._journal.order
                moved = iter(order)
                waiting = [
                    next(moved) if each in order else each for each in self._core.now.waiting
                ]
                # All of them: those that can't be moved have a place in the order, too.
                self._journal.reorder([seq for seq, _ in self._prompts.numbered([*here, *waiting])])
                self._prompts.reorder_left_over(here)

            def undo() -> None:
                self._prompts.reorder_left_over(left)
                self._journal.put_back_order(old)

            event = ev.ChangeLeftOver(key) if key in left else ev.MoveWaiting(key, before, first)
            await self._make(event, write, undo, _KEEPS_PLACE)

    async def drop(self, key: int, by: Client) -> bool:
        """Drop a prompt for the client `by`; returns False if that is written, but not synced.

        Raises RpcError if it has begun, or if nothing can be written.
        """
        async with self._one_at_a_time:
            prompt = self._get(key)
            waits, ends = key in self._core.now.waiting, self._core.now.ending
            if ends or not (waits or key in self._prompts.left_over):
                raise errors.refused(_ENDS if ends else _BEGUN)
            try:
                self._prompts.drop(key)
            except JournalError as exc:
                raise errors.agent_trouble(_NOT_WRITTEN) from exc
            how = changed_by_other(dropped_one(prompt.seq))
            for each in self._prompts.senders_but(prompt, by):
                # nothing is shown behind `cancelled`
                self._transcript.show_to(each, notice(how))
            if waits:
                self._feed(ev.DropWaiting(key), _BEGUN)
            else:
                self._prompts.answer_dropped(prompt)
            self._tell_queue()
            return await self._synced()

    async def _make(
        self,
        event: _Asked,
        write: Callable[[tuple[int, ...]], None],
        undo: Callable[[], None],
        refusal: str,
    ) -> None:
        """Ask the machine for a change, then `write` and sync it, or `undo` it, while that waits.

        Raises RpcError: with the words `refusal` if the machine refuses the change.
        """
        order, made = self._feed(event, refusal), False
        try:
            write(order)
            made = await self._synced()
            if not made:
                undo()
        except JournalError:
            made = False
        finally:
            self._core.feed(ev.ChangeWritten(made))
            self._tell_queue()
        if not made:
            raise errors.agent_trouble(_NOT_WRITTEN)

    async def _synced(self) -> bool:
        """Sync the journal; returns True when all is on disk, False if that fails."""
        with anyio.CancelScope(shield=True):
            try:
                await self._journal.sync()
            except JournalError:
                return False
        return True

    def _feed(self, event: _Asked, refusal: str) -> tuple[int, ...]:
        """Ask the machine for a change; returns the new order, if it has one. Raises RpcError."""
        self._said = None
        self._core.feed(event)
        if isinstance(self._said, RefuseChange):
            raise errors.refused(_ENDS if self._core.now.ending else refusal)
        return self._said.order if self._said else ()

    def _get(self, key: int) -> Prompt:
        prompt = self._prompts.find(key)
        if prompt is None:
            raise errors.refused(_ENDS if self._core.now.ending else _BEGUN)
        return prompt


def _with_words(prompt: list[Any], text: str) -> list[Any]:
    """Return a prompt's blocks with one text in the place of all its texts."""
    said = {"type": "text", "text": text}
    texts = [at for at, block in enumerate(prompt) if block.get("type") == "text"]
    rest = [said if at in texts[:1] else block for at, block in enumerate(prompt)]
    kept = [block for block in rest if block is said or block.get("type") != "text"]
    return kept if texts else [said, *kept]


def made_for(session: Parts, settings: Settings) -> Sequence[Feature]:
    """Return what changes the waiting prompts of a session."""
    return [Changes(session)]


def announce(agent: Json, told: Json) -> None:
    """Add to the answer to `initialize` that prompts that wait can be changed."""
    add_own_methods(told, QUEUE_LIST, *QUEUE_CHANGES)


PLUGIN: Final = Plugin(made_for, announce=announce)


# --- the sentences --------------------------------------------------------------------------------


def dropped_one(number: int) -> str:
    """Return the answer to a drop of one prompt."""
    return f"Dropped prompt {number}."


def dropped_unsynced(number: int) -> str:
    """Return the answer to a drop of one prompt that the disk has not taken."""
    return (
        f"Dropped prompt {number}, but the disk has not taken that: after a loss of power it may"
        " be left over."
    )


def edited(number: int, prompt: list[Any]) -> str:
    """Return the answer to an edit of a prompt, with its words from now on."""
    return f"Prompt {number} is now: {beginning(prompt)}"


def moved(number: int) -> str:
    """Return the answer to a move of a prompt."""
    return f"Moved prompt {number}. `/queue` shows the order."


def not_changed(why: str) -> str:
    """Return the answer to a change of a prompt that was not made."""
    return f"Nothing is changed: {words(why)}."


def changed_by_other(how: str) -> str:
    """Return the notice, to who sent a prompt, of a change that another client has made."""
    return f"[acp-bridge] Another client has changed your prompt. {how}"


def no_such_prompt(number: str) -> str:
    """Return why a number names no prompt that waits or is left over."""
    return f"no prompt {words(number, 80)} waits: it has begun or has ended, or never was"
