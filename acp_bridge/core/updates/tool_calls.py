"""Makes the text of a question about a tool call: its command, input and every path. SANS-IO.

- A title alone says nothing of what runs: the input that it doesn't say word for word is shown
  beside it, and where nothing else was said, that is shown (invariant V9).
- What the call's card has said and what the request says are both shown, where they differ.
- What is left out is counted. The texts are the agent's: but for a `summary`, whoever writes them
  to a terminal makes them harmless.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, Final

from acp_bridge.core.protocol import Json, as_object, objects
from acp_bridge.core.updates.wording import visible

#: members of a call that don't say what it is to do.
_STANDING: Final = ("sessionUpdate", "toolCallId", "status", "rawOutput")
#: members that a question shows in a way of their own, or not at all.
KNOWN: Final = (*_STANDING, "title", "kind", "rawInput", "content", "locations", "_meta")
#: values of members that say nothing.
EMPTY: Final[tuple[Any, ...]] = (None, "", [], {})
#: names of members under which agents send what is run, in lower case, without `_` and `-`.
COMMANDS: Final = frozenset(
    {"argv", "bash", "cmd", "code", "command", "commandline", "commands", "program", "script"}
    | {"shell", "shellcommand"}
)
#: names of members under which agents send the texts of a change, which its diff shows.
TEXTS: Final = frozenset(
    {"content", "contents", "filetext", "new", "newstr", "newstring", "newtext", "old", "oldstr"}
    | {"oldstring", "oldtext", "text"}
)
#: names of members for the file that is meant, which a title may say.
_FILES: Final = frozenset({"absolutepath", "file", "filename", "filepath", "path"})
#: members of each kind of content that every client shows; in a terminal the call runs already.
_CONTENTS: Final = {
    "content": {"type", "content", "_meta"},
    "diff": {"type", "path", "oldText", "newText", "_meta"},
    "terminal": {"type", "terminalId", "_meta"},
}
#: members of a location that are shown as a path.
_PLACE: Final = {"path", "line", "_meta"}
#: how deep in an input a command is looked for; the input itself is shown in any case.
_DEPTH: Final = 20
#: added to the name of a member that the card has with another value than the request.
_ON_CARD: Final = " (on its card)"
_NO_TITLE: Final = "a tool call without a title"
_NOTHING_ELSE: Final = "Nothing but this title is known: the agent does not say what runs."
_TITLE_ALONE: Final = " (nothing but this title is known)"
#: members of an input up to which each is looked for in the diffs: no tool has more, and an agent
#: that sends thousands would have the bridge look for all of them in all that it has sent.
_COMPARED: Final = 50
#: characters of a title on its line, and of a summary.
_TITLE: Final = 100
_SUMMARY: Final = 300


# --- what is known of a call -----------------------------------------------------------------


def updated(call: Json, said: Json) -> Json:
    """Return the description of a call after one more update, whose empty members say nothing.

    Members of an input that an update leaves out stay: agents send it in parts.
    """
    now = {key: said[key] for key in said if key not in _STANDING and said[key] not in EMPTY}
    before, raw = call.get("rawInput"), now.get("rawInput")
    if isinstance(before, dict) and isinstance(raw, dict):
        now["rawInput"] = {**before, **raw}
    return {**call, **now}


def is_another(ended: Json, call: Json) -> bool:
    """Return True if a `tool_call` with the id of one that has ended describes another call.

    `ended`: what is known of that one.
    """
    begins = call.get("status") in ("pending", "in_progress")
    names = ("title", "kind")
    return begins or any(call.get(n) and ended.get(n) not in (None, call[n]) for n in names)


def asked(card: Json, request: Json) -> Json:
    """Return the description of a call from its card and a request for a permission.

    The request's own word counts; what the card has said otherwise stands beside it.
    """
    whole = updated(card, request)
    for key in ("content", "locations"):
        both = [*objects(request.get(key)), *objects(card.get(key))]
        if both:
            whole[key] = list({_text(each): each for each in both}.values())
    if otherwise := _said_otherwise(card, whole):
        raw = whole.get("rawInput")
        given = raw if isinstance(raw, dict) else {} if raw in EMPTY else {"input": raw}
        whole["rawInput"] = {**given, **otherwise}
    return whole


def _said_otherwise(card: Json, whole: Json) -> Json:
    """Return the members of title and input that the card has with another value than `whole`."""
    found: Json = {}
    before, raw = card.get("rawInput"), whole.get("rawInput")
    if isinstance(before, dict) and isinstance(raw, dict):
        found = {key: value for key, value in before.items() if raw.get(key) != value}
    elif before not in (*EMPTY, raw):
        found = {"input": before}
    if card.get("title") not in (*EMPTY, whole.get("title")):
        found["title"] = card["title"]
    return {f"{key}{_ON_CARD}": value for key, value in found.items()}


def disagrees(card: Json, request: Json) -> bool:
    """Return True if a call's card and a request about it name another input."""
    return any(key != f"title{_ON_CARD}" for key in _said_otherwise(card, updated(card, request)))


