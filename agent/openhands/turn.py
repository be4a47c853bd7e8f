"""One prompt as a state machine: what is sent to the server, and when the turn ends (sans-IO).

The shell reports the feed's events and the end of each request; each report returns the effects to
perform next. At most one request is under way at a time.

Invariants
- The message is sent once. If it is unknown whether it arrived, it is looked for, never sent again.
- A turn ends with its run: at a snapshot of the live feed after a run that had the message. A run
  that ended because actions wait for an answer has not ended the turn.
- After a cancel nothing is started any more; the turn ends with `cancelled` once nothing runs or
  waits, or with a word to the user that something may.
- Refused actions are seen to be refused before anything else is sent: the server would take its
  next message, or a run, as consent.
- A status counts for the run only if the feed told it after the message, in the order of the log.
  What ended before a new run was asked for says nothing of that run.
- A pause is in effect once the call in flight has ended: the server tells that it is paused when it
  takes the pause, and again when that call has ended.
"""

from __future__ import annotations

from agent.openhands import turn_words as words
from agent.openhands.backoff import pause_after
from agent.openhands.events import Event, Failure, Snapshot, StateField, Status, UserMessage
from agent.openhands.problems import Kind, ServerProblem, failure_text
from agent.openhands.stopping import Stopping, Waiting
from agent.openhands.turn_words import (
    Ask,
    Confirm,
    Effect,
    End,
    Fail,
    Pause,
    Paused,
    Phase,
    Run,
    Say,
    SendMessage,
    Sync,
    Withdraw,
)

Problem = ServerProblem | None

#: seconds between two reads of the server's state
_PAUSE = 1.0
#: seconds between attempts at a server that is busy, or can't be reached
_FIRST_PAUSE = 1.0
_LONGEST_PAUSE = 30.0
#: how often a message is looked for, a run requested, a refusal sent, an interrupt repeated
_TRIES = 5
#: seconds until a run is requested again if another run was in its way
_AGAIN = 0.5
#: statuses of a snapshot after which the run may be continued
_RUNNABLE = (Status.RUNNING, Status.PAUSED, Status.IDLE)


