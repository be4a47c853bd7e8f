"""Every state, and what hangs on it, against every event: what is next, and what is asked for.

`table.txt` holds the answers, written down and not computed: a row that is missing fails, and so
does one too many. In it `+DRAIN` is a deadline that is armed, `-DRAIN` one that is disarmed.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import get_args

import pytest

from acp_bridge import signals as sig
from acp_bridge.signals import Timer
from acp_bridge.turns import State
from tests.turns.bench import Bench

TABLE = Path(__file__).parent / "table.txt"
#: Written in the table for "the same state, no effect".
NOTHING = "nothing"


def after(
    *events: sig.Event, fire: tuple[Timer, ...] = (), then: tuple[sig.Event, ...] = (), epoch: int
) -> Bench:
    bench = Bench(epoch=epoch)
    bench.do(*events)
    for timer in fire:
        bench.fire(timer)
    bench.do(*then)
    return bench


#: Two prompts: 1 runs in a session that has a process, 2 waits.
TWO = (sig.PromptReceived(1), sig.Committed(1), sig.PromptReceived(2), sig.Committed(2))
STARTED, FAILED = sig.Started(1), sig.StartFailed(1, True)
REFUSED, REFUSED_FOR_GOOD = sig.LoadRefused(1), sig.LoadRefused(1, True)
CANCEL, EXITED, CLOSE = sig.Cancel(), sig.AgentExited(1), sig.Close()
SPARE, DRAIN, KILL, RESTART = Timer.SPARE, Timer.DRAIN, Timer.KILL, Timer.RESTART


def distrusted() -> Bench:
    bench = Bench(always_reload=True)
    bench.do(*TWO, CANCEL)
    return bench


#: How each state of the table is reached. Epoch 1 counts unless a spare took over.
STATES: dict[str, Callable[[], Bench]] = {
    "COLD": lambda: after(epoch=0),
    "STARTING": lambda: after(*TWO, epoch=0),
    "STARTING, the second try": lambda: after(*TWO, sig.StartFailed(1), epoch=0),
    "STARTING, the third try": lambda: after(*TWO, sig.StartFailed(1), sig.StartFailed(2), epoch=0),
    "RELOADING": lambda: after(*TWO, STARTED, epoch=0),
    "IDLE": lambda: after(epoch=1),
    "IDLE, after a cancelled turn": lambda: after(
        *TWO[:2], CANCEL, sig.AgentAnswered(1, 1), epoch=1
    ),
    "RUNNING": lambda: after(*TWO, epoch=1),
    "RUNNING, an agent that leaked": lambda: after(*TWO, sig.Unclean(1), epoch=1),
    "DRAINING": lambda: after(*TWO, CANCEL, epoch=1),
    "DRAINING, an agent that leaked": distrusted,
    "DRAINING, a spare starts": lambda: after(*TWO, CANCEL, fire=(SPARE,), epoch=1),
    "DRAINING, a spare is ready": lambda: after(
        *TWO, CANCEL, fire=(SPARE,), then=(sig.Started(2),), epoch=1
    ),
    "DRAINING, to be closed": lambda: after(*TWO, CLOSE, epoch=1),
    "KILLING, a cancelled turn": lambda: after(*TWO, CANCEL, fire=(DRAIN,), epoch=1),
    "KILLING, a cancelled turn, a spare is ready": lambda: after(
        *TWO, CANCEL, fire=(SPARE,), then=(sig.Started(2), EXITED), epoch=1
    ),
    "KILLING, a dead agent's turn": lambda: after(*TWO, EXITED, epoch=1),
    "KILLING, it was idle": lambda: after(EXITED, epoch=1),
    "KILLING, a failed try": lambda: after(*TWO, STARTED, REFUSED, epoch=0),
    "KILLING, the last try": lambda: after(*TWO, STARTED, REFUSED_FOR_GOOD, epoch=0),
    "KILLING, to be closed": lambda: after(CLOSE, epoch=1),
    "KILLING, a turn to be closed": lambda: after(*TWO, EXITED, CLOSE, epoch=1),
    "BLOCKED": lambda: after(*TWO, FAILED, epoch=0),
    "BLOCKED, wants authentication": lambda: after(*TWO, STARTED, sig.NeedsAuth(1), epoch=0),
    "BLOCKED, the tree lives on": lambda: after(EXITED, fire=(KILL,), epoch=1),
    "CLOSED": lambda: after(CLOSE, epoch=0),
}

#: What happens. `{}` stands for the epoch that counts.
EVENTS: dict[str, Callable[[int, int], sig.Event]] = {
    "prompt read": lambda epoch, turn: sig.PromptReceived(8),
    "superseder read": lambda epoch, turn: sig.PromptReceived(8, True),
    "prompt committed": lambda epoch, turn: sig.Committed(8),
    "superseder committed": lambda epoch, turn: sig.Committed(8),
    "commit failed": lambda epoch, turn: sig.CommitFailed(8),
    "held run": lambda epoch, turn: sig.RunHeld(9, (11,)),
    "cancel": lambda epoch, turn: sig.Cancel(),
    "cancel of 1": lambda epoch, turn: sig.CancelPrompt(1),
    "cancel of 2": lambda epoch, turn: sig.CancelPrompt(2),
    "warm": lambda epoch, turn: sig.Warm(),
    "renew": lambda epoch, turn: sig.Renew(),
    "close": lambda epoch, turn: sig.Close(),
    "client gone": lambda epoch, turn: sig.ClientGone(),
    "started": lambda epoch, turn: sig.Started(epoch),
    "start failed": lambda epoch, turn: sig.StartFailed(epoch),
    "start failed for good": lambda epoch, turn: sig.StartFailed(epoch, True),
    "loaded": lambda epoch, turn: sig.Loaded(epoch),
    "load refused": lambda epoch, turn: sig.LoadRefused(epoch),
    "load refused for good": lambda epoch, turn: sig.LoadRefused(epoch, True),
    "needs auth": lambda epoch, turn: sig.NeedsAuth(epoch),
    "answered": lambda epoch, turn: sig.AgentAnswered(epoch, turn),
    "answered an old turn": lambda epoch, turn: sig.AgentAnswered(epoch, turn - 1),
    "exited": lambda epoch, turn: sig.AgentExited(epoch),
    "tree dead": lambda epoch, turn: sig.TreeDead(epoch),
    "unclean": lambda epoch, turn: sig.Unclean(epoch),
    "spare started": lambda epoch, turn: sig.Started(epoch + 1),
    "spare failed": lambda epoch, turn: sig.StartFailed(epoch + 1),
    "spare exited": lambda epoch, turn: sig.AgentExited(epoch + 1),
    "spare's tree dead": lambda epoch, turn: sig.TreeDead(epoch + 1),
}
FIRST = {
    "prompt committed": sig.PromptReceived(8),
    "superseder committed": sig.PromptReceived(8, True),
    "commit failed": sig.PromptReceived(8),
}


def read_table() -> dict[str, dict[str, str]]:
    """State -> event -> what is next; raises ValueError for a row that is there twice."""
    table: dict[str, dict[str, str]] = {}
    for line in TABLE.read_text("utf-8").splitlines():
        if line.startswith("=="):
            rows = table[line.strip("= ")] = {}
        elif line and not line.startswith("#"):
            events, _, result = line.partition(": ")
            for event in events.split(", "):
                if event in rows:
                    raise ValueError(f"twice: {line}")
                rows[event] = result.strip()
    return table


def happen(state: str, event: str) -> str:
    """What the machine makes of the event, in the words of the table."""
    bench = STATES[state]()
    was, turns = bench.turns.state, bench.turns
    if event in FIRST:
        turns.step(FIRST[event])
    if event in Timer.__members__:
        timer = Timer[event]
        effects = turns.step(sig.Deadline(timer, bench.armed.get(timer, 0)))
    else:
        effects = turns.step(EVENTS[event](turns.epoch, turns.turn))
    if not effects and turns.state is was:
        return NOTHING
    return " ".join([turns.state.name, *map(word, effects)])


def word(effect: sig.Effect) -> str:
    match effect:
        case sig.Arm(timer):
            return f"+{timer.name}"
        case sig.Disarm(timer):
            return f"-{timer.name}"
        case sig.Answer(key, sig.Failed(why)):
            return f"Answer({key},{why.name})"
        case sig.Answer(key, outcome):
            return f"Answer({key},{type(outcome).__name__})"
        case sig.Start(epoch) | sig.Open(epoch) | sig.Kill(epoch) | sig.Release(epoch):
            return f"{type(effect).__name__}({epoch})"
        case sig.SendPrompt(_, _, key):
            return f"SendPrompt({key})"
        case _:
            return type(effect).__name__


@pytest.mark.hazard("Q1", "C21")
@pytest.mark.parametrize("state", STATES)
def test_what_every_event_does_in_this_state(state: str) -> None:
    rows = read_table()[state]
    assert rows.keys() == EVENTS.keys() | Timer.__members__.keys()
    assert {event: happen(state, event) for event in rows} == rows


def test_the_table_is_of_every_state_and_every_event() -> None:
    assert read_table().keys() == STATES.keys()
    assert {name.partition(",")[0] for name in STATES} == set(State.__members__)
    kinds = {type(event(1, 1)) for event in EVENTS.values()} | {sig.Deadline}
    assert kinds == set(get_args(sig.Event))


@pytest.mark.hazard("C2", "C14")
@pytest.mark.parametrize("state", STATES)
def test_what_comes_from_an_old_process_or_an_old_timer_does_nothing(state: str) -> None:
    bench = STATES[state]()
    turns, was = bench.turns, bench.turns.state
    old: list[sig.Event] = [
        kind(turns.epoch - 1) for kind in get_args(sig.AgentEvent) if kind is not sig.AgentAnswered
    ]
    old.append(sig.AgentAnswered(turns.epoch - 1, turns.turn))
    old += [sig.Deadline(timer, token) for timer in Timer for token in (0, 99)]
    assert bench.do(*old) == []
    assert turns.state is was
