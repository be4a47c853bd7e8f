"""The checks, as functions of what a client recorded. No I/O, no clock.

Each returns a `Finding`, or raises `Unexpected`, which tells what was expected and what was seen.
Prompts are named by the ids of their requests.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from acp_bridge.demo import transcript
from acp_bridge.demo.recording import ACCEPTED, Chunk, Finding, Recording, Unexpected

_AGENT_SAYS = re.compile(r"Process (\d+), cancelled (?:(\d+) times|(once))\.")


# --- one prompt ----------------------------------------------------------------------------------


def the_answer(recording: Recording, prompt: int) -> int:
    """Return the place of the one answer to a request (invariant Q9)."""
    places = recording.answers(prompt)
    if len(places) != 1:
        raise Unexpected(f"one answer to {_named(recording, prompt)}", f"{len(places)}")
    return places[0]


def stop_reason(recording: Recording, prompt: int) -> str:
    """Return the stop reason in the one answer to a prompt; `error CODE` for an error."""
    message = recording[the_answer(recording, prompt)].message
    if error := message.get("error"):
        return f"error {error.get('code')}: {error.get('message')}"
    return str((message.get("result") or {}).get("stopReason"))


def turn(recording: Recording, prompt: int) -> list[Chunk]:
    """Return what was shown between the answer before and its own, the turn of this prompt."""
    end = the_answer(recording, prompt)
    start = recording.sent(prompt)
    for other in recording.requests():
        start = max([start, *(at for at in recording.answers(other) if at < end)])
    return list(recording.chunks(start, end))


def said(chunks: Iterable[Chunk]) -> str:
    """Return the agent's words, joined."""
    return "".join(chunk.text for chunk in chunks if chunk.speaker == "agent")


def recalls(recording: Recording, prompt: int, earlier: Sequence[str]) -> Finding:
    """Check that a prompt was answered with `end_turn` and exactly the words told before.

    None is missing and none is of another turn (invariants C9, C6, Q3).
    """
    _ended_as("end_turn", recording, prompt)
    expected = "You told me: " + "; ".join(earlier)
    words = said(chunk for chunk in turn(recording, prompt) if not chunk.notice)
    _same(expected, words, f"in answer to {_named(recording, prompt)}")
    seconds = _seconds(recording, recording.sent(prompt), the_answer(recording, prompt))
    return Finding(seconds, f"{len(earlier)} earlier prompt{'s' * (len(earlier) > 1)} known")


# --- 1: three at once ----------------------------------------------------------------------------


def answered_in_order(recording: Recording, prompts: Sequence[int]) -> Finding:
    """Check that prompts sent before any update were answered once each, in order (Q1, Q9)."""
    asked = max(recording.sent(prompt) for prompt in prompts)
    places = [the_answer(recording, prompt) for prompt in prompts]
    if next((chunk for chunk in recording.chunks(recording.sent(prompts[0]), asked)), None):
        raise Unexpected("all asked before the first update", "an update between them")
    if places != sorted(places):
        order = sorted(range(len(places)), key=places.__getitem__)
        seen = ", ".join(str(number + 1) for number in order)
        raise Unexpected("answers in the order of asking", f"the order {seen}")
    for prompt in prompts:
        _ended_as("end_turn", recording, prompt)
    seconds = _seconds(recording, recording.sent(prompts[0]), places[-1])
    return Finding(seconds, "")


def streamed(recording: Recording, prompts: Sequence[int], texts: Sequence[str]) -> Finding:
    """Check that the updates of turn k came before answer k, in pieces, with the right text."""
    start = recording.sent(prompts[0])
    first, count = None, 0
    for prompt, text in zip(prompts, texts, strict=True):
        chunks = turn(recording, prompt)
        place = f"before the answer to {_named(recording, prompt)}"
        _same(text, said(chunks), place)
        if len(chunks) < 2:
            raise Unexpected(f"several updates {place}", f"{len(chunks)}")
        first, count = first or chunks[0], count + len(chunks)
    assert first is not None
    return Finding(_seconds(recording, start, first.at), f"{count}")


# --- 2 to 5: turns that end before their time ----------------------------------------------------


