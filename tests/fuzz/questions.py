"""What agents asked the people at all clients, and what came of it (invariant V3).

A prompt's question has a name of its own, so each can be followed: who was asked, who answered
what, who was told that nobody waits any more, and what the agent says it was answered.
"""

from __future__ import annotations

import json
import math
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from acp_bridge.core.protocol import CANCEL_REQUEST, REQUEST_PERMISSION, SESSION_UPDATE
from tests.crash.told import Lost
from tests.fuzz.prompts import Prompt, key, number_of
from tests.support.recording import Message, Record, Recording

#: in a prompt, the name of a question.
_NAME = re.compile(r'"toolCallId": ?"(q\d+\.\d)"')
_WORDS = re.compile(r"p\d+\.\d+\.")
_SAID = "agent_message_chunk"
#: what the agent says of an answer.
_HEARD = re.compile(r"\[session/request_permission (\{.*?\}\}|error -?\d+)\]")


@dataclass(slots=True)
class Asked:
    """One client was asked one question, perhaps again when it came back to the session."""

    times: int = 0
    #: the option that it has chosen, if any.
    chosen: str | None = None
    #: it was told that nobody waits for its answer.
    called_back: bool = False
    #: when it answered or was called back, in monotonic seconds.
    over_at: float = math.inf


@dataclass(slots=True)
class Person:
    """Who may be asked, at one connection."""

    number: int
    observes: bool = False
    own_turns_only: bool = False
    #: by the question's name.
    asked: defaultdict[str, Asked] = field(default_factory=lambda: defaultdict(Asked))
    #: when each word of an agent came, last, in monotonic seconds.
    heard_at: dict[str, float] = field(default_factory=dict)
    #: the words of agents that it was shown as theirs.
    said: set[str] = field(default_factory=set)
    #: those that it has neither answered nor was called back from.
    _open: set[str] = field(default_factory=set)

    def read(self, recording: Recording, prompts: Sequence[Prompt] = ()) -> None:
        """Take all that was asked. Raises Lost for what must not be."""
        names: dict[str, str] = {}
        sent: set[str] = set()
        self._open.clear()
        for record in recording:
            message = record.message or {}
            if record.direction == "in":
                self._take(record, names, sent)
                self._judge_open(record, prompts)
            elif "method" not in message and (name := names.get(key(message.get("id")))):
                self._open.discard(name)
                self.asked[name].over_at = record.time
                outcome = (message.get("result") or {}).get("outcome") or {}
                if outcome.get("outcome") == "selected":
                    self.asked[name].chosen = outcome["optionId"]

    def _take(self, record: Record, names: dict[str, str], sent: set[str]) -> None:
        message = record.message or {}
        params = message.get("params")
        params = params if isinstance(params, dict) else {}
        if message.get("method") == CANCEL_REQUEST:
            given_up = key(params.get("requestId"))
            if given_up not in sent:
                raise Lost(f"client {self.number}: a request that was never sent is given up")
            if name := names.get(given_up):
                self.asked[name].called_back = True
                self.asked[name].over_at = record.time
                self._open.discard(name)
        elif "method" in message and "id" in message:
            if key(message["id"]) in sent:
                raise Lost(f"client {self.number} is sent two requests of one id: {message}")
            sent.add(key(message["id"]))
            if message["method"] == REQUEST_PERMISSION:
                self._note(message, params, names)

    def _judge_open(self, record: Record, prompts: Sequence[Prompt]) -> None:
        """Nobody is waited for any more when the turn goes on."""
        message = record.message or {}
        params = message.get("params")
        if message.get("method") != SESSION_UPDATE or not isinstance(params, dict):
            return
        content = params["update"].get("content")
        said = str(content.get("text")) if isinstance(content, dict) else ""
        self.heard_at |= dict.fromkeys(_WORDS.findall(said), record.time)
        if params["update"]["sessionUpdate"] == _SAID:
            self.said |= {*_WORDS.findall(said)}
        number = number_of(said) if self._open else None
        if number is None or number >= len(prompts) or params["update"]["sessionUpdate"] != _SAID:
            return
        text = prompts[number].text
        for name in self._open & set(_NAME.findall(text)):
            if any(word in said for word in _WORDS.findall(text[text.index(name) :])):
                raise Lost(f"client {self.number}: the turn goes on, and {name} is still asked")

    def _note(self, message: Message, params: Message, names: dict[str, str]) -> None:
        if self.observes:
            raise Lost(f"client {self.number} only observes, and is asked {message}")
        call = params.get("toolCall") or params["subject"].get("toolCall", {})  # of version 2
        name = str(call.get("toolCallId"))
        names[key(message["id"])] = name
        self._open.add(name)
        asked = self.asked[name]
        asked.times += 1
        asked.called_back = False
        asked.over_at = math.inf
        asked.chosen = None


