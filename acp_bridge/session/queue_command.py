"""`/queue`: the user's word over prompts. Answered by the bridge at once, never queued.

/queue            what waits, and what is held since a restart
/queue run        run the held prompts, in order; this prompt stays open meanwhile (Stop
                  reaches them)
/queue drop [N]   forget the held prompts, or the one of that number
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from acp_bridge import signals as sig
from acp_bridge.journal import JournalError
from acp_bridge.updates import text_chunk, user_chunk
from acp_bridge.wire.peer import Call

if TYPE_CHECKING:
    from acp_bridge.session.session import Session

Json = dict[str, Any]
_USAGE = "Usage: /queue, /queue run, /queue drop [number]"


def parse(prompt: list[Any]) -> list[str] | None:
    """The words after `/queue`, or None when the prompt is something else."""
    if len(prompt) != 1 or not isinstance(prompt[0], dict):
        return None
    text = prompt[0].get("text")
    words = text.split() if isinstance(text, str) else []
    return words[1:] if words and words[0] == "/queue" else None


def summary(prompt: list[Any], length: int) -> str:
    """The first line of a prompt's text, cut to `length` characters."""
    texts = [block.get("text") for block in prompt if isinstance(block, dict)]
    text = " ".join(" ".join(str(t).split()) for t in texts if t)
    return text if len(text) <= length else text[: length - 1] + "…"


def held_note(held: list[Json]) -> str:
    """What is said after a load about prompts that wait for the user's word."""
    prompts = "1 prompt was" if len(held) == 1 else f"{len(held)} prompts were"
    return (
        f"[acp-bridge] {prompts} waiting when the bridge ended. Held, not run:\n"
        f"{_numbered(held)}\n/queue run runs, /queue drop [number] forgets."
    )


def run(session: Session, call: Call, params: Json, words: list[str]) -> None:
    """Do what the words say and answer the prompt."""
    for block in params["prompt"]:
        session.outlet.record_only({"update": user_chunk(block)})
    match words:
        case []:
            _say(session, _listing(session))
        case ["run"]:
            _run_held(session, call, params)
            return
        case ["drop", *rest]:
            _say(session, _drop(session, rest))
        case _:
            _say(session, _USAGE)
    session.answer_now(call)


def _say(session: Session, text: str) -> None:
    chunk = text_chunk("agent_message_chunk", f"{text}\n\n", f"queue-{session.next_id()}")
    session.outlet.show({"update": chunk})


def _listing(session: Session) -> str:
    waiting = [session.ledger.open[key].params for key in session.machine.waiting]
    lines = [f"{len(waiting)} waiting." if waiting else "Nothing is waiting."]
    if waiting:
        lines.append(_numbered(waiting))
    if session.ledger.held:
        lines += ["Held since a restart:", _numbered(list(session.ledger.held.values()))]
        lines.append("/queue run runs them, /queue drop [number] forgets.")
    return "\n".join(lines)


def _run_held(session: Session, call: Call, params: Json) -> None:
    if not session.ledger.held:
        _say(session, "Nothing is held.")
    keys = []
    for key in list(session.ledger.held):
        try:
            session.ledger.release(key)
        except JournalError:
            _say(session, "The journal can't be written: nothing more is run.")
            break
        keys.append(key)
    carrier = session.ledger.add(call, params)
    session.feed(sig.RunHeld(carrier, tuple(keys)))


def _drop(session: Session, words: list[str]) -> str:
    keys = list(session.ledger.held)
    if words:
        number = int(words[0]) if words[0].isdecimal() and len(words[0]) < 9 else 0
        if len(words) > 1 or not 1 <= number <= len(keys):
            return f"There is no held prompt {' '.join(words)!r}. {_USAGE}"
        keys = [keys[number - 1]]
    try:
        for key in keys:
            session.ledger.drop(key)
    except JournalError:
        return "The journal can't be written: the rest is still held."
    return f"Dropped {len(keys)}." if keys else "Nothing is held."


def _numbered(prompts: list[Json]) -> str:
    return "\n".join(f"  {n}. {summary(p['prompt'], 70)}" for n, p in enumerate(prompts, 1))
