"""Recordings of the demo's client, made up: good ones, and ways to break them."""

import json
from collections.abc import Callable
from typing import Any

from acp_bridge.terminal.demo.recording import Direction, Line, Recording


class Tape(Recording):
    """A recording being made up: a line every 0.01 s."""

    def put(self, direction: Direction, message: dict[str, Any]) -> None:
        self.append(Line.of(direction, len(self) / 100, json.dumps(message).encode()))

    def ask(self, request: int, text: str) -> None:
        params = {"sessionId": "s", "prompt": [{"type": "text", "text": text}]}
        self.put("out", {"id": request, "method": "session/prompt", "params": params})

    def say(self, *texts: str, speaker: str = "agent_message", id: str | None = "m1") -> None:
        for text in texts:
            content = {"type": "text", "text": text}
            update = {"sessionUpdate": f"{speaker}_chunk", "content": content, "messageId": id}
            params = {"sessionId": "s", "update": update}
            self.put("in", {"method": "session/update", "params": params})

    def answer(self, request: int, reason: str = "end_turn") -> None:
        self.put("in", {"id": request, "result": {"stopReason": reason}})

    def fail(self, request: int) -> None:
        self.put("in", {"id": request, "error": {"code": -32603, "message": "it ended"}})

    def cancel(self) -> None:
        self.put("out", {"method": "session/cancel", "params": {"sessionId": "s"}})

    def note(self, **facts: Any) -> None:
        self.put("note", facts)

    def wait(self, seconds: float) -> None:
        """What is there already happened so much earlier."""
        self[:] = [Line.of(line.direction, line.time - seconds, line.raw) for line in self]


# Breaks

Break = Callable[[Any], object]


def drop(place: int) -> Break:
    return lambda tape: tape.pop(place)


def move(place: int, to: int) -> Break:
    """To be at `to` in the end."""
    return lambda tape: tape.insert(to, tape.pop(place))


def again(place: int, at: int | None = None) -> Break:
    """A line comes twice, the second time at a place of its own."""
    return lambda tape: tape.insert(len(tape) if at is None else at, tape[place])


def edit(place: int, old: str, new: str) -> Break:
    def change(tape: Tape) -> None:
        line = tape[place]
        assert old.encode() in line.raw
        tape[place] = Line.of(
            line.direction, line.time, line.raw.replace(old.encode(), new.encode())
        )

    return change


def earlier(place: int, seconds: float) -> Break:
    """A line was recorded so much before."""

    def change(tape: Tape) -> None:
        line = tape[place]
        tape[place] = Line.of(line.direction, line.time - seconds, line.raw)

    return change


def late(text: str, at: int | None = None, id: str | None = "m1") -> Break:
    """An update at this place, or in the end."""

    def change(tape: Tape) -> None:
        extra = Tape()
        extra.say(text, id=id)
        tape.insert(len(tape) if at is None else at, extra[0])

    return change


# Good recordings, with the place of each line


def three() -> Tape:
    tape = Tape()
    for number in (1, 2, 3):  # 0 to 2
        tape.ask(number, f"p{number}")
    for number in (1, 2, 3):  # 3, 4, 5; 6, 7, 8; 9, 10, 11
        tape.say("word ", f"{number}", id=f"m{number}")
        tape.answer(number)
    return tape


def stopped(reason: str = "cancelled") -> Tape:
    tape = Tape()
    tape.ask(1, "story")  # 0
    tape.say("once ", "there ")  # 1, 2
    tape.cancel()  # 3
    tape.say("was ")  # 4
    tape.answer(1, reason)  # 5
    tape.ask(2, "remember")  # 6
    tape.say("You told me: ", "boat; ", "story", id="m2")  # 7, 8, 9
    tape.answer(2)  # 10
    return tape


def interrupted() -> Tape:
    tape = Tape()
    tape.ask(1, "sing")  # 0
    tape.say("la ")  # 1
    tape.ask(2, "remember")  # 2
    tape.say("la ")  # 3
    tape.answer(1, "cancelled")  # 4
    tape.say("You told me: ", "sing", id="m2")  # 5, 6
    tape.answer(2)  # 7
    tape.ask(3, "who")  # 8
    tape.say("Process 11, ", "cancelled ", "once.", id="m3")  # 9, 10, 11
    tape.answer(3)  # 12
    return tape


def deaf() -> Tape:
    tape = Tape()
    tape.ask(1, "who")  # 0
    tape.say("Process 11, ", "cancelled ", "0 times.", id="m0")  # 1, 2, 3
    tape.answer(1)  # 4
    tape.ask(2, "sing")  # 5
    tape.say("la ")  # 6
    tape.cancel()  # 7
    tape.ask(3, "who")  # 8
    tape.wait(1.0)
    tape.answer(2, "cancelled")  # 9
    tape.note(pid=11, alive=False)  # 10
    tape.say("Process 12, ", "cancelled ", "once.", id="m3")  # 11, 12, 13
    tape.answer(3)  # 14
    return tape


def killed() -> Tape:
    tape = Tape()
    tape.ask(1, "story")  # 0
    tape.say("once ")  # 1
    tape.note(killed="agent", pid=11)  # 2
    tape.fail(1)  # 3
    return tape


def first_bridge() -> Tape:
    tape = Tape()
    tape.ask(1, "story")  # 0
    tape.say("hm. ", speaker="agent_thought")  # 1
    tape.say("once ", "there")  # 2, 3
    tape.answer(1)  # 4
    tape.ask(2, "longer")  # 5
    tape.ask(3, "waits")  # 6
    tape.put("in", {"method": "_acp_bridge/accepted", "params": {"requestId": 3}})  # 7
    tape.say("once ", "upon ", id="m2")  # 8, 9
    tape.note(killed="bridge", pid=11)  # 10
    return tape


def second_bridge() -> Tape:
    tape = Tape()
    tape.put("out", {"id": 1, "method": "session/load", "params": {"sessionId": "s"}})  # 0
    tape.say("story", speaker="user_message", id=None)  # 1
    tape.say("hm. ", speaker="agent_thought")  # 2
    tape.say("once there")  # 3
    tape.say("longer", speaker="user_message", id=None)  # 4
    tape.say("once upon a ", "[acp-bridge] Interrupted", id="m2")  # 5, 6
    held = {"acp_bridge": {"held": [[{"type": "text", "text": "waits"}]]}}
    tape.put("in", {"id": 1, "result": {"_meta": held}})  # 7
    tape.ask(2, "/queue")  # 8
    tape.say("Nothing is waiting.\n\nLeft over since a restart:\n\n- 2: waits\n\n...", id="q")  # 9
    tape.answer(2)  # 10
    tape.ask(3, "/queue run")  # 11
    tape.say("waits", speaker="user_message", id=None)  # 12
    tape.say("You told me: story; longer", id="m3")  # 13
    tape.answer(3)  # 14
    return tape


def over() -> list[Tape]:
    tapes = [stopped(), first_bridge()]
    for tape in tapes:
        tape.note(left=[], of=3, seconds=0.1)
    return tapes