class Turn:
    """The state of one prompt; its methods take what has happened and return what to do next.

    `last_message`: the id of the newest user message before the prompt's. `waiting`: the actions
    without consent at that moment. `problem`: why a request failed, None if it did not.
    """

    def __init__(self, last_message: object = None) -> None:
        self.phase = Phase.SENDING
        self.cancelled = False
        #: a stopped run may continue, or the message may still arrive
        self.uncertain = False
        self._evidence = Evidence(last_message)
        self._asked: Waiting = ()
        #: the server has the user's consent to the actions in `_asked`
        self._accepted = False
        self._tries = 0
        #: how many runs were requested because none was seen
        self._starts = 0
        self._lost = False
        self._stopping = Stopping()
        self._pausing = Pausing()
        #: the status was read once after another client's stop
        self._looked_at_stop = False
        self._told_busy = self._told_lost = False

    # reports of the shell

    def begin(self) -> list[Effect]:
        return [SendMessage()]

    def begin_stop(self) -> list[Effect]:
        """Begins a turn that sends nothing, and only stops runs and refuses waiting actions."""
        self.cancelled = True
        return self._stop([Sync()])

    def saw(self, event: Event, waiting: Waiting, *, ours: bool = False) -> list[Effect]:
        """Handles an event that is new to the feed, or a snapshot of the live feed."""
        self._evidence.note(event, ours=ours)
        self._note_pause(event)
        if self.phase is Phase.SENDING and ours and not self.cancelled:
            return self._go(Phase.RUNNING)  # the answer to SendMessage may come later, or is lost
        if self.phase is Phase.ASKING and not set(self._asked) & set(waiting):
            return [Withdraw(), *self._go(Phase.RUNNING), *self._look(waiting)]
        return self._look(waiting) if isinstance(event, Snapshot) else []

    def sent(self, problem: Problem, waiting: Waiting) -> list[Effect]:
        """Handles the server's answer to SendMessage, or its failure."""
        kind = problem.kind if problem else None
        never = kind not in (None, Kind.UNSURE, Kind.BUSY, Kind.RUNNING)
        self._lost = kind is Kind.UNSURE
        if self.phase is not Phase.SENDING and kind is not Kind.BUSY:
            return []
        if self.cancelled:
            return [self._end(End("cancelled"))] if never else self._begin_stop(waiting)
        match kind:
            case Kind.UNSURE:
                return self._go(Phase.LOOKING, Sync())
            case Kind.BUSY:
                self._evidence.found = True
                return self._busy()
            case None | Kind.RUNNING:
                self._evidence.found = True
                return [*self._go(Phase.RUNNING), *self._look(waiting)]
        return [self._fail(problem)]

    def started(self, problem: Problem, waiting: Waiting) -> list[Effect]:
        """Handles the server's answer to Run, or its failure."""
        if self.cancelled:
            return self._begin_stop(waiting)
        if self._pausing.resuming and problem is not None and problem.kind is Kind.RUNNING:
            return self._go_on_again(waiting)
        match problem.kind if problem else None:
            case None | Kind.RUNNING:
                self._evidence.forget_rest()
                return [*self._go(Phase.RUNNING), *self._look(waiting)]
            case Kind.BUSY:
                return self._busy()
            case Kind.UNSURE | Kind.UNREACHED:
                return self._go(Phase.LOOKING, Sync(_PAUSE))
        return [self._fail(problem)]

    def confirmed(self, problem: Problem, waiting: Waiting) -> list[Effect]:
        """Handles the server's answer to Confirm, or its failure."""
        if self.cancelled:
            return self._stop([Sync()])
        if problem is not None and problem.kind in (Kind.NOT_ALLOWED, Kind.GONE, Kind.REFUSED):
            return [self._fail(problem)]
        if self.phase is Phase.REJECTING:
            return [Sync(_PAUSE if problem else 0)]
        match problem.kind if problem else None:
            case Kind.BUSY:
                return [Confirm(True, self._pause())]
            case None | Kind.RUNNING:
                self._accepted = True
                return [*self._go(Phase.RUNNING), *self._look(waiting)]
        return self._go(Phase.LOOKING, Sync(_PAUSE))

    def interrupted(self, problem: Problem) -> list[Effect]:
        """Handles the server's answer to Interrupt, or its failure."""
        return self._stop(self._stopping.interrupted(problem))

    def synced(self, status: Status | None, problem: Problem, waiting: Waiting) -> list[Effect]:
        """Handles the end of Sync. `status`: the server's answer; None if there was none."""
        if self.cancelled:
            return self._stop(self._stopping.synced(status, problem, waiting))
        if problem is not None:
            if problem.final:
                return [self._fail(problem)]
            lost = [] if self._told_lost else [Say(words.LOST)]
            self._told_lost = True
            return [*lost, Sync(self._pause())]
        if self.phase is Phase.REJECTING:
            return self._rejected(status, waiting)
        return self._looked(status, waiting)

    def answered(self, accept: bool | None, waiting: Waiting) -> list[Effect]:
        """Handles the user's answer to Ask; None if the client cancelled the question."""
        if self.phase is not Phase.ASKING:
            return []
        if accept is None:
            return self.cancel(waiting)
        if self._pausing.wanted:
            self._pausing.answer = accept
            return []
        if accept and waiting != self._asked:
            return self._ask(waiting)
        if accept:
            return self._go(Phase.CONFIRMING, self._fresh(Confirm(True)))
        return self._go(Phase.REJECTING, Confirm(False))

    def cancel(self, waiting: Waiting, *, under_way: bool = False) -> list[Effect]:
        """Handles the user's cancel. `under_way`: the end of a request is still to come."""
        if self.cancelled or self.phase is Phase.ENDED:
            return []
        self.cancelled = True
        if self.phase is Phase.ASKING:
            return [Withdraw(), *self._stop([Confirm(False)])]
        if under_way and self.phase is not Phase.RUNNING:
            return []
        if self.phase is Phase.SENDING:
            return [self._end(End("cancelled"))]
        return self._begin_stop(waiting)

    def gone(self, problem: ServerProblem) -> list[Effect]:
        """Handles the end of the feed, after which the server tells nothing more."""
        if self.phase is Phase.ENDED:
            return []
        if self.cancelled:
            return self._stop(self._stopping.gone(problem))
        return [Withdraw(), self._fail(problem)]

    # pauses

    def _note_pause(self, event: Event) -> None:
        self._pausing.note(event)
        runs = isinstance(event, StateField) and event.status is Status.RUNNING
        if self.phase is Phase.PAUSED and runs:  # another client has continued the run
            self._pausing.wanted, self.phase = False, Phase.RUNNING

    def pause(self) -> list[Effect]:
        """Handles the user's pause: the running call may end, then the turn waits."""
        if self.cancelled or self.phase is Phase.ENDED:
            return [Paused(False)]
        self._pausing.begin()
        if self.phase in (Phase.ASKING, Phase.PAUSED):
            return [Paused(True)]
        return [Pause()] if self.phase is Phase.RUNNING else []

    def paused(self, problem: Problem, waiting: Waiting) -> list[Effect]:
        """Handles the server's answer to Pause, which comes before its running call has ended."""
        if self.cancelled or self.phase is not Phase.RUNNING:
            return []
        if problem is not None:
            self._pausing.wanted = False
            return [Paused(False)]
        return self._look(waiting)

    def go(self, waiting: Waiting) -> list[Effect]:
        """Handles the user's end of the pause: requests a run, or gives the kept answer."""
        if not self._pausing.wanted or self.cancelled or self.phase is Phase.ENDED:
            return []
        self._pausing.wanted = False
        if self.phase in (Phase.PAUSED, Phase.RUNNING):
            self._pausing.resuming = True
            return [Paused(False), *self._go(Phase.STARTING, self._fresh(Run()))]
        answer = self._pausing.taken_answer()
        return [Paused(False), *([] if answer is None else self.answered(answer, waiting))]

    def _go_on_again(self, waiting: Waiting) -> list[Effect]:
        """Requests a run again, in `_AGAIN` seconds, unless the new run was seen and has ended."""
        if self._evidence.ran and self._evidence.rest not in (None, *_RUNNABLE):
            return [*self._go(Phase.RUNNING), *self._look(waiting)]
        return self._go(Phase.STARTING, self._fresh(Run(_AGAIN)), keep=True)

    # decisions

    def _look(self, waiting: Waiting) -> list[Effect]:
        """Ends the turn, or decides the next step, if the last snapshot shows the run's end."""
        if self.phase is not Phase.RUNNING or self._evidence.rest in (None, Status.RUNNING):
            return []
        # No run was seen: the server may have been killed before one began.
        if not self._evidence.ran:
            return self._go(Phase.LOOKING, Sync(_PAUSE))
        match self._evidence.rest:
            case Status.WAITING:
                if set(waiting) <= set(self._asked):
                    return [] if waiting else self._go(Phase.LOOKING, Sync(_PAUSE))
                return self._ask(waiting)
            case Status.ERROR:
                return [self._end(self._evidence.end_of_failure())]
            case Status.DELETING:
                return [self._end(Fail(words.DELETED))]
            case Status.STUCK:
                return [Say(words.STUCK), self._end(End("end_turn"))]
            case Status.PAUSED if self._pausing.wanted:
                return self._go(Phase.PAUSED, Paused(True)) if self._pausing.in_effect else []
            case Status.PAUSED if self._pausing.resuming:
                return self._go(Phase.STARTING, self._fresh(Run()))
            case Status.PAUSED if not self._looked_at_stop:
                # The stop may also come from the deletion of the conversation.
                self._looked_at_stop = True
                return self._go(Phase.LOOKING, Sync(_PAUSE))
            case Status.PAUSED:
                return [Say(words.STOPPED_ELSEWHERE), self._end(End("end_turn"))]
        return [self._end(End("end_turn"))]

    def _looked(self, status: Status | None, waiting: Waiting) -> list[Effect]:
        """Decides by what the server has: look again, ask the user, run on, start anew or fail."""
        if not self._evidence.found:
            self._tries += 1
            if self._tries < _TRIES:
                return self._go(Phase.LOOKING, Sync(_PAUSE), keep=True)
            return [self._end(Fail(words.NOT_KNOWN))]
        if status is Status.WAITING and waiting:
            self._tries += 1
            if self._accepted and set(waiting) <= set(self._asked) and self._tries < _TRIES:
                # The status just read may be older than an announced one.
                return self._go(Phase.LOOKING, Sync(_PAUSE), keep=True)
            return self._ask(waiting)
        if self._evidence.ran or status is Status.RUNNING:
            return [*self._go(Phase.RUNNING), *self._look(waiting)]
        self._starts += 1
        if self._starts >= _TRIES:
            return [self._end(Fail(words.NOT_STARTED))]
        return self._go(Phase.STARTING, self._fresh(Run()))

    def _rejected(self, status: Status | None, waiting: Waiting) -> list[Effect]:
        if set(waiting) & set(self._asked) and status is not Status.RUNNING:
            self._tries += 1
            if self._tries >= _TRIES:
                return [self._end(Fail(words.NOT_REJECTED))]
            return [Confirm(False, self._pause())]
        if status is Status.RUNNING:
            return [*self._go(Phase.RUNNING), *self._look(waiting)]
        return self._go(Phase.STARTING, self._fresh(Run()))

    def _ask(self, waiting: Waiting) -> list[Effect]:
        self._asked, self._accepted = waiting, False
        return self._go(Phase.ASKING, Ask(waiting))

    def _stop(self, effects: list[Effect]) -> list[Effect]:
        """Returns these effects of stopping, and enters the phase STOPPING or ENDED."""
        self.phase = Phase.STOPPING
        if any(isinstance(effect, End) for effect in effects):
            self._note_end()
        return effects

    def _begin_stop(self, waiting: Waiting) -> list[Effect]:
        return self._stop(self._stopping.begin(self._evidence.rest, waiting))

    def _busy(self) -> list[Effect]:
        told = [] if self._told_busy else [Say(words.BUSY)]
        self._told_busy = True
        pause = self._pause()
        return [*told, *self._go(Phase.STARTING, self._fresh(Run(pause)), keep=True)]

    def _pause(self) -> float:
        """Counts an attempt; returns the seconds until the next one."""
        self._tries += 1
        return pause_after(self._tries, _FIRST_PAUSE, _LONGEST_PAUSE)

    def _fresh(self, request: Run | Confirm) -> Effect:
        """Returns `request`, which begins a run, and forgets the evidence of earlier runs."""
        self._evidence.forget_run()
        return request

    def _go(self, phase: Phase, *effects: Effect, keep: bool = False) -> list[Effect]:
        """Enters a phase and returns the effects. `keep`: the count of attempts is not reset."""
        self.phase = phase
        if not keep:
            self._tries = 0
        pause = [Pause()] if self._pausing.wanted and phase is Phase.RUNNING else []
        return [*effects, *pause]

    def _fail(self, problem: Problem) -> Effect:
        assert problem is not None
        return self._end(Fail(str(problem), auth=problem.kind is Kind.NOT_ALLOWED))

    def _end(self, end: End | Fail) -> Effect:
        self._note_end()
        return end

    def _note_end(self) -> None:
        self.phase = Phase.ENDED
        arrives = self._lost and not self._evidence.found
        self.uncertain = self._stopping.uncertain or arrives