def cancelled(recording: Recording, prompt: int, *, drained: float = 0) -> Finding:
    """Check that a prompt that had shown something was answered `cancelled` once after a cancel.

    The answer came not before the agent had `drained` seconds to stop (invariants C5, C8).
    """
    answer, start = the_answer(recording, prompt), recording.sent(prompt)
    cancels = [at for at in recording.places("session/cancel", "out") if start < at < answer]
    if not cancels:
        raise Unexpected("a cancel sent while the prompt ran", "none before its answer")
    if not any(True for _ in recording.chunks(start, cancels[0])):
        raise Unexpected("updates before the cancel", "none")
    _ended_as("cancelled", recording, prompt)
    seconds = _seconds(recording, cancels[0], answer)
    if seconds < drained:
        raise Unexpected(f"{drained:g} s for the agent to stop", f"{seconds:.2f} s")
    return Finding(seconds, "")


def nothing_follows(recording: Recording, prompt: int) -> Finding:
    """Check that no update of a turn came after its answer (invariant C6).

    Updates of the next turn are told apart by their message ids; between the turns there is none.
    """
    answer = the_answer(recording, prompt)
    own = {chunk.message_id for chunk in turn(recording, prompt)} - {None}
    later = [at for at in recording.places("session/prompt", "out") if at > recording.sent(prompt)]
    next_sent = later[0] if later else len(recording)
    for chunk in recording.chunks(answer + 1):
        if chunk.message_id in own or chunk.at < next_sent:
            raise Unexpected("no update of the turn after its answer", f"{chunk.text!r}")
    return Finding(_seconds(recording, answer, len(recording) - 1), "")


def superseded(recording: Recording, old: int, new: int) -> Finding:
    """Check that the running prompt was answered `cancelled` before the new one ran."""
    _ended_as("cancelled", recording, old)
    _ended_as("end_turn", recording, new)
    if the_answer(recording, new) < the_answer(recording, old):
        raise Unexpected("the old prompt answered first", "the new one was")
    chunks = turn(recording, new)
    if not chunks:
        raise Unexpected("updates of the new prompt", "none")
    return Finding(_seconds(recording, recording.sent(new), chunks[0].at), "")


def cancels_counted(recording: Recording, told: int, expected: int) -> Finding:
    """Check how many cancels the agent says that it got (invariant C11)."""
    _, count = _agent_says(recording, told)
    if count != expected:
        raise Unexpected(f"{expected}", f"{count}")
    seconds = _seconds(recording, recording.sent(told), the_answer(recording, told))
    return Finding(seconds, f"{count}")


def replaced(recording: Recording, stopped: int, before: int, after: int) -> Finding:
    """Check that another process answered `after` than `before`.

    The old one was dead when the stopped prompt was answered (invariants C10, P12).
    """
    old, new = agent_process(recording, before), agent_process(recording, after)
    if old == new:
        raise Unexpected(f"another process than {old}", "the same")
    looked = [line for line in recording.notes("alive") if line.message["pid"] == old]
    if not looked or looked[0].message["alive"]:
        raise Unexpected(f"process {old} gone", "it lives" if looked else "nobody looked")
    answer = the_answer(recording, stopped)
    later = next(recording.chunks(answer), None)
    if later is None:
        raise Unexpected("updates of the new process", "none")
    return Finding(_seconds(recording, answer, later.at), f"process {old}, {new}")


def agent_process(recording: Recording, prompt: int) -> int:
    """Return the process id that the agent told in answer to a prompt."""
    return _agent_says(recording, prompt)[0]


def failed(recording: Recording, prompt: int) -> Finding:
    """Check that a prompt whose agent was killed was answered once, with an error (P3)."""
    killed = [at for at, line in enumerate(recording) if line.message.get("killed") == "agent"]
    answer = the_answer(recording, prompt)
    if not killed or not recording.sent(prompt) < killed[-1] < answer:
        raise Unexpected("the agent killed while the prompt ran", "it was not")
    reason = stop_reason(recording, prompt)
    if not reason.startswith("error "):
        raise Unexpected("an error", reason)
    return Finding(_seconds(recording, killed[-1], answer), reason.partition(":")[0])