def shows_alike(call: Json, other: Json) -> bool:
    """Return True if a question about either call would show the same."""
    return says(call) == says(other)


def says(call: Json) -> Json:
    """Return the members of a call that say what it is to do."""
    left_out = (*_STANDING, "_meta")
    return {name: call[name] for name in call if name not in left_out and call[name] is not None}


# --- what is shown of it ---------------------------------------------------------------------


def title(call: Json) -> str:
    """Return the title as one line; if it is cut here, `shown` puts all of it into the content."""
    line = " ".join(_full_title(call).split())
    if not line and isinstance(kind := call.get("kind"), str):
        line = kind
    return (line if len(line) <= _TITLE else f"{line[: _TITLE - 1]}…") or _NO_TITLE


def shown(call: Json) -> Json:
    """Return the call with its commands, paths and input put at the beginning of its content."""
    lines = _lines(call)
    if not lines:
        return call
    text = {"type": "content", "content": {"type": "text", "text": "\n".join(lines)}}
    return {**call, "content": [text, *objects(call.get("content"))]}


def summary(call: Json) -> str:
    """Return title, commands and input in one line, with a count of the lines that are left out.

    Invisible characters are escaped.
    """
    if _lines(call) == [_NOTHING_ELSE]:
        return visible(title(call)) + _TITLE_ALONE
    lines = [line for each in _texts(shown(call)) if (line := visible(" ".join(each.split())))]
    line, left = visible(title(call)), len(lines)
    for each in lines:
        longer = f"{line}{' · ' if left < len(lines) else ': '}{each}"
        if len(longer) > _SUMMARY:
            line = longer[:_SUMMARY] if left == len(lines) else line
            break
        line, left = longer, left - 1
    return f"{line} … {left} more line{'' if left == 1 else 's'}" if left else line


def runs_or_changes(call: Json) -> bool:
    """Return True for a call that names a command or shows a diff, whatever its kind is."""
    return bool(_all_commands(call) or _diffs(call))


def names_a_command(call: Json) -> bool:
    """Return True for a call whose input names a command."""
    return bool(_all_commands(call))


def tool_names(call: Json) -> Iterator[str]:
    """Give each name of a call's tool that its agent tells: ACP has none, so it is in `_meta`."""
    for own in as_object(call.get("_meta")).values():
        if isinstance(name := as_object(own).get("toolName"), str) and name:
            yield name


def commands_of(call: Json) -> list[str]:
    """Return every command that a call's input names; a list of arguments as a shell's line."""
    return list(dict.fromkeys(text for _, text in _all_commands(call)))


def _lines(call: Json) -> list[str]:
    """Return the lines about title, commands, paths, and the rest of the input."""
    line, full = title(call), _full_title(call)
    members = [(name, _text(value)) for name, value in _members(call)]
    commands = _all_commands(call)
    lines = []
    if full and line != full and not {full, full.strip("`")} & {text for _, text in commands}:
        lines.append(_line("title", full))
    lines += [_line(*each) for each in commands if line not in (each[1], f"`{each[1]}`")]
    lines += _paths(call, {text for name, text in members if plain_name(name) not in TEXTS})
    diffs = _diffs(call) if len(members) <= _COMPARED else []
    changed = [str(diff.get(key)) for diff in diffs for key in ("oldText", "newText")]
    for name, text in members:
        of_diff = plain_name(name) in TEXTS and any(text in each for each in changed)
        in_title = plain_name(name) in _FILES and text in _words(call)
        if not (of_diff or in_title or (name, text) in commands):
            lines.append(_line(name, text))
    says_more = lines or members or any(each.strip() for each in _texts(call))
    return lines if says_more else [_NOTHING_ELSE]