def named(prompt: Prompt) -> list[str]:
    """The questions of a prompt, in the order of asking."""
    return _NAME.findall(prompt.text)


def judge_answers_heard(
    prompts: Iterable[Prompt], people: list[Person], said: dict[int, str]
) -> Counter[str]:
    """`said`: by the prompt's number, what its agent said. Raises Lost."""
    counts: Counter[str] = Counter()
    for prompt in prompts:
        heard = _HEARD.findall(said.get(prompt.number, ""))
        for name, answer in zip(named(prompt), heard, strict=False):
            # Who leaves right behind its answer may not have been read.
            later = {*_WORDS.findall(prompt.text[prompt.text.index(name) :])}
            stayed = [each for each in people if each.said & later]
            all_asked, sure = (
                [each.asked.get(name, Asked()) for each in who] for who in (people, stayed)
            )
            _judge(name, _option(answer), all_asked, sure)
            counts["permission: judged"] += 1
        for name in named(prompt):
            asked = [each.number for each in people if name in each.asked]
            counts["permission: asked of several"] += len(asked) > 1
    return counts


def _judge(name: str, heard: str | None, asked: list[Asked], sure: list[Asked]) -> None:
    """`sure`: of those that were shown how the turn went on; others may have been heard, too."""
    chosen = {each.chosen for each in asked if each.chosen}
    if heard == "allow" and "allow" not in chosen:
        raise Lost(f"question {name}: allowed, and nobody did: {asked}")
    won, may_have_won = (
        {each.chosen for each in who if each.chosen and not each.called_back}
        for who in (sure, asked)
    )
    if len(won) == 1 and heard in ("allow", "reject") and heard not in may_have_won:
        raise Lost(f"question {name}: {won} was chosen, and the agent was answered {heard}")


def _option(answer: str) -> str | None:
    """The option that the agent was given; None if none was."""
    if answer.startswith("error"):
        return None
    outcome: dict[str, str] = json.loads(answer)["outcome"]
    return outcome.get("optionId")


def judge_who_was_asked(prompt: Prompt, person: Person, people: list[Person], shown: str) -> None:
    """`shown`: what this one was shown without a break. Raises Lost if it was left out.

    A client that was being attached gets what was said meanwhile late. A question that was over
    by then is none for it.
    """
    if person.observes or (person.own_turns_only and prompt.by != person.number):
        return
    if prompt.words[0] not in shown or prompt.words[-1] not in shown:
        return
    if shown.index(prompt.words[0]) > shown.index(prompt.words[-1]):
        return
    for name in named(prompt):
        began = person.heard_at.get(prompt.words[0], math.inf)
        asked = [each for each in people if name in each.asked and each is not person]
        others = [each.number for each in asked]
        late = any(each.asked[name].over_at < began for each in asked)
        if others and not late and name not in person.asked:
            raise Lost(f"question {name}: {others} were asked, and client {person.number} was not")
        if name in person.asked and person.asked[name].times > 1:
            raise Lost(f"question {name}: client {person.number} was asked twice")
