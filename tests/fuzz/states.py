"""What a client was told of where its sessions stand (`_acp_bridge/state`)."""

from __future__ import annotations

from collections.abc import Iterable

from acp_bridge.core.protocol import SESSION_STATE
from tests.crash.told import Lost
from tests.fuzz.prompts import Prompt
from tests.support.recording import Recording

#: nothing runs or waits in these.
_AT_REST = frozenset(("idle", "asleep", "closed"))
_WORDS = _AT_REST | {
    "running",
    "working",
    "permission",
    "paused",
    "held",
    "cancelling",
    "starting",
    "blocked",
}


def judge_states(recording: Recording, prompts: Iterable[Prompt], own: set[int]) -> int:
    """Returns how many states were judged; `own`: the numbers of this client's prompts."""
    texts = {prompt.text[:200]: prompt.number for prompt in prompts}
    told = recording.requests(SESSION_STATE)
    # Who has what was held run waits for that, too.
    runs_held = any(b'"/queue run"' in r.raw for r in recording if r.direction == "out")
    for message in told:
        params = message["params"]
        if params["state"] not in _WORDS or params["waiting"] < 0 or params["clients"] < 0:
            raise Lost(f"no state: {params}")
        turn = params.get("turn")
        if turn and params["state"] in _AT_REST:
            raise Lost(f"a turn of a session at rest: {params}")
        number = texts.get(turn["text"]) if turn else None
        if turn and number is not None and turn["mine"] and not runs_held and number not in own:
            raise Lost(f"somebody else's prompt is called the client's own: {params}")
    return len(told)