def _members(call: Json) -> list[tuple[str, Any]]:
    """Return name and value of an input's members, and of parts of a call that ACP doesn't know."""
    raw = call.get("rawInput")
    given = list(raw.items()) if isinstance(raw, dict) else [("input", raw)]
    given += [(name, value) for name, value in call.items() if name not in KNOWN]
    given += [("content", each) for each in objects(call.get("content")) if _is_odd(each)]
    given += [("location", each) for each in objects(call.get("locations")) if each.keys() - _PLACE]
    return [(name, value) for name, value in given if value not in EMPTY]


def _is_odd(item: Json) -> bool:
    """Return True for an item of a content with something in it that not every client shows."""
    kind = item.get("type")
    shown = _CONTENTS.get(kind, set()) if isinstance(kind, str) else set()
    return bool(item.keys() - shown)


def _paths(call: Json, given: set[str]) -> list[str]:
    """Return the lines about all files of a call, but for those that title or input name."""
    named = given | _words(call)
    given_places = objects(call.get("locations"))
    places = [(_text(each["path"]), each.get("line")) for each in given_places if "path" in each]
    places += [(_text(diff.get("path")), None) for diff in _diffs(call)]
    known = {path for path, _ in places}
    found = dict.fromkeys(f"{path}:{at}" if isinstance(at, int) else path for path, at in places)
    if len(known) <= 1:
        named |= {_text(diff.get("path")) for diff in _diffs(call)}  # a diff is shown with it
        return [_line("path", each) for each in found if not known & named]
    return [f"paths ({len(known)}):", *(f"  {each}".replace("\n", "\\n") for each in found)]


def _words(call: Json) -> set[str]:
    """Return the words of the title's line."""
    return {word.strip("`'\"") for word in title(call).split()}


def _all_commands(call: Json) -> dict[tuple[str, str], None]:
    """Return name and text of every command that a call names, each once."""
    found = (each for member in _members(call) for each in _commands(dict([member])))
    return dict.fromkeys(found)


def _commands(value: Any, depth: int = 0) -> Iterator[tuple[str, str]]:
    """Give name and text of every command in an input: a text, or a list of arguments."""
    if depth > _DEPTH:
        return
    if isinstance(value, list):
        for each in value:
            yield from _commands(each, depth + 1)
    for name, each in as_object(value).items():
        if plain_name(name) in COMMANDS and isinstance(each, str) and each:
            yield name, each
        elif plain_name(name) in COMMANDS and _is_argv(each):
            yield name, _text(each)
        else:
            yield from _commands(each, depth + 1)


def _is_argv(value: object) -> bool:
    return isinstance(value, list) and bool(value) and all(isinstance(v, str) for v in value)


def plain_name(name: str) -> str:
    """Return the name of a member in lower case, without `_` and `-`."""
    return name.removesuffix(_ON_CARD).lower().replace("_", "").replace("-", "")


def _text(value: Any) -> str:
    """Return a value as it is shown: a text, a list of arguments as a shell's line, or JSON."""
    if isinstance(value, str):
        return value
    if _is_argv(value):
        import shlex  # few bridges ever need it

        return shlex.join(value)
    try:
        return json.dumps(value, ensure_ascii=False)
    except RecursionError:
        return "(nested too deep to be shown)"


def _line(name: str, text: str) -> str:
    """Return `name: text`; further lines of a text are indented, so that none looks like a name."""
    name = name.replace("\n", "\\n")
    return f"{name}: {text}" if "\n" not in text else f"{name}:\n{text}".replace("\n", "\n  ")


def _full_title(call: Json) -> str:
    given = call.get("title")
    return given.strip() if isinstance(given, str) else ""


def _diffs(call: Json) -> list[Json]:
    return [each for each in objects(call.get("content")) if each.get("type") == "diff"]


def _texts(call: Json) -> Iterator[str]:
    """Give the lines of a content; for a diff its path and the length of the new text."""
    for item in objects(call.get("content")):
        content = as_object(item.get("content"))
        if item.get("type") == "diff":
            yield f"changes {_text(item.get('path'))}"
            yield from str(item.get("newText") or "").splitlines()
        elif isinstance(text := content.get("text"), str):
            yield from text.splitlines()
        elif item.get("type") == "content" and content:
            yield _text(content)
