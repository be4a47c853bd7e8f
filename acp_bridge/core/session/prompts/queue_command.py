"""`/queue`: the user's word over prompts. Answered by the bridge at once, never queued.

It is also `/bridge queue`, for an agent with a `/queue` of its own (`updates.own_command`).

/queue            shows what waits, and what was left over by a bridge that ended
/queue pause      lets the turn wait when its model or tool call in flight has ended, if the agent
                  can do that
/queue hold       lets the turn end, and starts nothing more
/queue go         ends a pause or a hold
/queue wait       stays open until the turn that runs has ended, whoever asked for it, or what the
                  agent does without one (Stop reaches that)
/queue stop       stops the turn that runs, whoever asked for it, or what the agent does without one
/queue steer N    sends the words of a prompt that waits into the turn that runs, if the agent can
                  take them; else that prompt runs next
/queue title WORDS
                  gives the session a title, which stays
/queue ask WORDS  asks the agent on a copy of the session, of which nothing is left
/queue run        runs the prompts that were left over, in order; this prompt stays open
                  meanwhile (Stop reaches them)
/queue drop       forgets the prompts that were left over
/queue drop N     forgets the prompt of that number, which waits or was left over
/queue edit N WORDS
                  gives it other words, and keeps its images
/queue move N before M, /queue move N after M, /queue move N first, /queue move N last
                  changes the order in which they run
/queue memory new, /queue memory restore
                  go on without the agent's session, if the agent won't load it (R15)
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final
from uuid import uuid4

from acp_bridge.core.clients.client import ClientRequest
from acp_bridge.core.journal import JournalError
from acp_bridge.core.machine import events as ev
from acp_bridge.core.protocol import CAN_PAUSE, Json, can_ask, can_own, user_chunk, with_own_meta
from acp_bridge.core.session.core import Core
from acp_bridge.core.session.process.memory import Memory
from acp_bridge.core.session.prompts.pauses import Pauses
from acp_bridge.core.session.prompts.prompts import Prompts
from acp_bridge.core.session.transcript.transcript_out import TranscriptOut
from acp_bridge.core.updates import notices
from acp_bridge.features.queue_changes.changes import Changes

#: the words that may follow `/queue`, whatever the agent can do.
_WORDS: Final = (
    "hold",
    "go",
    "wait",
    "stop",
    "steer NUMBER",
    "run",
    "drop [NUMBER]",
    "edit NUMBER WORDS",
    "move NUMBER before NUMBER",
    "move NUMBER after NUMBER",
    "move NUMBER first",
    "move NUMBER last",
    "memory new",
    "memory restore",
    "title WORDS",
)


def offered(capabilities: object) -> tuple[str, ...]:
    """Return the words that may follow `/queue`, for an agent with these capabilities."""
    pause = ("pause",) if can_own(capabilities, CAN_PAUSE) else ()
    return (*pause, *_WORDS, *(("ask QUESTION",) if can_ask(capabilities) else ()))


def command(words: tuple[str, ...]) -> Json:
    """Return the command as clients list it."""
    return {
        "name": "queue",
        "description": (
            "Show the prompts that wait; wait for or stop the turn that runs; hold, run, edit,"
            " move or drop what waits"
        ),
        "input": {"hint": " | ".join(words)},
    }


def usage(words: tuple[str, ...]) -> str:
    """Return the answer that lists the words, for words that `/queue` doesn't know."""
    return f"Usage: {', '.join(['`/queue`', *(f'`/queue {each}`' for each in words)])}."


def _text(params: Json) -> str:
    """Return a prompt that is the command, as one that begins with `/queue`."""
    text: str = params["prompt"][0]["text"]
    return re.sub(r"^\s*/(?:acp-)?bridge\s+queue", "/queue", text).strip()


