"""Judges, from the fixture's log, how sessions share the processes of an agent."""

from collections.abc import Sequence
from typing import Any


def faults_of_sharing(events: Sequence[dict[str, Any]]) -> list[str]:
    """What must not happen: two turns at once in a process, a session open in two of them.

    A session may be opened elsewhere once its process was told to close it, or is dead.
    """
    running: dict[int, dict[str, str]] = {}
    found = []
    for number, event in enumerate(events):
        pid, session = event.get("pid", 0), event.get("session", "")
        turns = running.setdefault(pid, {})
        if event["event"] == "turn":
            if others := {key: text for key, text in turns.items() if key != session}:
                found.append(f"{pid} was given {event['prompt']!r} while it ran {others}")
            turns[session] = event["prompt"]
        elif event["event"] == "answered":
            turns.pop(session, None)
        elif event["event"] == "open elsewhere" and not _is_told_late(event, events[number:]):
            found.append(f"session {session} was opened in {pid}, and {event['holder']} has it")
    return found


def _is_told_late(opened: dict[str, Any], later: Sequence[dict[str, Any]]) -> bool:
    """True if the close is still on its way to the holder, or the holder reads nothing any more."""
    read = [
        event["message"]
        for event in later
        if event["pid"] == opened["holder"] and event["event"] == "received"
    ]
    return not read or any(
        message.get("method") == "session/close"
        and message["params"]["sessionId"] == opened["session"]
        for message in read
    )
