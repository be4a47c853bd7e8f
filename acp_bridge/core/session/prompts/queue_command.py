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
/queue run        runs the prompts that were left over, in order; this prompt stays open
                  meanwhile (Stop reaches them)
/queue drop       forgets the prompts that were left over
/queue memory new, /queue memory restore
                  go on without the agent's session, if the agent won't load it (R15)

Features add words of their own (`feature.Feature.words`).
"""

from __future__ import annotations

from typing import Final

from acp_bridge.core.clients.client import ClientRequest
from acp_bridge.core.journal import JournalError
from acp_bridge.core.machine import events as ev
from acp_bridge.core.protocol import CAN_PAUSE, Json, can_own
from acp_bridge.core.session.core import Core
from acp_bridge.core.session.feature import Command, Features
from acp_bridge.core.session.process.memory import Memory
from acp_bridge.core.session.prompts.pauses import Pauses
from acp_bridge.core.session.prompts.prompts import Prompts
from acp_bridge.core.session.transcript.transcript_out import TranscriptOut
from acp_bridge.core.updates import notices

#: the words that may follow `/queue`, whatever the agent can do.
_WORDS: Final = (
    "hold",
    "go",
    "wait",
    "stop",
    "run",
    "drop",
    "memory new",
    "memory restore",
)


def offered(capabilities: object) -> tuple[str, ...]:
    """Return the words of core that may follow `/queue`, for an agent with these capabilities."""
    return (*(("pause",) if can_own(capabilities, CAN_PAUSE) else ()), *_WORDS)


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


class QueueCommand:
    """Answers `/queue` in one session."""

    def __init__(
        self,
        core: Core,
        prompts: Prompts,
        transcript: TranscriptOut,
        memory: Memory,
        pauses: Pauses,
        features: Features,
        words: tuple[str, ...],
    ) -> None:
        """Nothing happens before `run`. `words` are those on offer."""
        self._core = core
        self._memory = memory
        self._pauses = pauses
        self._features = features
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
        command = Command(request, params, words, self._usage, self._transcript)
        if self._features.take_command(command):
            return
        command.show()
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
            case _:
                self._do(words)
        command.end()

    def _do(self, words: list[str]) -> None:
        """Carry out the words, and show the sentence that answers them."""
        match words:
            case []:
                waiting = self._prompts.numbered(self._core.now.waiting)
                left = self._prompts.numbered(self._prompts.left_over)
                self._transcript.notice(notices.queue(waiting, left, self._pauses.said))
            case ["pause" | "hold" | "go" as word]:
                self._pauses.command(word)
            case ["wait"]:
                self._transcript.notice(notices.NOTHING_RUNS)
            case ["stop"]:
                self._stop()
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