# --- 6: the bridge is killed ---------------------------------------------------------------------


def replayed(before: Recording, after: Recording, load: int) -> Finding:
    """Check that all that the first client saw is replayed before the load is answered (K1, R1).

    Only the end of the turn that was killed and words of the bridge may follow.
    """
    answer = the_answer(after, load)
    if error := after[answer].message.get("error"):
        raise Unexpected("the session loaded", str(error))
    shown = transcript.as_shown(before)
    replay = transcript.as_replayed(after, after.sent(load), answer)
    if not replay.startswith(shown):
        raise transcript.difference(shown, replay)
    rest = replay[len(shown) :]
    if transcript.USER in rest:
        raise Unexpected("no prompt but those that had begun", repr(rest))
    seconds = _seconds(after, after.sent(load), answer)
    return Finding(seconds, f"{len(shown.encode())} bytes")


def held(
    before: Recording, waiting: int, after: Recording, load: int, listing: int, run: int
) -> Finding:
    """Check that an accepted prompt is shown as held and does not run by itself (invariant R12)."""
    accepted = before.places(ACCEPTED)
    if waiting not in [before[at].message["params"]["requestId"] for at in accepted]:
        raise Unexpected("the waiting prompt accepted before the kill", "it was not")
    text, answer = before.text_of(waiting), the_answer(after, load)
    result = after[answer].message.get("result") or {}
    prompts = result.get("_meta", {}).get("acp_bridge", {}).get("held", [])
    texts = [prompt[0]["text"] for prompt in prompts]
    if texts != [text]:
        raise Unexpected(f"held: {text!r}", f"{texts}")
    shown = said(after.chunks(answer, after.sent(run)))
    listed = f"Held since a restart:\n\n1. {text}\n\n"
    if listed not in shown or shown != said(turn(after, listing)):
        raise Unexpected(f"{listed!r} from /queue, and nothing else", repr(shown))
    return Finding(_seconds(after, answer, after.sent(run)), "")


# --- the end -------------------------------------------------------------------------------------


def each_answered_once(recordings: Sequence[Recording]) -> Finding:
    """Check that each request has one answer; those of a killed bridge may have none (Q9)."""
    seconds, count = 0.0, 0
    for recording in recordings:
        killed = any(line.message.get("killed") == "bridge" for line in recording)
        for request in recording.requests():
            if recording.answers(request) or not killed:
                answer = the_answer(recording, request)
                seconds = max(seconds, _seconds(recording, recording.sent(request), answer))
                count += 1
    return Finding(seconds, f"{count}")


def nothing_left(recordings: Sequence[Recording]) -> Finding:
    """Check that every process that was seen in the tree of a bridge is gone (invariant P1)."""
    ends = [line.message for recording in recordings for line in recording.notes("left")]
    left = [pid for end in ends for pid in end["left"]]
    if left:
        raise Unexpected("no process", f"alive: {left}")
    if not ends or len(ends) != len(recordings):
        raise Unexpected(f"{len(recordings)} bridges looked after", f"{len(ends)}")
    return Finding(max(end["seconds"] for end in ends), f"{sum(end['of'] for end in ends)} gone")


# --- helpers -------------------------------------------------------------------------------------


def _named(recording: Recording, request: int) -> str:
    return repr(recording.text_of(request))


def _seconds(recording: Recording, start: int, end: int) -> float:
    return recording[end].time - recording[start].time


def _ended_as(expected: str, recording: Recording, prompt: int) -> None:
    reason = stop_reason(recording, prompt)
    if reason != expected:
        raise Unexpected(f"{expected} for {_named(recording, prompt)}", reason)


def _same(expected: str, seen: str, place: str) -> None:
    if seen != expected:
        raise Unexpected(f"{expected!r} {place}", repr(seen))


def _agent_says(recording: Recording, prompt: int) -> tuple[int, int]:
    """Return the agent's process id, and how many cancels it got, as it says."""
    text = said(turn(recording, prompt))
    if not (match := _AGENT_SAYS.fullmatch(text)):
        raise Unexpected("the agent's process and count of cancels", repr(text))
    return int(match[1]), 1 if match[3] else int(match[2])
