"""Slash commands of the chat itself; a command of the agent with the same name wins. No I/O."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from acp_bridge.commands.terminal.chat.conversation import Conversation
from acp_bridge.commands.terminal.chat.settings_shown import KINDS, Choices, Command
from acp_bridge.commands.terminal.view.blocks import Tone

LOCAL: Final = (
    Command("help", "keys and commands"),
    Command("mode", "show the modes, or set one"),
    Command("model", "show the models, or set one"),
    Command("exit", "leave"),
)
HELP: Final = """\
Enter sends; Alt-Enter or Ctrl-J begins a new line; Up and Down bring back what was entered.
While a turn runs, what you enter waits for its end. @ names a file, / a command; Tab completes.
Ctrl-C stops the turn, twice leaves. Ctrl-D on an empty line leaves. Shift-Tab: the next mode.
Ctrl-O shows the whole output of the last tool call, and again that of the one before it.
A permission is answered by its key, on an empty line, or with Alt and the key at any time."""


def commands(conversation: Conversation) -> list[Command]:
    """Return the commands of the agent, then those of the chat that it doesn't have."""
    theirs = conversation.shown.commands
    names = {command.name for command in theirs}
    return [*theirs, *(command for command in LOCAL if command.name not in names)]


def run(conversation: Conversation, text: str, leave: Callable[[], None]) -> bool:
    """Run a line if it is a command of the chat; returns False if it is none."""
    word, _, rest = text.strip().partition(" ")
    name = word.removeprefix("/")
    ours = {command.name for command in LOCAL} - {c.name for c in conversation.shown.commands}
    if not word.startswith("/") or name not in ours:
        return False
    match name:
        case "exit":
            leave()
        case "help":
            conversation.say(HELP)
        case _:
            _choose(conversation, name, rest)
    return True


def values(conversation: Conversation, name: str) -> list[Command]:
    """Return the arguments that a command can have, for completion."""
    choices = conversation.shown.choices(name) if name in KINDS else None
    return [Command(value.id, value.name) for value in choices.values] if choices else []


def _choose(conversation: Conversation, kind: str, word: str) -> None:
    choices = conversation.shown.choices(kind)
    if choices is None:
        conversation.say(f"this agent has no {kind}s to choose from", Tone.ERROR)
    elif not word.strip():
        conversation.say(_listed(kind, choices))
    elif (chosen := choices.named(word)) is None:
        conversation.say(f"no {kind}, or more than one: {word}\n{_listed(kind, choices)}")
    else:
        conversation.choose(kind, chosen.id)


def _listed(kind: str, choices: Choices) -> str:
    lines = [
        f"{'*' if value.id == choices.current else ' '} {value.id}  {value.name}"
        for value in choices.values
    ]
    return "\n".join([f"{kind}s; /{kind} NAME sets one:", *lines])