class QueueCommand:
    """Answers `/queue` in one session."""

    def __init__(
        self,
        core: Core,
        prompts: Prompts,
        transcript: TranscriptOut,
        memory: Memory,
        pauses: Pauses,
        changes: Changes,
        ask: Callable[[ClientRequest, str], None],
        set_title: Callable[[str], str],
        words: tuple[str, ...],
        *,
        can_steer: bool,
    ) -> None:
        """Nothing happens before `run`.

        `ask` answers a prompt with a question beside the session; `set_title` returns the title
        as it is kept; `words` are those on offer; `can_steer`: the agent takes words into a turn.
        """
        self._core = core
        self._memory = memory
        self._pauses = pauses
        self._changes = changes
        self._ask = ask
        self._set_title = set_title
        self._can_steer = can_steer
        self._usage = usage(words)
        self._prompts = prompts
        self._transcript = transcript

    def takes(self, words: list[str], *, agent_has_one: bool) -> bool:
        """Return False when the command is for the agent, which has one of the same name."""
        match words:
            case ["memory", *_]:
                needed = self._memory.refusal is not None
            case ["go"]:
                needed = self._pauses.said is not None
            case ["run" | "drop"]:
                needed = bool(self._prompts.left_over)
            case ["wait" | "stop"]:
                needed = self._core.now.busy or self._core.now.may_work
            case _:
                needed = False
        return needed or not agent_has_one

    def run(self, request: ClientRequest, params: Json, words: list[str]) -> None:
        """Carry out the words, and answer the prompt that they came with."""
        if words[:1] == ["ask"] and words[1:]:
            # With the white space that stands in the question.
            self._ask(request, _text(params).split(maxsplit=2)[2])
            return
        for block in params["prompt"]:
            # Its own message: it may be typed right behind the prompt of the turn that runs.
            said = {**user_chunk(block), "messageId": f"acp-bridge-{uuid4().hex[:12]}"}
            self._transcript.record_said(
                request.client, with_own_meta({"update": said}, {"command": True})
            )
        match words:
            case ["run"]:
                self._run_left_over(request, params)
                return
            case ["wait"] if unanswered := self._core.now.unanswered:
                self._prompts.wait_for(unanswered[0], request)
                return
            case ["wait"] if self._core.now.works:
                self._prompts.waits_for_work.append(request)
                return
            case (
                ["edit", _, _, *_]
                | ["move", _, "before" | "after", _]
                | ["move", _, "first" | "last"]
                | ["drop", _]
            ):
                self._changes.command(request, words, _text(params))
                return
            case _:
                self._do(words)
        done = {"stopReason": "end_turn"}
        self._transcript.then(request.client, lambda: request.answer(done))

    def _do(self, words: list[str]) -> None:
        """Carry out the words, and show the sentence that answers them."""
        match words:
            case []:
                waiting = self._prompts.numbered(self._core.now.waiting)
                left = self._prompts.numbered(self._prompts.left_over)
                self._transcript.notice(notices.queue(waiting, left, self._pauses.said))
            case ["pause" | "hold" | "go" as word]:
                self._pauses.command(word)
            case ["title", *given]:
                kept = self._set_title(" ".join(given))
                self._transcript.notice(notices.titled(kept))
            case ["ask"]:
                self._transcript.notice(notices.ASK_WHAT)
            case ["wait"]:
                self._transcript.notice(notices.NOTHING_RUNS)
            case ["stop"]:
                self._stop()
            case ["steer", *rest]:
                self._transcript.notice(self._steer(rest))
            case ["drop"]:
                self._drop()
            case ["memory", "new" | "restore" as how]:
                self._transcript.notice(self._memory.give_up(restore=how == "restore"))
                if self._memory.given_up:  # a process may have the old session
                    self._core.feed(ev.ReplaceProcess())
            case _:
                self._transcript.notice(self._usage)

    def _stop(self) -> None:
        if (running := self._core.now.foremost) is not None:
            stopped = self._prompts.get(running).params
            self._transcript.notice(notices.stopping(stopped))  # nothing follows `cancelled`
            self._core.feed(ev.Cancel())
        elif self._core.now.may_work:
            self._transcript.notice(notices.STOPPING_WORK)
            self._core.feed(ev.Cancel(frozenset()))
        else:
            self._transcript.notice(notices.NOTHING_RUNS)

    def _steer(self, words: list[str]) -> str:
        if self._core.now.running is None:
            return notices.NOTHING_RUNS
        number = words[0] if len(words) == 1 else ""
        key = self._prompts.with_number(number, self._core.now.waiting)
        if key is None:
            return notices.no_such_waiting(words, self._usage)
        prompt = self._prompts.get(key)
        if prompt.client is None:  # it was left over, or is a hook's feedback
            return notices.no_such_waiting(words, self._usage)
        prompt.delivery = "queued"
        self._core.feed(ev.SteerWaiting(key))
        return notices.steers(prompt.params["prompt"], now=self._can_steer)

    def _run_left_over(self, request: ClientRequest, params: Json) -> None:
        left = list(self._prompts.left_over)
        if not left:
            self._transcript.notice(notices.NOTHING_LEFT)
        keys = []
        for key in left:
            try:
                self._prompts.release(key)
            except JournalError:
                self._transcript.notice(notices.RUN_STOPPED)
                break
            keys.append(key)
        if keys and self._pauses.said:
            self._transcript.notice(notices.RUN_LATER)
        elif keys:
            self._transcript.notice(notices.running(len(keys)))
        carrier = self._prompts.add(params, request)
        self._core.feed(ev.RunLeftOver(carrier, tuple(keys)))

    def _drop(self) -> None:
        dropped = []
        try:
            for key in list(self._prompts.left_over):
                dropped.append(self._prompts.drop(key))
            said = notices.dropped(len(dropped))
        except JournalError:
            said = notices.DROP_STOPPED
        self._transcript.notice(said)
        for prompt in dropped:  # nothing is shown behind `cancelled`
            self._prompts.answer_dropped(prompt)
