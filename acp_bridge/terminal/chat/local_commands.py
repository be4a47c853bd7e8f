"""Slash commands of the chat itself; a command of the agent with the same name wins. No I/O."""

from __future__ import annotations

import re
from collections.abc import Callable
from difflib import get_close_matches
from typing import Final

from acp_bridge.terminal.chat.conversation import Conversation
from acp_bridge.terminal.view.blocks import Tone
from acp_bridge.terminal.view.settings_shown import KINDS, Choices, Command

LOCAL: Final = (
    Command("help", "keys and commands"),
    Command("mode", "show the modes, or set one"),
    Command("model", "show the models, or set one"),
    Command("new", "begin a new session"),
    Command("clear", "the same"),
    Command("sessions", "list the sessions of this folder, or go on with one"),
    Command("fork", "go on in a copy of this session"),
    Command("export", "write this session to a file, as Markdown"),
    Command("cost", "show what this session has used, and the limits of your account"),
    Command("exit", "leave"),
)
#: a line that would be a command and nothing else; a path such as `/etc/hosts` is none.
_WORD: Final = re.compile(r"/([\w.:-]+)")
#: a line that is meant for a shell, as other chats take it.
_SHELL: Final = re.compile(r"!(?: *[\w./~$-].*)?")
_NEAREST: Final = 3
_NOT_YET: Final = "the session is not open yet"
_AS_IT_IS: Final = "Nothing was sent. With a space before it, it goes to the agent as it is."
#: each sentence group is one line, which the screen wraps to its width.
HELP: Final = "\n".join(
    [
        "Enter sends; Ctrl-J begins a new line; Up and Down bring back what was entered, and"
        " Ctrl-R searches it. @ names a file, / a command; Tab completes. Ctrl-U empties the line,"
        " Ctrl-X Ctrl-E opens it in your editor.",
        "While a turn runs, what you enter waits for its end; Up on an empty line takes it back."
        " Alt-Enter sends the words into the turn, if the agent can take them; else they are the"
        " next prompt to run.",
        "Tab on an empty line goes to what waits, of others too: the arrows choose, e edits, d"
        " drops, K and J move it up and down, r runs what is left over, Esc leaves.",
        "Esc or Ctrl-C stops the turn, Ctrl-C twice leaves. Ctrl-D on an empty line leaves, Ctrl-Z"
        " suspends.",
        "Shift-Tab: the next mode. Ctrl-O shows the whole output of the last tool call, again: of"
        " the one before it.",
        "A permission: a key marks an answer on an empty line, Alt and the key at any time. Enter"
        " takes the marked answer; Esc or more text takes the mark away.",
        "/queue shows and changes what waits. /mode and /model list the modes and models, or set"
        " one. /new or /clear, /sessions ID and /fork leave for another session, /export writes"
        " this one to a file, /cost shows what it has used and your limits, /exit leaves, /help"
        " shows this.",
    ]
)


def commands(conversation: Conversation) -> list[Command]:
    """Return the commands of the agent, then those of the chat that it doesn't have."""
    theirs = conversation.shown.commands
    names = {command.name for command in theirs}
    return [*theirs, *(command for command in LOCAL if command.name not in names)]


def run(conversation: Conversation, text: str, leave: Callable[[], None]) -> bool:
    """Run a line if it is a command of the chat; returns False if it is none."""
    word, _, rest = text.rstrip().partition(" ")
    name = word.removeprefix("/")
    ours = {command.name for command in LOCAL} - {c.name for c in conversation.shown.commands}
    if not word.startswith("/") or name not in ours:
        return False
    match name:
        case "exit":
            leave()
        case "help":
            conversation.say(HELP)
        case "mode" | "model":
            _choose(conversation, name, rest)
        case _ if conversation.others is None or conversation.session_id is None:
            conversation.say(_NOT_YET)
        case _:
            conversation.others.run(name, rest)
    return True


def refuse_unknown(conversation: Conversation, text: str) -> bool:
    """Refuse a `!command`, and a line that is one unknown `/command`; False for any other line.

    No `/command` is refused before the agent has said which commands it has.
    """
    if _SHELL.fullmatch(text.rstrip()):
        conversation.say(f"the chat runs no commands of a shell\n{_AS_IT_IS}", Tone.ERROR)
        return True
    found = _WORD.fullmatch(text.rstrip())
    names = [command.name for command in commands(conversation)]
    if found is None or found[1] in names or not conversation.shown.commands:
        return False
    near = [name for name in names if name.startswith(found[1])]
    near += [name for name in get_close_matches(found[1], names) if name not in near]
    say = f"; did you mean {', '.join(f'/{name}' for name in near[:_NEAREST])}?" if near else ""
    conversation.say(f"there is no command /{found[1]}{say}\n{_AS_IT_IS}", Tone.ERROR)
    return True


def values(conversation: Conversation, name: str) -> list[Command]:
    """Return the arguments that a command can have, for completion."""
    theirs = next((each for each in conversation.shown.commands if each.name == name), None)
    if theirs is not None and theirs.words:
        return [Command(words, "") for words in theirs.words]
    if name == "sessions" and conversation.others is not None:
        return conversation.others.completions()
    choices = conversation.shown.choices(name) if name in KINDS else None
    return [Command(value.id, value.name) for value in choices.values] if choices else []


def queue_values(conversation: Conversation, words: list[str]) -> list[Command]:
    """Return what can follow `/queue` and these words, for completion."""
    listed = conversation.queue.rows
    named = next((row for row in listed if words[1:2] == [str(row.number)]), None)
    match words:
        case ["steer"]:
            found = [row for row in listed if not row.held]
        case ["drop" | "edit" | "move"]:
            found = listed
        case ["move", _] if named is not None:
            behind = [Command(each, "another prompt") for each in ("before", "after")]
            return [*behind, Command("first", ""), Command("last", "")]
        case ["move", _, "before" | "after"] if named is not None:
            found = [row for row in listed if row is not named and row.held == named.held]
        case _:
            return []
    return [Command(str(row.number), row.text) for row in found]


def _choose(conversation: Conversation, kind: str, word: str) -> None:
    choices = conversation.shown.choices(kind)
    if conversation.session_id is None:
        conversation.say(_NOT_YET)
    elif choices is None:
        conversation.say(f"this agent has no {kind}s to choose from", Tone.ERROR)
    elif not word.strip():
        conversation.say(_listed(kind, choices))
    elif (chosen := choices.named(word)) is not None:
        conversation.choose(kind, chosen.id)
    elif choices.begun_by(word):
        said = f"more than one {kind} begins so: {word}"
        conversation.say(f"{said}\n{_listed(kind, choices)}", Tone.ERROR)
    elif kind == "model":  # agents may have others than those that they list
        conversation.choose(kind, word.strip())
    else:
        conversation.say(f"there is no {kind} {word}\n{_listed(kind, choices)}", Tone.ERROR)


def _listed(kind: str, choices: Choices) -> str:
    lines = [
        f"{'*' if value.id == choices.current else ' '} {value.id}  {value.name}"
        for value in choices.values
    ]
    return "\n".join([f"{kind}s; /{kind} NAME sets one:", *lines])
