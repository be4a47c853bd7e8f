"""Begins a turn at the agent, and cancels it, as the machine has decided.

A prompt must not be sent to the agent before the journal has noted that it is: without the note it
could be run once more after a kill (invariant Q5). Where the journal makes its writes at once no
prompt has to wait.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Final

from acp_bridge.core.agents.link import Link
from acp_bridge.core.agents.requests import Question
from acp_bridge.core.journal import DatabaseAway, JournalError, SessionJournal, told
from acp_bridge.core.machine import effects as ef
from acp_bridge.core.machine import events as ev
from acp_bridge.core.machine.effects import Failed, Failure, Outcome, Refused, Replied
from acp_bridge.core.protocol import (
    CONTEXT,
    SESSION_CANCEL,
    SESSION_PROMPT,
    SPARES,
    ErrorCode,
    Json,
    as_object,
    is_feedback,
    of_prompt,
    user_chunk,
    with_own_meta,
    without_own_meta,
    words_of,
)
from acp_bridge.core.runtime.log import event
from acp_bridge.core.session.core import Core
from acp_bridge.core.session.feature import Features
from acp_bridge.core.session.process.memory import Memory
from acp_bridge.core.session.process.work import Background
from acp_bridge.core.session.prompts import answers
from acp_bridge.core.session.prompts.prompts import Prompt, Prompts
from acp_bridge.core.session.transcript.transcript_out import TranscriptOut
from acp_bridge.core.updates import agent_trouble, notices
from acp_bridge.core.updates.odd_answers import end_of_turn
from acp_bridge.core.updates.updates import Updates
from acp_bridge.core.wire.jsonrpc import Answer, Err, Ok

#: internal errors in a row, after a cancel, for which a process is replaced.
_FAILURES: Final = 2


class Unsent:
    """One prompt whose note is on its way into the journal; it is sent when the note is made."""

    def __init__(
        self, journal: SessionJournal, key: int, refused: Callable[[int, JournalError], None]
    ) -> None:
        """The note is the last write; `refused` is called if the journal does not take it."""
        self.key = key
        #: its note is on its way.
        self.waits = True
        #: it was stopped meanwhile.
        self.stopped = False
        self._refused = refused
        self._send: Callable[[], object] | None = None
        journal.then(self._noted)

    def send(self, send: Callable[[], object]) -> None:
        """Have `send` called once the note is made."""
        self._send = send

    def _noted(self, error: JournalError | None) -> None:
        self.waits = False
        if error:
            self._refused(self.key, error)
        elif self._send:
            self._send()


class Turn:
    """Sends prompts and cancels of one session to its agent."""

    def __init__(
        self,
        core: Core,
        journal: SessionJournal,
        transcript: TranscriptOut,
        updates: Updates,
        prompts: Prompts,
        memory: Memory,
        features: Features,
        background: Background,
    ) -> None:
        """No turn runs yet."""
        #: the prompt of the turn, if it had to wait for the journal's note.
        self._unsent: Unsent | None = None
        #: the process that was sent a cancel and has ended no turn well since, or 0; and how often
        #: it has answered with an internal error since.
        self._cancelled_in = self._failures = 0
        self._background = background
        self._features = features
        self._core = core
        self._journal = journal
        self._transcript = transcript
        self._updates = updates
        self._prompts = prompts
        self._memory = memory

    def begin(self, link: Link, key: int) -> None:
        """Send the prompt with this key; its answer becomes `AgentAnswered`."""
        prompt = self._prompts.get(key)
        self._transcript.begin_turn(prompt.seq)
        try:
            stand = prompt.shown or self._prompts.words_stand(prompt)
            self._journal.start_turn(prompt.seq, shown=stand)
        except JournalError as exc:
            self._not_noted(key, exc)
            return
        unsent = self._unsent = self._late_start(key)
        self._show_words(prompt)
        if unsent is None:
            self._send(link, key)
        else:
            unsent.send(partial(self._send_late, link, unsent))

    def _send(self, link: Link, key: int) -> None:
        """Send a prompt that is noted as sent, and whose words are shown."""
        prompt = self._prompts.get(key)
        session_id = self._journal.info.session_id
        blocks = prompt.params["prompt"]
        carried = self._memory.take_transcript(blocks)
        added = self._added(prompt, key)
        sent = [carried, *blocks, *added] if carried else [*blocks, *added]
        self._updates.new_turn(key, sent)
        self._show_beside(prompt, added)
        self._features.begin_turn(link, prompt.seq)
        event("turn.started", session=session_id, turn=prompt.seq, agent=link.name)
        if carried:
            self._transcript.notice(notices.memory_sent(len(carried["text"])))
        given = {"prompt": sent, "sessionId": link.agent_session_id}
        params = {**without_own_meta(prompt.params), **given}
        epoch = link.epoch

        def answered(answer: Answer) -> None:
            if not link.gone:
                answer = self._features.take_answer(link, key, answer)
                answer = self._end_of_turn(link, key, answer)
                self._core.feed(ev.AgentAnswered(epoch, key, answer))

        link.request_for(prompt.request, SESSION_PROMPT, params, answered)

    def _end_of_turn(self, link: Link, key: int, answer: Answer) -> Answer:
        """Return the agent's answer as version 1 has it, after what has to be said before it.

        A turn that has failed takes its open questions with it: nobody acts on them any more.
        """
        if isinstance(answer, Ok) and isinstance(answer.result, dict) and not link.command.ours:
            answer = Ok(without_own_meta(answer.result))
        answer, word = end_of_turn(answer)
        if isinstance(answer, Err):
            for question in link.at_clients.questions:
                if question.asks_a_person and self._updates.turn_of(_call_of(question)) == key:
                    question.end()
                    if failed := self._updates.fail(_call_of(question)):
                        self._transcript.show(failed)
            self._updates.break_off(key)
        elif not self._updates.spoke:
            reason = as_object(answer.result)["stopReason"]
            told = reason == "cancelled" or (reason == "refusal" and self._memory.resumed)
            if not told:  # of a resume that seems to be a lie more is said
                self._transcript.notice(agent_trouble.no_word(word))
        return answer

    def _late_start(self, key: int) -> Unsent | None:
        """Return an `Unsent` for a prompt whose note the journal has yet to make, else None."""
        return Unsent(self._journal, key, self._not_noted_late) if self._journal.in_flight else None

    def _not_noted(self, key: int, why: JournalError) -> None:
        event("journal.failed", session=self._journal.info.session_id, what=why)
        away, prompt = isinstance(why, DatabaseAway), self._prompts.find(key)
        if away and prompt:  # it may wait again, and a prompt that waits has no turn
            self._transcript.end_turn(prompt.seq)
        self._core.feed(ev.NotBegun(key, away, told(why)))

    def _not_noted_late(self, key: int, why: JournalError) -> None:
        """Let a prompt wait again whose note the journal did not take, and whose words are shown.

        The database, if it is away, has perhaps taken the note after all.
        """
        prompt = self._prompts.find(key)
        if prompt and isinstance(why, DatabaseAway):
            self._prompts.put_off(prompt, prompt.seq)
        self._not_noted(key, why)

    def _send_late(self, link: Link, unsent: Unsent) -> None:
        """Send a prompt whose note is made now; one that was stopped meanwhile has not begun.

        One that was answered meanwhile, since its bridge ends, is not sent either.
        """
        if unsent.stopped:
            self._core.feed(ev.NotBegun(unsent.key))
        elif not link.gone and self._prompts.find(unsent.key):
            send = partial(self._send, link, unsent.key)
            self._core.finish(ef.SendPrompt(link.epoch, unsent.key), send)

    def join(self, key: int) -> list[Json]:
        """Show the words of a prompt that joins the turn that runs; returns the blocks to send."""
        prompt = self._prompts.get(key)
        added = self._added(prompt, key)
        sent = [*prompt.params["prompt"], *added]
        self._updates.join_turn(sent)
        self._show_words(prompt)
        self._show_beside(prompt, added)
        prompt.shown = True
        return sent

    def _added(self, prompt: Prompt, key: int) -> list[Json]:
        """Return the blocks that features add to a prompt, the same if it is sent once more."""
        context = self._features.add_words(key)
        prompt.added += [{"type": "text", "text": context}] if context else []
        return prompt.added

    def say_not_run(self, key: int, outcome: Outcome) -> None:
        """Show a notice that a prompt never ran, unless its answer says why."""
        prompt = self._prompts.get(key)
        match outcome:
            case Refused(reason):
                self._tell_not_run(prompt, notices.prompt_refused(str(reason)))
            case Failed(Failure.NO_AGENT | Failure.NEEDS_AUTH) if prompt.unheard_of:
                answer = answers.of_outcome(outcome)
                assert isinstance(answer, Err)
                self._tell_not_run(prompt, notices.prompt_not_run(answer.error.message))
            case Failed(Failure.JOURNAL | Failure.NOT_BEGUN) if is_feedback(prompt.params):
                self._transcript.notice(notices.FEEDBACK_UNWRITTEN)

    def say_taken(self, why: str) -> None:
        """Tell clients that another bridge has the session, and that nothing of it runs here."""
        self._transcript.say_lost(why)

    def say_what_lacks(self, outcome: Outcome) -> None:
        """Say, when the first turn since a load has ended, that the agent has shown no memory.

        Features say what they lack.
        """
        self._features.end_turn(outcome)
        if not isinstance(outcome, Replied):
            return
        said, doubt = notices.MEMORY_DOUBTFUL, self._updates.take_doubt()
        if doubt is None:
            said = agent_trouble.RESUME_DOUBTFUL
            doubt = self._memory.doubt_resumed(outcome.answer, spoke=self._updates.spoke)
        if doubt is not None and self._memory.note_doubt(doubt=doubt):
            self._transcript.notice(said)
        self._count_failure(outcome.answer)

    def _count_failure(self, answer: object) -> None:
        """Replace a process that has answered two prompts in a row with -32603 after a cancel.

        That happens once after a cancel. An answer that a feature explains does not count.
        """
        broken = isinstance(answer, Err) and answer.error.code == ErrorCode.INTERNAL_ERROR
        if not broken or self._core.now.epoch != self._cancelled_in:
            self._cancelled_in = 0
        elif not self._features.explains_failure():
            self._failures += 1
        if self._cancelled_in and self._failures == _FAILURES:
            self._cancelled_in = 0
            self._transcript.notice(agent_trouble.BROKEN_BY_CANCEL)
            self._core.feed(ev.ReplaceProcess())

    def _tell_not_run(self, prompt: Prompt, text: str) -> None:
        self._transcript.begin_turn(prompt.seq)
        try:
            self._journal.start_turn(prompt.seq, shown=prompt.shown)
        except JournalError as exc:
            event("journal.failed", session=self._journal.info.session_id, what=exc)
        self._show_words(prompt)
        self._show_beside(prompt, [])
        self._transcript.notice(text)
        self._transcript.end_turn(prompt.seq)  # the notice is all that is said of its end

    def _show_words(self, prompt: Prompt) -> None:
        """Show a prompt's words to clients that don't show them already."""
        shows_them, noted = self._prompts.shown_by(prompt), self._transcript.take_noted()
        for chunk in [] if prompt.shown else words_of(prompt.params):
            as_noted = noted.pop(0) if noted else None
            said = of_prompt(chunk, prompt.prompt_id)
            self._transcript.show_to_all_but(shows_them, said, as_noted)

    def _show_beside(self, prompt: Prompt, added: list[Json]) -> None:
        """Show the notices of features about a prompt.

        `added`: what features have added for the agent, which is only recorded.
        """
        for text in self._features.take_notices():
            self._transcript.notice(text)
        for block in [] if prompt.shown else added:
            self._transcript.record_only(
                with_own_meta({"update": user_chunk(block)}, {CONTEXT: True})
            )

    def cancel(self, link: Link, key: int, *, spares: bool) -> None:
        """Send the agent `session/cancel`, and end its open questions to the user.

        `spares`: what runs in the background goes on.
        """
        if self._unsent and self._unsent.waits and self._unsent.key == key:
            self._unsent.stopped = True  # the agent has nothing of it, and gets nothing
        else:
            self._cancel(link, spares=spares)
        seq, session_id = self._prompts.get(key).seq, self._journal.info.session_id
        event("turn.cancel", session=session_id, turn=seq, agent=link.name)

    def stop_work(self, link: Link, *, spares: bool) -> None:
        """Tell the agent to stop what it does outside of a prompt, and end its open questions.

        `spares`: what runs in the background goes on.
        """
        self._cancel(link, spares=spares)
        event("work.cancel", session=self._journal.info.session_id, agent=link.name)

    def end_cards(self, epoch: int) -> None:
        """Show an end of the cards that a process which is dead has left open before the turn that
        runs; does nothing for a process that never had the session."""
        if epoch == self._updates.epoch:
            ends = self._updates.end_process(
                turn_runs=bool(self._transcript.seq), cut_off=self._background.cards
            )
            for params, kept in ends:
                (self._transcript.show if kept else self._transcript.show_only)(params)

    def close_cards(self, *, spares: bool) -> None:
        """Show every tool call that is still open as failed (invariant C16).

        `spares`: but for those that run in the background.
        """
        for params in self._updates.close_cards(self._background.spared(spares=spares)):
            self._transcript.show(params)

    def _cancel(self, link: Link, *, spares: bool) -> None:
        """Send the agent `session/cancel`, and end its open questions to the user (invariant C15).

        Subagents that can be cancelled are, too; a notice names the others.
        """
        self._cancelled_in, self._failures = link.epoch, 0
        told: Json = {"sessionId": link.agent_session_id}
        if spares and link.activity is not None:
            told = with_own_meta(told, {SPARES: True})
        link.peer.notify(SESSION_CANCEL, told)
        able, others = self._updates.children.to_cancel()
        for child in able:
            link.peer.notify(SESSION_CANCEL, {"sessionId": child.agent_id})
        link.at_clients.end_questions()
        if others:
            self._transcript.notice(notices.children_go_on([child.title for child in others]))


def _call_of(question: Question) -> Json:
    """Return the tool call that a question is about; an empty one if it is about none."""
    return as_object(as_object(question.call.params).get("toolCall"))
