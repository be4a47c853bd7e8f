"""What the clients of a round were told, and whether a later load agrees with it.

A prompt says words that no other says, so each of them can be found: it is in the transcript once,
whole, or cut where that was told, or it is held, or a client was told that it was cancelled.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from acp_bridge.core.updates.notices import INTERRUPTED
from tests.support.client import RecordingClient
from tests.support.recording import Message, Recording
from tests.support.v2_conversation import Broken, Conversation
from tests.whole.judge import judge_answers, stop_reason

_STREAM = re.compile(r"stream (\d+)")
#: what is answered to a prompt that had waited when the journal could not be written.
_NOT_SENT = "so the prompt was not sent"
#: the bridge that passed a prompt on says so in the place of an answer that it did not get.
_UNKNOWN = "the session is opened here, and what waited in it is held"
#: what a turn is told to have ended with when its agent was killed, also to who comes later.
_AGENT_ENDED = "The agent ended during the turn"
#: what the fixture agent says of the answer to a question, and outside of prompts.
_ANSWERED = re.compile(r"\[permission [^]]*\]|\[on\]")


class Lost(AssertionError):
    """Something acknowledged or shown is missing, or somebody waits for ever."""


@dataclass(slots=True)
class Told:
    """What one client has asked and was told."""

    #: it has seen the session from its beginning.
    whole: bool = True
    #: the one session that counts, of those that the client has; "": all.
    session_id: str = ""
    #: texts of prompts that the bridge said it had accepted.
    accepted: list[str] = field(default_factory=list)
    #: answers by the texts of their prompts.
    answers: dict[str, Message] = field(default_factory=dict)
    #: texts of prompts that were answered when their turns began, as in version 2.
    begun: set[str] = field(default_factory=set)
    #: what the agent was seen to say, in order; the session was interrupted between two pieces.
    shown: list[str] = field(default_factory=list)
    #: when that was read last that must be there; the rest may be lost.
    until: float = math.inf

    def note(self, client: RecordingClient) -> None:
        """Take all that the client has recorded so far. Raises Lost if a request has two answers.

        What was taken before stays: the client of a round may be another one each time.
        """
        texts = {
            record.message["id"]: record.message["params"]["prompt"][0]["text"]
            for record in client.recording
            if record.direction == "out"
            and record.message
            and _is_prompt(record.message)
            and self.session_id in ("", record.message["params"]["sessionId"])
        }
        for message in client.recording.requests("_acp_bridge/accepted"):
            text = texts.get(message["params"]["requestId"])
            if text is not None and text not in self.accepted:
                self.accepted.append(text)
        for request, text in texts.items():
            for answer in client.recording.answers(request):
                self.answers[text] = answer
        seen = Recording(record for record in client.recording if record.time <= self.until)
        self.shown = pieces(seen.updates(self.session_id or None))
        try:
            judge_answers(client.recording)
        except AssertionError as exc:
            raise Lost(f"a request has two answers: {exc}") from exc

    def note_v2(self, client: RecordingClient) -> None:
        """Take the same of a client that speaks version 2. Raises Lost if that is broken."""
        conversation = Conversation()
        try:
            conversation.take_all(client.recording)
        except Broken as broken:
            raise Lost(str(broken)) from None
        for attempt in conversation.attempts.values():
            if attempt.accepted and attempt.text not in self.accepted:
                self.accepted.append(attempt.text)
            if attempt.message:
                self.begun.add(attempt.text)
            if outcome := attempt.outcome:
                self.answers[attempt.text] = outcome
        self.shown = pieces(client.recording.updates())


@dataclass(slots=True)
class Turn:
    """A turn, as a load shows it."""

    prompt: str
    said: str = ""
    #: the bridge says that it was interrupted, or that its agent has ended.
    interrupted: bool = False


def pieces(updates: Iterable[Message]) -> list[str]:
    """What the agent says in these updates, cut where the bridge says `Interrupted`."""
    found = [""]
    for update in updates:
        if _interrupts(update):
            found.append("")
        else:
            found[-1] += _agents_words(update)
    return found


def turns(updates: Iterable[Message]) -> list[Turn]:
    """The turns that these updates of a load show; a command may stand in the middle of one."""
    found: list[Turn] = []
    for update in updates:
        if update["sessionUpdate"] == "user_message_chunk":
            if not _is_command(update["content"]["text"]):
                found.append(Turn(update["content"]["text"]))
        elif found:
            found[-1].interrupted |= _interrupts(update) or _AGENT_ENDED in str(update)
            found[-1].said += _agents_words(update)
    return found


def _agents_words(update: Message) -> str:
    own = str(update.get("messageId", "")).startswith("acp-bridge-")
    is_said = update["sessionUpdate"] == "agent_message_chunk" and not own
    return str(update["content"]["text"]) if is_said else ""


def _interrupts(update: Message) -> bool:
    return INTERRUPTED in str(update.get("content"))


def words(prompt: str) -> str:
    """What the fixture agent says to a prompt, if it is let; see its `commands.py`."""
    said = ""
    for part in prompt.split(";"):
        command, _, rest = part.strip().partition(" ")
        if command == "say":
            said += rest
        elif found := _STREAM.match(part.strip()):
            said += "".join(f"{number} " for number in range(int(found[1])))
    return said


def judge(
    told: Sequence[Told], replay: Sequence[Turn], held: Sequence[str], *, cut: bool, spoken: bool
) -> None:
    """Compare a load with what all clients of a round were told. Raises Lost.

    `cut`: a prompt may have been cancelled, or its agent killed, and nobody told of it. `spoken`:
    the agent's words are known.
    """
    said = "".join(turn.said for turn in replay)
    for each in told:
        first, *others = each.shown or [""]
        if not (said.startswith(first) if each.whole else first in said):
            raise Lost(f"shown {first[-300:]!r}, replayed {said[-300:]!r}")
        if missing := [piece for piece in others if piece not in said]:
            raise Lost(f"shown {missing[0][-300:]!r}, replayed {said[-300:]!r}")
    answers = {text: answer for each in told for text, answer in each.answers.items()}
    accepted = {text for each in told for text in each.accepted}
    known = [turn.prompt for turn in replay]
    for text in accepted | answers.keys():
        times = known.count(text), held.count(text)
        _judge_count(text, times, text in accepted, answers.get(text), cut=cut)
    if gone := {text for each in told for text in each.begun} - set(known):
        raise Lost(f"the turns of {gone} had begun, and are not in the transcript")
    for turn in replay if spoken else ():
        _judge_turn(turn, answers.get(turn.prompt), cut=cut)


def _judge_count(
    text: str, times: tuple[int, int], accepted: bool, answer: Message | None, *, cut: bool
) -> None:
    reason = stop_reason(answer or {})
    told_so = reason == "cancelled" or _NOT_SENT in str(answer)
    unanswered = answer is None or _UNKNOWN in str(answer)
    may_be_gone = told_so or (unanswered and cut) or not accepted
    if sum(times) > 1 or (sum(times) == 0 and not may_be_gone):
        raise Lost(f"{text!r}, {accepted=}, {answer=}: {times[0]} times said, {times[1]} held")
    if reason and times[1]:
        raise Lost(f"{text!r} was answered {reason}, and is held")
    if reason == "end_turn" and not times[0]:
        raise Lost(f"{text!r} was answered, and is not in the transcript")


def _judge_turn(turn: Turn, answer: Message | None, *, cut: bool) -> None:
    said, wanted = _ANSWERED.sub("", turn.said), words(turn.prompt)
    if not wanted.startswith(said):
        raise Lost(f"{turn.prompt!r} has said {said[-300:]!r}: a word is missing, or comes twice")
    is_over = stop_reason(answer or {}) == "end_turn" or (answer is None and not cut)
    if said != wanted and is_over and not turn.interrupted:
        raise Lost(f"{turn.prompt!r} ({answer}) is neither whole nor interrupted: {said[-300:]!r}")


def held_in(result: dict[str, Any]) -> list[str]:
    """The texts of the prompts that a load says are held."""
    held: list[list[Message]] = result["_meta"]["acp_bridge"].get("held", [])
    return [block["text"] for prompt in held for block in prompt]


def _is_prompt(message: Message) -> bool:
    """Return True for a prompt that is no command."""
    if message.get("method") != "session/prompt":
        return False
    return not _is_command(message["params"]["prompt"][0]["text"])


def _is_command(text: str) -> bool:
    return text.startswith("/queue")
