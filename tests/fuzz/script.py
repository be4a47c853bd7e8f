"""What a run does, drawn from its seed alone: the agent, the bridge's options, the operations.

Nothing here looks at what a bridge answers, so a shorter run is the beginning of a longer one: a
failure is made small by lowering N.
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from dataclasses import dataclass

from tests.support.fixture_agents import BEHAVIOURS

#: Operations and how often they come, in parts of the sum.
WEIGHTS = {
    "prompt": 34,
    "interrupt": 6,
    "cancel": 11,
    "cancel_request": 6,
    "open_gate": 12,
    "new": 4,
    "load": 6,
    "resume": 2,
    "close": 2,
    "delete": 1,
    "list": 2,
    "adopt": 1,
    "set_mode": 3,
    "set_option": 3,
    "pass_on": 3,
    "queue": 2,
    "queue_run": 4,
    "queue_drop": 1,
    "pause": 4,
    "hold": 3,
    "go": 6,
    "ask": 3,
    "authenticate": 1,
    "garbage": 2,
    "permission": 2,
    "kill_agent": 4,
    "join": 7,
    "talk": 7,
    "leave": 1,
    "cancel_turn": 1,
    "close_for_all": 1,
    "stop_reading": 1,
    "go_on_reading": 2,
    "restart": 4,
    "other": 6,
    "end_kept": 1,
}
#: How much of it is done by others than the client that has started the newest bridge.
_OTHERS = 0.5
#: Runs with a bridge that outlives its client, and with two bridges at a time.
_KEPT, _TWO = 0.45, 0.35
#: Runs in which clients of version 2 look on, and the share of operations after which one acts.
_WATCHED, WATCHED = 0.3, 0.4
#: Runs in which clients of version 2 act, and the share of operations after which one does.
_ACTED, ACTED = 0.35, 0.5
#: One in so many seeds has an editor from elsewhere, which does this share of the operations.
_FAR, FAR = 10, 0.35
#: What a client that joins may declare of itself.
DECLARED: tuple[dict[str, bool], ...] = (
    *[{}] * 3,
    {"state": True},
    {"ownTurnsOnly": True},
    {"observer": True},
)
#: Sessions that a run has at the same time.
SLOTS = 3
#: An update of 10 MB in every turn: a few are enough.
_HEAVY = "big-line"
#: Request ids beside the usual ones: JSON-RPC allows any string and any number.
_ODD_IDS = ("", "0", "null", "é\ud800", "x" * 300)


@dataclass(frozen=True, slots=True)
class Operation:
    """One step of a run; `rng` is its own, so that no step changes what another one draws."""

    kind: str
    #: the session that is meant, from 0.
    slot: int
    rng: random.Random
    #: below 1: says which of the clients that there are does it.
    who: float = 0.0


def behaviours(seed: int) -> tuple[str, ...]:
    """Each behaviour comes once in as many seeds as there are, now and then with another one."""
    names = [*BEHAVIOURS, ""]
    rng = random.Random(f"{seed}.agent")
    chosen = [names[seed % len(names)]]
    if rng.random() < 0.3:
        chosen.append(rng.choice([name for name in names if name != _HEAVY]))
    if random.Random(f"{seed}.pauses").random() < 0.4:
        chosen.append("pauses")
    if random.Random(f"{seed}.steers").random() < 0.5:
        chosen.append("steers")
    if random.Random(f"{seed}.works").random() < 0.2:
        chosen.append("works-on")
    if "late-replay" in chosen:
        chosen.append("load-only")  # else it is never asked to replay
    return tuple(dict.fromkeys(filter(None, chosen)))


def options(seed: int) -> list[str]:
    """The bridge's own."""
    rng = random.Random(f"{seed}.options")
    chosen = ["--drain-timeout", rng.choice(["0.1", "0.3"])]
    if rng.random() < 0.15:
        chosen += ["--delivery", "interrupt"]
    if rng.random() < 0.2:
        chosen += ["--on-cancel", "clear"]
    if rng.random() < 0.2:
        chosen += ["--reload-after-cancel", "always"]
    if rng.random() < 0.4:
        chosen += ["--sleep-after", rng.choice(["0.0005", "0.005"])]
    if random.Random(f"{seed}.spare").random() < 0.3:
        chosen.append("--spare")
    # An agent that keeps its lock after a close can't share: nobody else takes the session up.
    lets_go = "writer-lock" not in behaviours(seed)
    if lets_go and random.Random(f"{seed}.shares").random() < 0.75:
        chosen += ["--process-per-session", "off"]
    if keeps(seed):
        chosen += ["--keep", "1h"]
    return chosen


def keeps(seed: int) -> bool:
    """True if the bridges outlive their clients (`--keep`)."""
    return random.Random(f"{seed}.keep").random() < _KEPT


def has_two(seed: int) -> bool:
    """True if a second bridge on the same home comes and goes."""
    return random.Random(f"{seed}.two").random() < _TWO


def is_watched(seed: int) -> bool:
    """True if clients of version 2 look on."""
    return random.Random(f"{seed}.watched").random() < _WATCHED


def is_acted(seed: int) -> bool:
    """True if clients of version 2 do things of their own."""
    return random.Random(f"{seed}.acted").random() < _ACTED


def with_editors_from_elsewhere(*, wanted: bool) -> None:
    """Say whether there are any in this process: `--far`."""
    global _far
    _far = wanted


_far = False


