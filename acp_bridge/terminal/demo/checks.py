"""The checks of the demo, as functions of what a client recorded. No I/O, no clock.

Each returns a `Finding`, or raises `Unexpected` with what was expected and what was seen. Prompts
are given by the ids of their requests.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from acp_bridge.core.protocol import ACCEPTED, SESSION_CANCEL, SESSION_PROMPT, own_meta
from acp_bridge.terminal.demo.recording import Chunk, Finding, Recording, Unexpected
from acp_bridge.terminal.view.blocks import Voice

_AGENT_SAYS = re.compile(r"Process (\d+), cancelled (?:(\d+) times|(once))\.")
#: The text before each of the user's prompts, where a conversation is one text.
_USER = "\n[user] "


def recalls(recording: Recording, prompt: int, earlier: Sequence[str]) -> Finding:
    """Check that a prompt was answered with `end_turn` and with exactly the `earlier` prompts.

    None of them may be missing, and no text of another turn may stand between (invariants C9, C6,
    Q3).
    """
    turn = recording.turn(prompt, "end_turn")
    own = [chunk for chunk in turn.chunks if chunk.said.voice is not Voice.BRIDGE]
    expected = "You told me: " + "; ".join(earlier)
    _same(expected, _spoken(own), f"in answer to {turn.name!r}")
    seconds = recording.seconds(turn.sent, turn.answer)
    return Finding(seconds, f"{len(earlier)} earlier prompt{'s' * (len(earlier) > 1)} known")


def answered_in_order(recording: Recording, prompts: Sequence[int]) -> Finding:
    """Check that prompts sent before any update were answered once each, in order (Q1, Q9)."""
    turns = [recording.turn(prompt, "end_turn") for prompt in prompts]
    places = [turn.answer for turn in turns]
    if any(recording.chunks(turns[0].sent, max(turn.sent for turn in turns))):
        raise Unexpected("all asked before the first update", "an update between them")
    if places != sorted(places):
        order = sorted(range(len(places)), key=places.__getitem__)
        seen = ", ".join(str(number + 1) for number in order)
        raise Unexpected("answers in the order of asking", f"the order {seen}")
    return Finding(recording.seconds(turns[0].sent, places[-1]))


def streamed(recording: Recording, prompts: Sequence[int], texts: Sequence[str]) -> Finding:
    """Check that each prompt was answered with its one of `texts`, in updates before its answer.

    Each needs at least two updates.
    """
    turns = [recording.turn(prompt) for prompt in prompts]
    for turn, text in zip(turns, texts, strict=True):
        place = f"before the answer to {turn.name!r}"
        _same(text, _spoken(turn.chunks), place)
        if len(turn.chunks) < 2:
            raise Unexpected(f"several updates {place}", f"{len(turn.chunks)}")
    count = sum(len(turn.chunks) for turn in turns)
    return Finding(recording.seconds(turns[0].sent, turns[0].chunks[0].at), f"{count}")


def cancelled(recording: Recording, prompt: int, *, drained: float = 0) -> Finding:
    """Check that a prompt was answered `cancelled`, after updates that came before a cancel.

    `drained`: seconds that the agent had to stop; the answer must not come earlier (invariants C5,
    C8).
    """
    turn = recording.turn(prompt, "cancelled")
    cancels = recording.places("out", method=SESSION_CANCEL)
    if not (cancels := [at for at in cancels if turn.sent < at < turn.answer]):
        raise Unexpected("a cancel sent while the prompt ran", "none before its answer")
    if not any(recording.chunks(turn.sent, cancels[0])):
        raise Unexpected("updates before the cancel", "none")
    seconds = recording.seconds(cancels[0], turn.answer)
    if seconds < drained:
        raise Unexpected(f"{drained:g} s for the agent to stop", f"{seconds:.2f} s")
    return Finding(seconds)


def nothing_follows(recording: Recording, prompt: int) -> Finding:
    """Check that no update of a prompt's turn came after its answer (invariant C6).

    Updates of the next turn are told apart by their message ids; before its prompt there may be no
    update.
    """
    turn, prompts = recording.turn(prompt), recording.places("out", method=SESSION_PROMPT)
    own = {_message_id(chunk) for chunk in turn.chunks} - {None}
    following = min((at for at in prompts if at > turn.sent), default=len(recording))
    for chunk in recording.chunks(turn.answer + 1):
        if _message_id(chunk) in own or chunk.at < following:
            raise Unexpected("no update of the turn after its answer", f"{chunk.text!r}")
    return Finding(recording.seconds(turn.answer, -1))


def superseded(recording: Recording, old: int, new: int) -> Finding:
    """Check that the prompt `new` superseded `old`, which was answered first, and `cancelled`."""
    before, after = recording.turn(old, "cancelled"), recording.turn(new, "end_turn")
    if after.answer < before.answer:
        raise Unexpected("the old prompt answered first", "the new one was")
    if not after.chunks:
        raise Unexpected("updates of the new prompt", "none")
    return Finding(recording.seconds(after.sent, after.chunks[0].at))


def cancels_counted(recording: Recording, told: int, expected: int) -> Finding:
    """Check that the agent has counted `expected` cancels (invariant C11).

    `told`: the prompt that asked it for the count.
    """
    _, count = _agent_says(recording, told)
    if count != expected:
        raise Unexpected(f"{expected}", f"{count}")
    return Finding(recording.seconds(recording.sent(told), recording.the_answer(told)), f"{count}")


def replaced(recording: Recording, stopped: int, before: int, after: int) -> Finding:
    """Check that the prompts `before` and `after` were answered by different agent processes.

    The process of `before` must be dead when the prompt `stopped` is answered (invariants C10,
    P12).
    """
    old, new = agent_process(recording, before), agent_process(recording, after)
    if old == new:
        raise Unexpected(f"another process than {old}", "the same")
    looks = [recording[at].message["alive"] for at in recording.places("note", pid=old)]
    if not looks or looks[0]:
        raise Unexpected(f"process {old} gone", "it lives" if looks else "nobody looked")
    answer = recording.the_answer(stopped)
    if (later := next(recording.chunks(answer), None)) is None:
        raise Unexpected("updates of the new process", "none")
    return Finding(recording.seconds(answer, later.at), f"process {old}, {new}")


def agent_process(recording: Recording, prompt: int) -> int:
    """Return the process id that the agent named in its answer to a prompt."""
    return _agent_says(recording, prompt)[0]


def failed(recording: Recording, prompt: int) -> Finding:
    """Check that a prompt whose agent was killed got one answer, an error (invariant P3)."""
    turn, killed = recording.turn(prompt), recording.places("note", killed="agent")
    if not killed or not turn.sent < killed[-1] < turn.answer:
        raise Unexpected("the agent killed while the prompt ran", "it was not")
    if not turn.reason.startswith("error "):
        raise Unexpected("an error", turn.reason)
    return Finding(recording.seconds(killed[-1], turn.answer), turn.reason.partition(":")[0])


def replayed(before: Recording, after: Recording, load: int) -> Finding:
    """Check that all that the client `before` saw is replayed to `after` before its load's answer.

    `load`: the id of the load's request. Only the end of the turn that was killed, and text of the
    bridge, may be replayed besides (invariants K1, R1).
    """
    sent, answer = after.sent(load), after.the_answer(load)
    if error := after[answer].message.get("error"):
        raise Unexpected("the session loaded", str(error))
    shown = _as_text(_shown(before))
    spoken = (each for each in after.chunks(sent, answer) if not each.is_notice)
    replay = _as_text((chunk.speaker, chunk.text) for chunk in spoken)
    if not replay.startswith(shown):
        pairs = zip(shown, replay, strict=False)
        end = min(len(shown), len(replay))
        differs = next((at for at, (a, b) in enumerate(pairs) if a != b), end)
        near = slice(max(0, differs - 20), differs + 60)
        raise Unexpected(repr(shown[near]), repr(replay[near]))
    if _USER in (rest := replay[len(shown) :]):
        raise Unexpected("no prompt but those that had begun", repr(rest))
    return Finding(after.seconds(sent, answer), f"{len(shown.encode())} bytes")


def left_over(
    before: Recording, waiting: int, after: Recording, load: int, listing: int, run: int
) -> Finding:
    """Check that a prompt left over by a killed bridge is shown and does not run (invariant R12).

    `waiting`: the prompt, accepted `before` the kill. The answer to `load` has it, and so has the
    answer to the prompt `listing` (/queue); nothing else is shown until the prompt `run`.
    """
    accepted = [before[at].message["params"] for at in before.places("in", method=ACCEPTED)]
    if waiting not in [each["requestId"] for each in accepted]:
        raise Unexpected("the waiting prompt accepted before the kill", "it was not")
    text, answer = before.text_of(waiting), after.the_answer(load)
    prompts = own_meta(after[answer].message.get("result") or {}).get("held", [])
    texts = [prompt[0]["text"] for prompt in prompts]
    if texts != [text]:
        raise Unexpected(f"left over: {text!r}", f"{texts}")
    shown = _spoken(after.chunks(answer, after.sent(run)))
    listed = f"Left over since a restart:\n\n- NUMBER: {text}\n\n"
    if listed not in re.sub(r"(?m)^- \d+:", "- NUMBER:", shown) or shown != _spoken(
        after.turn(listing).chunks
    ):
        raise Unexpected(f"{listed!r} from /queue, and nothing else", repr(shown))
    return Finding(after.seconds(answer, after.sent(run)))


def each_answered_once(recordings: Sequence[Recording]) -> Finding:
    """Check that each request has one answer; a killed bridge's may have none (invariant Q9)."""
    took = [
        recording.seconds(sent, recording.the_answer(request))
        for recording in recordings
        for request, sent in recording.requests().items()
        if recording.answers(request) or not recording.places("note", killed="bridge")
    ]
    return Finding(max(took, default=0.0), f"{len(took)}")


