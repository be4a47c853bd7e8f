"""Every state, and what hangs on it, against every event: what is next, and what is asked for.

`table.txt` holds the answers, written down and not computed: a row that is missing fails, and so
does one too many. In it `+DRAIN` is a deadline that is armed, `-DRAIN` one that is disarmed.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import TypeAlias, get_args

import pytest

from acp_bridge.core.machine.effects import (
    AnswerPrompt,
    Arm,
    Disarm,
    Dropped,
    Effect,
    Failed,
    GiveBack,
    Kill,
    Leave,
    Open,
    Queued,
    Release,
    RunHooks,
    SendPrompt,
    Start,
    Steer,
    WriteChange,
)
from acp_bridge.core.machine.events import (
    AgentAnswered,
    AgentEvent,
    AgentExited,
    Cancel,
    CancelPrompt,
    ChangeLeftOver,
    ChangeWritten,
    Close,
    CommitFailed,
    Committed,
    Deadline,
    DropWaiting,
    EditWaiting,
    Event,
    Go,
    HoldQueue,
    HookBegan,
    HookEnded,
    HooksDone,
    JournalAway,
    JournalBack,
    JournalLost,
    Leaked,
    Loaded,
    LoadRefused,
    MaySteer,
    Moment,
    MoveWaiting,
    NeedsAuth,
    NotBegun,
    Occupied,
    Pause,
    PauseAnswered,
    PromptReceived,
    ReplaceProcess,
    RunLeftOver,
    Shutdown,
    Sleep,
    Started,
    StartFailed,
    SteerAnswered,
    Steered,
    SteerWaiting,
    Taken,
    Timer,
    TreeDead,
    Warm,
    WordsFollowed,
    WorkAsked,
    WorkOver,
    WorkSeen,
)
from acp_bridge.core.machine.states import NEXT, Happened, State, States
from tests.core.machine.bench import Bench
from tests.core.machine.table import DROPPED, NOTHING, read_table

#: What follows each event in one state, and the arrows that are taken meanwhile.
Happenings: TypeAlias = tuple[dict[str, str], frozenset[tuple[State, Happened]]]


def after(
    *events: Event, fire: tuple[Timer, ...] = (), then: tuple[Event, ...] = (), epoch: int
) -> Bench:
    bench = Bench(epoch=epoch)
    bench.do(*events)
    for timer in fire:
        bench.fire(timer)
    bench.do(*then)
    return bench


#: Two prompts: 1 runs in a session that has a process, 2 waits.
TWO = (PromptReceived(1), Committed(1), PromptReceived(2), Committed(2))
STARTED, FAILED = Started(1), StartFailed(1, True)
REFUSED, REFUSED_FOR_GOOD = LoadRefused(1), LoadRefused(1, True)
CANCEL, EXITED, CLOSE = Cancel(), AgentExited(1), Close()
PAUSE, HOLD, OCCUPIED = Pause(), HoldQueue(), Occupied(1)
SPARE, DRAIN, KILL, RESTART = Timer.SPARE, Timer.DRAIN, Timer.KILL, Timer.RESTART


def distrusted() -> Bench:
    bench = Bench(always_reload=True)
    bench.do(*TWO, CANCEL)
    return bench


def hooked(*events: Event, epoch: int = 1, fire: tuple[Timer, ...] = ()) -> Bench:
    """A session that has hooks for every moment, and an agent that takes words into a turn."""
    bench = Bench(epoch=epoch, hooks=frozenset(Moment), steers=True)
    bench.do(*events)
    for timer in fire:
        bench.fire(timer)
    return bench


def steered(*events: Event) -> Bench:
    """A session whose agent takes words into a turn: 1 runs, 2 waits."""
    bench = Bench(steers=True)
    bench.do(*TWO, *events)
    return bench


#: Words, 3, are to join the turn of 1; the agent takes words; it has answered that it took 3.
WORDS = (PromptReceived(3, steers=True), Committed(3))
SENT = (MaySteer(1), *WORDS)
JOINED = (*SENT, SteerAnswered(3, Steered.JOINED))
#: A turn of 1 has ended, and its hooks run.
OVER = (*TWO, HooksDone(1), AgentAnswered(1, 1))
#: A hook of 1 runs, of which the machine was told: about a permission, say.
ASIDE = (*TWO, HooksDone(1), HookBegan(1))

#: How each state of the table is reached. Epoch 1 is current unless a spare took over.
STATES: dict[str, Callable[[], Bench]] = {
    "COLD": lambda: after(epoch=0),
    "COLD, asleep": lambda: after(Sleep(1), TreeDead(1), epoch=1),
    "STARTING": lambda: after(*TWO, epoch=0),
    "STARTING, the second try": lambda: after(*TWO, StartFailed(1), epoch=0),
    "STARTING, the third try": lambda: after(*TWO, StartFailed(1), StartFailed(2), epoch=0),
    "RELOADING": lambda: after(*TWO, STARTED, epoch=0),
    "RELOADING, nothing waits": lambda: after(Warm(), STARTED, epoch=0),
    "IDLE": lambda: after(epoch=1),
    "IDLE, work was asked for": lambda: after(WorkAsked(), epoch=1),
    "IDLE, another session works there": lambda: after(OCCUPIED, epoch=1),
    "IDLE, another session works there, and two wait for the end of a hold": lambda: after(
        OCCUPIED, HOLD, *TWO, epoch=1
    ),
    "KILLING, it moves": lambda: after(OCCUPIED, *TWO, epoch=1),
    "RELOADING, another session works there": lambda: after(*TWO, STARTED, OCCUPIED, epoch=0),
    "WORKING": lambda: after(WorkSeen(1), epoch=1),
    "WORKING, a prompt waits for the end of a hold": lambda: after(
        WorkSeen(1), HOLD, *TWO[:2], epoch=1
    ),
    "DRAINING, outside of a prompt": lambda: after(WorkSeen(1), CANCEL, epoch=1),
    "DRAINING, outside of a prompt, and two wait": lambda: after(
        WorkSeen(1), CANCEL, *TWO, epoch=1
    ),
    "KILLING, outside of a prompt": lambda: after(WorkSeen(1), CANCEL, fire=(DRAIN,), epoch=1),
    "IDLE, after a Stop outside of a prompt": lambda: after(
        WorkSeen(1), CANCEL, WorkOver(1), epoch=1
    ),
    "IDLE, after a cancelled turn": lambda: after(*TWO[:2], CANCEL, AgentAnswered(1, 1), epoch=1),
    "RUNNING": lambda: after(*TWO, epoch=1),
    "RUNNING, pausing": lambda: after(*TWO, PAUSE, epoch=1),
    "RUNNING, paused": lambda: after(*TWO, PAUSE, PauseAnswered(1, 1), epoch=1),
    "RUNNING, a pause was refused": lambda: after(*TWO, PAUSE, PauseAnswered(1, 1, False), epoch=1),
    "RUNNING, held": lambda: after(*TWO, HOLD, epoch=1),
    "IDLE, held": lambda: after(HOLD, epoch=1),
    "IDLE, two wait for the end of a hold": lambda: after(HOLD, *TWO, epoch=1),
    "IDLE, two wait for the end of a pause": lambda: after(
        PromptReceived(1), PAUSE, Committed(1), *TWO[2:], epoch=1
    ),
    "COLD, two wait for the end of a hold": lambda: after(HOLD, *TWO, epoch=0),
    "DRAINING, then paused": lambda: after(*TWO, CANCEL, PAUSE, epoch=1),
    "KILLING, a paused turn whose agent died": lambda: after(*TWO, PAUSE, EXITED, epoch=1),
    "RUNNING, an agent that leaked": lambda: after(*TWO, Leaked(1), epoch=1),
    "DRAINING": lambda: after(*TWO, CANCEL, epoch=1),
    "DRAINING, an agent that leaked": distrusted,
    "DRAINING, a spare starts": lambda: after(*TWO, CANCEL, fire=(SPARE,), epoch=1),
    "DRAINING, a spare is ready": lambda: after(
        *TWO, CANCEL, fire=(SPARE,), then=(Started(2),), epoch=1
    ),
    "DRAINING, to be closed": lambda: after(*TWO, CLOSE, epoch=1),
    "KILLING, a cancelled turn": lambda: after(*TWO, CANCEL, fire=(DRAIN,), epoch=1),
    "KILLING, a cancelled turn, a spare is ready": lambda: after(
        *TWO, CANCEL, fire=(SPARE,), then=(Started(2), EXITED), epoch=1
    ),
    "KILLING, a dead agent's turn": lambda: after(*TWO, EXITED, epoch=1),
    "KILLING, it was idle": lambda: after(EXITED, epoch=1),
    "KILLING, it falls asleep": lambda: after(Sleep(1), epoch=1),
    "KILLING, a failed try": lambda: after(*TWO, STARTED, REFUSED, epoch=0),
    "KILLING, the last try": lambda: after(*TWO, STARTED, REFUSED_FOR_GOOD, epoch=0),
    "KILLING, to be closed": lambda: after(CLOSE, epoch=1),
    "KILLING, a turn to be closed": lambda: after(*TWO, EXITED, CLOSE, epoch=1),
    "BLOCKED": lambda: after(*TWO, FAILED, epoch=0),
    "UNAUTHENTICATED": lambda: after(*TWO, STARTED, NeedsAuth(1), epoch=0),
    "BLOCKED, the tree lives on": lambda: after(EXITED, fire=(KILL,), epoch=1),
    "CLOSED": lambda: after(CLOSE, epoch=0),
    "STARTING, hooks run before a prompt": lambda: hooked(*TWO, epoch=0),
    "IDLE, hooks run before a prompt": lambda: hooked(*TWO),
    "IDLE, hooks run before a cancelled prompt": lambda: hooked(*TWO, CANCEL),
    "IDLE, hooks run after a turn": lambda: hooked(*OVER),
    "IDLE, hooks run after a cancelled turn": lambda: hooked(*OVER, CANCEL),
    "COLD, hooks run after a turn": lambda: hooked(*OVER, EXITED, TreeDead(1)),
    "IDLE, feedback is being written down": lambda: hooked(*OVER, HooksDone(1, feedback=6)),
    "RUNNING, a hook runs": lambda: hooked(*ASIDE),
    "DRAINING, it has answered and a hook runs": lambda: hooked(
        *ASIDE, CANCEL, AgentAnswered(1, 1)
    ),
    "KILLING, the tree is dead and a hook runs": lambda: hooked(
        *ASIDE, CANCEL, EXITED, TreeDead(1)
    ),
    "RUNNING, 2 is being edited": lambda: after(*TWO, EditWaiting(2), epoch=1),
    "IDLE, 2 is being moved": lambda: after(HOLD, *TWO, MoveWaiting(2, 1), Go(), epoch=1),
    "RUNNING, the agent takes words": lambda: steered(MaySteer(1)),
    "RUNNING, words wait to join": lambda: steered(*WORDS),
    "RUNNING, words wait for the end of a hold": lambda: steered(MaySteer(1), HOLD, *WORDS),
    "RUNNING, words are sent": lambda: steered(*SENT),
    "RUNNING, words have joined": lambda: steered(*JOINED),
    "RUNNING, words were followed": lambda: steered(*JOINED, WordsFollowed(1)),
    "IDLE, sent words are unanswered": lambda: steered(*SENT, AgentAnswered(1, 1)),
    "DRAINING, words are sent": lambda: steered(*SENT, CANCEL),
    "DRAINING, words have joined": lambda: steered(*JOINED, CANCEL),
    "KILLING, words are sent to a dead agent": lambda: steered(*SENT, EXITED),
    "RUNNING, hooks run about words": lambda: hooked(*TWO, HooksDone(1), *SENT),
    "RUNNING, the journal is away": lambda: after(*TWO, JournalAway(), epoch=1),
    "IDLE, two wait for the journal": lambda: after(*TWO, NotBegun(1, away=True), epoch=1),
    "COLD, two wait for the journal": lambda: after(JournalAway(), *TWO, epoch=0),
    "STARTING, two wait for the journal": lambda: after(*TWO, JournalAway(), epoch=0),
    "KILLING, a dead agent's turn, and the journal is away": lambda: after(
        *TWO, JournalAway(), EXITED, epoch=1
    ),
    "BLOCKED, two wait for the journal": lambda: after(*TWO, JournalAway(), FAILED, epoch=0),
    "KILLING, another bridge has the session": lambda: after(*TWO, Taken(), epoch=1),
    "KILLING, another bridge has it and a hook runs": lambda: hooked(*ASIDE, Taken(), TreeDead(1)),
    "COLD, another bridge has the session": lambda: after(*TWO, Taken(), TreeDead(1), epoch=1),
    "COLD, another bridge has it and the tree lives on": lambda: after(
        *TWO, Taken(), fire=(KILL,), epoch=1
    ),
    "KILLING, to be closed, and hooks run": lambda: hooked(*TWO, CLOSE),
    "KILLING, to be closed, and only hooks run": lambda: hooked(*TWO, CLOSE, TreeDead(1)),
}

#: What happens, given the current epoch and the key of the prompt that was sent last.
EVENTS: dict[str, Callable[[int, int], Event]] = {
    "prompt read": lambda epoch, key: PromptReceived(8),
    "superseder read": lambda epoch, key: PromptReceived(8, True),
    "words read": lambda epoch, key: PromptReceived(8, steers=True),
    "words committed": lambda epoch, key: Committed(8),
    "edit 2": lambda epoch, key: EditWaiting(2),
    "move 2": lambda epoch, key: MoveWaiting(2),
    "drop 2": lambda epoch, key: DropWaiting(2),
    "left-over changed": lambda epoch, key: ChangeLeftOver(11),
    "change written": lambda epoch, key: ChangeWritten(),
    "change not written": lambda epoch, key: ChangeWritten(False),
    "steer 2": lambda epoch, key: SteerWaiting(2),
    "3 joined": lambda epoch, key: SteerAnswered(3, Steered.JOINED),
    "3 not taken": lambda epoch, key: SteerAnswered(3, Steered.NOT_TAKEN),
    "3 unknown": lambda epoch, key: SteerAnswered(3, Steered.UNKNOWN),
    "takes words": lambda epoch, key: MaySteer(epoch),
    "takes no words": lambda epoch, key: MaySteer(epoch, False),
    "words followed": lambda epoch, key: WordsFollowed(epoch),
    "prompt committed": lambda epoch, key: Committed(8),
    "superseder committed": lambda epoch, key: Committed(8),
    "commit failed": lambda epoch, key: CommitFailed(8),
    "left-over run": lambda epoch, key: RunLeftOver(9, (11,)),
    "not begun": lambda epoch, key: NotBegun(key),
    "not begun yet": lambda epoch, key: NotBegun(key, away=True),
    "journal away": lambda epoch, key: JournalAway(),
    "journal back": lambda epoch, key: JournalBack(),
    "journal lost": lambda epoch, key: JournalLost("taken"),
    "taken": lambda epoch, key: Taken("taken"),
    "hooks done": lambda epoch, key: HooksDone(1),
    "hooks refuse": lambda epoch, key: HooksDone(1, "no"),
    "hooks give feedback": lambda epoch, key: HooksDone(1, feedback=7),
    "hook began": lambda epoch, key: HookBegan(2),
    "hook ended": lambda epoch, key: HookEnded(1),
    "cancel": lambda epoch, key: Cancel(),
    "cancel of work": lambda epoch, key: Cancel(frozenset()),
    "cancel of 1": lambda epoch, key: CancelPrompt(1),
    "cancel of 2": lambda epoch, key: CancelPrompt(2),
    "pause": lambda epoch, key: Pause(),
    "hold": lambda epoch, key: HoldQueue(),
    "go": lambda epoch, key: Go(),
    "warm": lambda epoch, key: Warm(),
    "work asked": lambda epoch, key: WorkAsked(),
    "work seen": lambda epoch, key: WorkSeen(epoch),
    "work over": lambda epoch, key: WorkOver(epoch),
    "occupied": lambda epoch, key: Occupied(epoch),
    "free": lambda epoch, key: Occupied(epoch, False),
    "spare occupied": lambda epoch, key: Occupied(epoch + 1),
    "sleep": lambda epoch, key: Sleep(epoch),
    "replace": lambda epoch, key: ReplaceProcess(),
    "close": lambda epoch, key: Close(),
    "close for all": lambda epoch, key: Close(keeps_prompts=True),
    "shutdown": lambda epoch, key: Shutdown(),
    "started": lambda epoch, key: Started(epoch),
    "start failed": lambda epoch, key: StartFailed(epoch),
    "start failed for good": lambda epoch, key: StartFailed(epoch, True),
    "loaded": lambda epoch, key: Loaded(epoch),
    "load refused": lambda epoch, key: LoadRefused(epoch),
    "load refused for good": lambda epoch, key: LoadRefused(epoch, True),
    "needs auth": lambda epoch, key: NeedsAuth(epoch),
    "answered": lambda epoch, key: AgentAnswered(epoch, key),
    "answered an old turn": lambda epoch, key: AgentAnswered(epoch, key - 1),
    "exited": lambda epoch, key: AgentExited(epoch),
    "tree dead": lambda epoch, key: TreeDead(epoch),
    "leaked": lambda epoch, key: Leaked(epoch),
    "paused": lambda epoch, key: PauseAnswered(epoch, 1),
    "not paused": lambda epoch, key: PauseAnswered(epoch, 1, False),
    "an old pause answered": lambda epoch, key: PauseAnswered(epoch, 0),
    "spare started": lambda epoch, key: Started(epoch + 1),
    "spare failed": lambda epoch, key: StartFailed(epoch + 1),
    "spare exited": lambda epoch, key: AgentExited(epoch + 1),
    "spare's tree dead": lambda epoch, key: TreeDead(epoch + 1),
}
FIRST = {
    "prompt committed": PromptReceived(8),
    "superseder committed": PromptReceived(8, True),
    "words committed": PromptReceived(8, steers=True),
    "commit failed": PromptReceived(8),
}


def happen(state: str, event: str) -> str:
    """Feed the event in the state and return what follows, in the words of the table."""
    bench = STATES[state]()
    was, turns = bench.now.state, bench.turns
    if event in FIRST:
        turns.step(FIRST[event])
    if event in Timer.__members__:
        timer = Timer[event]
        effects = turns.step(Deadline(timer, bench.armed.get(timer, 0)))
    else:
        effects = turns.step(EVENTS[event](turns.snapshot.epoch, bench.sent))
    if not effects and turns.snapshot.state is was:
        return NOTHING
    if effects and isinstance(effects[0], Dropped):
        assert len(effects) == 1
        assert turns.snapshot.state is was
        return DROPPED
    return " ".join([turns.snapshot.state.name, *map(word, effects)])


def whatever_happens(state: str) -> Happenings:
    """Return what follows each event in the state, and the arrows that are taken meanwhile."""
    taken = set[tuple[State, Happened]]()
    advance = States.advance

    def noting(self: States, happened: Happened) -> list[Effect]:
        taken.add((self.current, happened))
        return advance(self, happened)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(States, "advance", noting)
        rows = {event: happen(state, event) for event in (*EVENTS, *Timer.__members__)}
    return rows, frozenset(taken)


def word(effect: Effect) -> str:
    match effect:
        case Arm(timer):
            return f"+{timer.name}"
        case Disarm(timer):
            return f"-{timer.name}"
        case AnswerPrompt(key, Failed(why)):
            return f"Answer({key},{why.name})"
        case AnswerPrompt(key, outcome):
            return f"Answer({key},{type(outcome).__name__})"
        case Start(epoch) | Open(epoch) | Kill(epoch) | Leave(epoch) | Release(epoch):
            return f"{type(effect).__name__}({epoch})"
        case SendPrompt(_, key) | Steer(_, key) | Queued(key) | GiveBack(key):
            return f"{type(effect).__name__}({key})"
        case WriteChange(key, order):
            return f"WriteChange({','.join(map(str, (key, *order)))})"
        case RunHooks(key, moment):
            return f"RunHooks({key},{moment.name})"
        case _:
            return type(effect).__name__


@pytest.fixture(scope="module")
def happenings() -> Callable[[str], Happenings]:
    """`whatever_happens`, each state once; kept no longer, or `make mutants` tests no mutant."""
    return cache(whatever_happens)


@pytest.mark.hazard("Q1", "C21")
@pytest.mark.parametrize("state", STATES)
def test_what_every_event_does_in_this_state(
    state: str, happenings: Callable[[str], Happenings]
) -> None:
    assert happenings(state)[0] == read_table()[state]


def test_the_table_is_of_every_state_and_every_event() -> None:
    assert read_table().keys() == STATES.keys()
    assert {name.partition(",")[0] for name in STATES} == set(State.__members__)
    kinds = {type(event(1, 1)) for event in EVENTS.values()} | {Deadline}
    assert kinds == set(get_args(Event))


def test_every_arrow_between_two_states_is_taken_somewhere(
    happenings: Callable[[str], Happenings],
) -> None:
    taken = {arrow for state in STATES for arrow in happenings(state)[1]}
    assert taken == {(state, happened) for state, arrows in NEXT.items() for happened in arrows}


@pytest.mark.hazard("C2.1", "C14.2")
@pytest.mark.parametrize("state", STATES)
def test_what_comes_from_an_old_process_or_an_old_timer_is_dropped(state: str) -> None:
    bench = STATES[state]()
    turns, was = bench.turns, bench.now.state
    old: list[Event] = [
        kind(turns.snapshot.epoch - 1) for kind in get_args(AgentEvent) if kind is not AgentAnswered
    ]
    old.append(AgentAnswered(turns.snapshot.epoch - 1, bench.sent))
    old += [Deadline(timer, token) for timer in Timer for token in (0, 99)]
    before = len(bench.dropped)
    assert bench.do(*old) == []
    assert bench.dropped[before:] == old
    assert turns.snapshot.state is was