class Pausing:
    def __init__(self) -> None:
        #: the user wants the turn to wait
        self.wanted = False
        #: the pause has ended, and the run has not been seen to continue
        self.resuming = False
        #: the user's answer to a question, kept until the pause ends
        self.answer: bool | None = None
        #: how often the server has told the status `paused` since the pause was requested
        self._rests = 0

    @property
    def in_effect(self) -> bool:
        return self._rests > 1

    def begin(self) -> None:
        self.wanted, self._rests = True, 0

    def note(self, event: Event) -> None:
        if isinstance(event, Snapshot) and event.status is Status.PAUSED:
            self._rests += 1
        elif isinstance(event, StateField) and event.status is Status.RUNNING:
            self.resuming = False

    def taken_answer(self) -> bool | None:
        """Returns the user's answer that was kept, and forgets it; None if there is none."""
        answer, self.answer = self.answer, None
        return answer


class Evidence:
    """The evidence for one prompt.

    `last_message`: the id of the newest user message before the prompt's.
    """

    def __init__(self, last_message: object) -> None:
        #: the server has the message: its text was seen, or the server said so
        self.found = False
        #: a run was seen after the message
        self.ran = False
        #: the status in the live feed's last snapshot after the message; None if a run may be going
        self.rest: Status | None = None
        self._failure: Failure | None = None
        self._last_message = last_message
        self._newer = False

    def note(self, event: Event, *, ours: bool) -> None:
        match event:
            case UserMessage() if ours:
                self.found = True
            case StateField(key="last_user_message_id", value=message):
                self._newer = self._newer or message != self._last_message
            case StateField() if event.status not in (None, Status.IDLE):
                self.ran = self.ran or self._begun
                if event.status is Status.RUNNING:
                    self.rest = None
            case Failure() if self._begun:
                self._failure = event
            case Snapshot():
                message = event.values.get("last_user_message_id")
                self._newer = self._newer or message not in (None, self._last_message)
                if self._begun:
                    self.rest = event.status

    def end_of_failure(self) -> End | Fail:
        """Returns the outcome of a run that ended with an error."""
        if self._failure is None:
            return Fail(words.NO_REASON)
        if self._failure.code == "MaxIterationsReached":
            return End("max_turn_requests")
        return Fail(failure_text(self._failure.code, self._failure.detail))

    def forget_run(self) -> None:
        """Notes that a new run is requested: what was seen of the last one no longer counts."""
        self.ran, self.rest = False, None

    def forget_rest(self) -> None:
        """Notes that the server has started a run: an earlier snapshot says nothing of that run."""
        if not self.ran:
            self.rest = None

    @property
    def _begun(self) -> bool:
        return self.found or self._newer