def nothing_left(recordings: Sequence[Recording]) -> Finding:
    """Check that every process ever seen in the tree of a bridge is gone (invariant P1)."""
    notes = [recording[at].message for recording in recordings for at in recording.places("note")]
    ends = [note for note in notes if "left" in note]
    if left := [pid for end in ends for pid in end["left"]]:
        raise Unexpected("no process", f"alive: {left}")
    if not ends or len(ends) != len(recordings):
        raise Unexpected(f"{len(recordings)} bridges looked after", f"{len(ends)}")
    return Finding(max(end["seconds"] for end in ends), f"{sum(end['of'] for end in ends)} gone")


def _spoken(chunks: Iterable[Chunk]) -> str:
    return "".join(chunk.text for chunk in chunks if chunk.speaker == "agent")


def _message_id(chunk: Chunk) -> object:
    return chunk.said.update.get("messageId")


def _shown(recording: Recording) -> Iterable[tuple[str, str]]:
    """Yield what the user saw as (speaker, text), each prompt before the updates of its turn.

    The last one is the first prompt without an answer. The prompts must have run in the order in
    which they were sent.
    """
    begin = 0
    for at in recording.places("out", method=SESSION_PROMPT):
        prompt = recording[at].message["id"]
        ends = recording.answers(prompt)
        yield "user", recording.text_of(prompt)
        for chunk in recording.chunks(max(begin, at), ends[0] if ends else None):
            if not chunk.is_notice:
                yield chunk.speaker, chunk.text
        if not ends:
            return
        begin = ends[0]


def _as_text(pieces: Iterable[tuple[str, str]]) -> str:
    """Return a conversation as one text, in which updates of one speaker are joined."""
    text, last = "", ""
    for speaker, piece in pieces:
        if speaker != last or speaker == "user":
            text += f"\n[{speaker}] "
        text, last = text + piece, speaker
    return text


def _same(expected: str, seen: str, place: str) -> None:
    if seen != expected:
        raise Unexpected(f"{expected!r} {place}", repr(seen))


def _agent_says(recording: Recording, prompt: int) -> tuple[int, int]:
    """Return the agent's process id and its count of cancels, from its answer to a prompt."""
    text = _spoken(recording.turn(prompt).chunks)
    if not (match := _AGENT_SAYS.fullmatch(text)):
        raise Unexpected("the agent's process and count of cancels", repr(text))
    return int(match[1]), 1 if match[3] else int(match[2])
