r"""Dialogues: what a scripted model says, in a small text format.

A dialogue is a list of scenes; a scene is one turn. `#` begins a comment line, blank lines are
free, every other line is `VERB` or `VERB: ARGUMENT`.

    window: TOKENS   before the first scene: sets the size of the model's window
    images           before the first scene: makes the model take images

    when: REGEX      begins a scene for every prompt that REGEX is found in (any case); first wins
    turn             begins a scene for the next prompt without a `when`; the last is repeated
    ---              what follows is said once the tool calls above it have their results

    text: WORDS      say WORDS, one token each, a space between lines ("\n" and "\\" as in C)
    think: WORDS     the same as reasoning
    token: JSON      say exactly one token: a string, or null
    echo             say the prompt; short for                  text: {user}
    remember         say the earlier prompts; short for         text: You told me: {history}
    call: NAME JSON  call a tool with these arguments
    stop: REASON     end with max_tokens or refusal
    error: MESSAGE   fail with a ModelError; its kind may be the first word

    delay: MS        wait
    pace: MS         from here on, wait between two tokens
    gate: NAME       wait for the gate (see agent.scripted.scripted_model)
    repeat: N        do the next line N times; {i} counts from 0
    deaf             ignore cancellation in this reply, as some model libraries do

In `text`, `think` and `error`, {user} is the prompt, {history} the user's earlier prompts and
{result} the last tool's result. The messages alone decide which reply is said, so a restarted
agent goes on where the killed one was.
"""

from __future__ import annotations

import json
import re
from pathlib import Path

from msgspec import Struct

_WITH_ARGUMENT = frozenset(
    ["text", "think", "token", "call", "stop", "error", "delay", "pace", "gate"]
)
_ALONE = {"echo": ("text", "{user}"), "remember": ("text", "You told me: {history}")}
_HEADER = frozenset(["window", "images"])
#: all words with which a line may begin
VERBS = _WITH_ARGUMENT | _HEADER | {*_ALONE, "when", "turn", "---", "repeat", "deaf"}


class DialogueError(ValueError):
    """The text is not a dialogue; the message names the line and the reason."""


class Step(Struct, frozen=True):
    """One line of a dialogue: `verb` with `argument`, done `times` times."""

    verb: str
    argument: str = ""
    times: int = 1


Reply = tuple[Step, ...]


class Scene(Struct, frozen=True):
    """One turn; `replies[k]` is the answer to its k-th model call, from 0."""

    pattern: re.Pattern[str] | None
    replies: tuple[Reply, ...]


class Dialogue(Struct, frozen=True):
    """The parsed content of a dialogue file."""

    scenes: tuple[Scene, ...]
    #: tokens; None if the dialogue does not say
    window: int | None = None
    images: bool = False

    def reply(self, prompts: list[str], asked: int) -> Reply:
        """Returns the reply to the last of `prompts` after `asked` replies in the same turn."""
        scene = self._scene(prompts)
        if scene is None:
            return (Step("text", "{user}"),) if asked == 0 else ()
        return scene.replies[asked] if asked < len(scene.replies) else ()

    def _scene(self, prompts: list[str]) -> Scene | None:
        if prompts and (scene := self._matching(prompts[-1])):
            return scene
        plain = [scene for scene in self.scenes if scene.pattern is None]
        unmatched = sum(1 for prompt in prompts if not self._matching(prompt))
        return plain[min(unmatched, len(plain)) - 1] if plain and unmatched else None

    def _matching(self, prompt: str) -> Scene | None:
        return next((s for s in self.scenes if s.pattern and s.pattern.search(prompt)), None)


def read_dialogue(path: str | Path) -> Dialogue:
    """Returns the dialogue in a file. Raises OSError and DialogueError."""
    return parse_dialogue(Path(path).read_text(encoding="utf-8"))


def demo_dialogue() -> Dialogue:
    """Returns the dialogue of the model `demo`, a file of this package."""
    return read_dialogue(Path(__file__).parent / "demo.txt")


def parse_dialogue(text: str) -> Dialogue:
    """Returns the dialogue in a text. Raises DialogueError."""
    reader = _Reader()
    for number, line in enumerate(text.splitlines(), 1):
        verb, _, argument = (part.strip() for part in line.partition(":"))
        if not verb or verb.startswith("#"):
            continue
        try:
            reader.add_line(verb, argument)
        except ValueError as error:
            raise DialogueError(f"line {number}: {error}") from error
    return reader.dialogue()


class _Reader:
    """Collects a dialogue line by line."""

    def __init__(self) -> None:
        self._scenes: list[tuple[re.Pattern[str] | None, list[list[Step]]]] = []
        self._window: int | None = None
        self._images = False
        self._times = 1

    def add_line(self, verb: str, argument: str) -> None:
        """Adds one line. Raises ValueError."""
        if verb in ("when", "turn"):
            self._scenes.append((_pattern(verb, argument), [[]]))
        elif verb in _HEADER:
            self._set_header(verb, argument)
        elif not self._scenes:
            raise DialogueError("a line before the first `when` or `turn`")
        elif verb == "---":
            self._scenes[-1][1].append([])
        elif verb == "repeat":
            self._times = int(argument)
        else:
            self._scenes[-1][1][-1].append(_step(verb, argument, self._times))
            self._times = 1

    def dialogue(self) -> Dialogue:
        scenes = (Scene(p, tuple(map(tuple, replies))) for p, replies in self._scenes)
        return Dialogue(tuple(scenes), self._window, self._images)

    def _set_header(self, verb: str, argument: str) -> None:
        if self._scenes:
            raise DialogueError(f"`{verb}` stands before the first scene")
        if verb == "images":
            self._images = True
        else:
            self._window = int(argument)


def _pattern(verb: str, argument: str) -> re.Pattern[str] | None:
    if verb == "turn":
        return None
    try:
        return re.compile(argument, re.IGNORECASE)
    except re.error as error:
        raise DialogueError(f"no regular expression: {error}") from error


def _step(verb: str, argument: str, times: int) -> Step:
    if verb in _ALONE:
        return Step(*_ALONE[verb], times)
    if verb == "deaf":
        return Step(verb)
    if verb not in _WITH_ARGUMENT:
        raise DialogueError(f"no such verb: {verb}")
    if verb in ("delay", "pace"):
        float(argument)
    elif verb == "token" and not isinstance(json.loads(argument), str | None):
        raise DialogueError("a token is a JSON string or null")
    elif verb == "call":
        json.loads(argument.partition(" ")[2] or "{}")
    elif verb == "stop" and argument not in ("max_tokens", "refusal"):
        raise DialogueError("stop is max_tokens or refusal")
    return Step(verb, argument, times)