def is_far(seed: int) -> bool:
    """True if an editor comes from elsewhere, behind `acp-bridge connect`."""
    return _far and seed % _FAR == 0


def goes_far(seed: int, operation: Operation) -> random.Random | None:
    """Where the decisions come from if that editor does an operation."""
    rng = random.Random(f"{seed}.{operation.who}.far")
    return rng if rng.random() < FAR else None


def acts(seed: int, operation: Operation) -> random.Random | None:
    """Where the decisions come from if one of them does something after an operation."""
    rng = random.Random(f"{seed}.{operation.who}.acts")
    return rng if rng.random() < ACTED else None


def place(who: float, count: int) -> int:
    """Which of so many clients does it, from 0: the first does half of it."""
    if count < 2 or who < 1 - _OTHERS:
        return 0
    return 1 + int((who - (1 - _OTHERS)) / _OTHERS * (count - 1))


def hooks(seed: int) -> str:
    """The text of the `hooks.toml` in the bridge's home; without hooks in most seeds."""
    rng = random.Random(f"{seed}.hooks")
    return rng.choice(_HOOKS) if rng.random() < 0.3 else ""


def operations(seed: int, count: int) -> Iterator[Operation]:
    """The first one opens a session."""
    rng = random.Random(f"{seed}.operations")
    weights = dict(WEIGHTS)
    if not has_two(seed):
        del weights["other"]
    if not keeps(seed):
        del weights["end_kept"]
    if _HEAVY in behaviours(seed):
        weights |= {"prompt": 3, "interrupt": 1}
    yield Operation("new", 0, random.Random(f"{seed}.0"))
    for number in range(1, count):
        (kind,) = rng.choices(list(weights), list(weights.values()))
        # Mostly one session, or nothing would ever be in another one's way.
        slot = rng.choices(range(SLOTS), [6, 2, 1])[0]
        who = random.Random(f"{seed}.{number}.who").random()
        yield Operation(kind, slot, random.Random(f"{seed}.{number}"), who)


def words(number: int, count: int) -> list[str]:
    """The words of one prompt, which no other prompt has."""
    return [f"p{number}.{n}." for n in range(count)]


def prompt_text(rng: random.Random, number: int) -> tuple[str, list[str]]:
    """A prompt in the agents' command language, and the words that a whole turn of it says."""
    said = words(number, rng.randrange(2, 8))
    cut = rng.randrange(1, len(said))
    middle = rng.choices(_MIDDLES, k=rng.randrange(3))
    middle = [_question(f"q{number}.{at}") if m == "QUESTION" else m for at, m in enumerate(middle)]
    parts = [f"say {' '.join(said[:cut])}", *middle, f"say {' '.join(said[cut:])}"]
    if (end := rng.choice(_ENDS)) and rng.random() < 0.4:
        parts.append(end)
    return "; ".join(parts).replace("NUMBER", str(number)), said


def steers(text: str) -> bool:
    """True if a prompt is to join the turn that runs: one in eight, whatever else is drawn."""
    return random.Random(f"steer {text}").random() < 0.125


def _question(name: str) -> str:
    kinds = {"allow": "allow_once", "reject": "reject_once"}
    options = [{"optionId": each, "name": each, "kind": kind} for each, kind in kinds.items()]
    params = {"toolCall": {"toolCallId": name, "title": name}, "options": options}
    return f"ask session/request_permission {json.dumps(params)}"


_MIDDLES = (
    *["gate g"] * 4,
    "stream 5",
    "stream 40 1",
    "stream 2000",
    "think hm",
    "tool tNUMBER",
    "tool tNUMBER; gate g; tool-done tNUMBER",
    "tool uNUMBER; tool-done uNUMBER",
    "permission",
    "permission 2",
    *["QUESTION"] * 4,
    "elicit",
    "read /none",
    "write /fNUMBER",
    "terminal; terminal-wait; terminal-release",
    "terminal; gate g",
    'update {"sessionUpdate": "plan", "entries": []}',
    'update {"sessionUpdate": "from_the_future", "value": [1.0, null]}',
    'update {"sessionUpdate": "current_mode_update", "currentModeId": "edit"}',
    "big 300000",
    "noise",
    "child",
    "grandchild",
)


def _hook(event: str, command: str, timeout: int = 60) -> str:
    return f"[[{event}]]\ncommand = {json.dumps(command)}\ntimeout = {timeout}\n"


#: The feedback waits at a gate, so that it can be stopped, held or killed in its middle.
_FEEDBACK = _hook("Stop", "grep -q active.*true || { echo '; gate g; say thanks' >&2; exit 2; }")
_HOOKS = (
    _FEEDBACK,
    _hook("UserPromptSubmit", "echo '; think context'") + _FEEDBACK,
    _hook("UserPromptSubmit", "sleep 0.2") + _hook("Stop", "setsid sleep 60 & exit 1"),
    _hook("UserPromptSubmit", "sleep 60", timeout=1) + _hook("SessionEnd", "sleep 60"),
    _hook("PermissionRequest", "sleep 0.1; exit 2") + _hook("AgentDied", "exit 1"),
)
_ENDS = ("fail", "die", "exit 3", "stop max_tokens", "gate g")


def request_id(rng: random.Random, number: int) -> int | float | str | None:
    """An odd id, or None for the usual: the client counts."""
    if rng.random() < 0.85:
        return None
    odd = rng.choice([f"request {number}", -number - 1, 2**53 + number, number + 0.5, None])
    return rng.choice(_ODD_IDS) + str(number) if odd is None else odd
