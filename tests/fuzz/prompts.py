"""Prompts and connections of one run, as the fuzzer knows them."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from typing import Any

from tests.fuzz.transcripts import Transcript
from tests.support.recording import Message
from tests.whole.judge import stop_reason

#: what a prompt is answered with that waited when its session was closed for all.
KEPT = "; it is kept:"
#: what words are answered with that the agent may not have read, and that it was never sent.
UNREAD, NOT_JOINED = "perhaps not read", "that these words were to join"
#: with this begin the ids of what `works-on` does outside of prompts: no turn's.
WORK = "work-"
WORD = re.compile(r"p(\d+)\.\d+\.")
#: the number of the first prompt of a client of version 2.
NEWER = 1_000_000


@dataclass(slots=True)
class Prompt:
    """One prompt, and what became of it."""

    number: int
    session_id: str
    #: the bridge that it was sent to, from 0.
    life: int
    text: str
    #: what a whole turn says.
    words: list[str]
    #: it cancels what runs: it may overtake others.
    urgent: bool
    #: the client that has sent it: 0 is the one that starts the bridges.
    by: int = 0
    #: how many bridges had ended when it was sent.
    era: int = 0
    #: its words are to join the turn that runs: they may be sent into it, and be shown there.
    steers: bool = False
    #: its client has sent something after it that may cancel it.
    own_stop: bool = False
    #: it was sent again, under its key.
    again: bool = False
    #: its client did not have the session for a while.
    unseen: bool = False
    #: something that may cancel it was sent after it.
    stoppable: bool = False
    #: its client has given up the request when it seemed to be left over: then it stays so.
    given_up: bool = False
    accepted: bool = False
    #: its bridge was kept when its client ended, and was not ended before all had come to rest.
    kept: bool = False
    #: None if the bridge ended before.
    answer: Message | None = None
    #: when that was read, in monotonic seconds.
    answered: float = 0.0

    def send_again(self) -> None:
        """Note that it is sent again, under its key.

        Where an attempt before was lost, or refused, it is a new prompt, behind those sent since.
        """
        self.urgent = self.again = True
        self.answer = self.answer if self.accepted else None

    @property
    def may_be_unread(self) -> bool:
        """True if it steers, and may be left over so that the user's word sends it once more."""
        return self.steers and (self.answer is None or UNREAD in str(self.answer))

    @property
    def stopped(self) -> Any:
        """The stop reason; None for an error, and for no answer."""
        return stop_reason(self.answer or {})


@dataclass(frozen=True, slots=True)
class ClosedForAll:
    """One client has asked that a session be closed for all; who is silent is not told of it."""

    #: in monotonic seconds.
    time: float
    session_id: str
    #: the number of the client.
    by: int


@dataclass(slots=True)
class Guest:
    """A connection whose client did not start the run's first bridges, from beginning to end."""

    number: int
    life: int
    #: when it began, in monotonic seconds.
    began: float = 0.0
    transcripts: dict[str, Transcript] = field(default_factory=dict)


def key(request_id: object) -> str:
    """An id as it is on the wire: 1 and "1" are two."""
    return json.dumps(request_id)


def number_of(text: str) -> int | None:
    """The number of the prompt whose words these are."""
    found = WORD.search(text)
    return int(found[1]) if found else None
