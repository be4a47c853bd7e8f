"""Output that grows: updates of a tool call that each tell the whole output so far. SANS-IO.

Some agents send an update for each piece of a command's output, with all that came before it. A
client that has the last of them lacks nothing of the earlier ones.
"""

from __future__ import annotations

from typing import Any, Final

from acp_bridge.core.protocol import ENDED, TOOL_CALL_UPDATE, Json, as_object, without

_OUTPUT: Final = ("content", "rawOutput")
#: the members of an update that take the place of what was told before, unless they are null.
_REPLACING: Final = frozenset(
    {"sessionUpdate", "toolCallId", "name", "title", "kind", "status", "locations", "rawInput"}
    | {*_OUTPUT}
)


def grows(params: Json) -> str:
    """Return the id of the tool call whose output, as it is so far, an update tells.

    A later update may supersede that one (`supersedes`). Return an empty text for any other update,
    also for one with which the tool call ends.
    """
    update = params.get("update")
    if not isinstance(update, dict) or not ("content" in update or "rawOutput" in update):
        return ""
    if update.get("sessionUpdate") != TOOL_CALL_UPDATE or update.get("status") in ENDED:
        return ""
    call = update.get("toolCallId")
    if not isinstance(call, str) or not _replaces(params):
        return ""
    return call if any(_has_text(update.get(name)) for name in _OUTPUT) else ""


def supersedes(earlier: Json, later: Json) -> bool:
    """Return True if a client that is shown the update `later` needs nothing of `earlier`.

    Both are the parameters of updates of one turn. They tell the same members of the same tool
    call, all of which replace what was told before. Their `_meta` is equal. The output of `later`
    begins with that of `earlier`, apart from the fence that closes a block of code in Markdown.
    """
    if not grows(earlier) or earlier.keys() != later.keys() or not _replaces(later):
        return False
    before, after = earlier["update"], later["update"]
    same = ("sessionUpdate", "toolCallId", "_meta")
    return (
        before.keys() == after.keys()
        and earlier.get("_meta") == later.get("_meta")
        and all(before.get(name) == after.get(name) for name in same)
        and all(_begins(after[name], before[name]) for name in _OUTPUT if name in before)
    )


def _replaces(params: Json) -> bool:
    """Return True if each member of an update replaces what was told before, its `_meta` apart.

    An output of other things than text does not count as one.
    """
    update = params["update"]
    if not params.keys() <= {"update", "_meta"} or not isinstance(update, dict):
        return False
    told = without(update, "_meta")
    content = told.get("content", [])
    is_text = isinstance(content, list) and all(map(_is_text, content))
    return is_text and told.keys() <= _REPLACING and None not in told.values()


def _is_text(item: Any) -> bool:
    return as_object(as_object(item).get("content")).get("type") == "text"


def _has_text(output: Any) -> bool:
    if isinstance(output, dict):
        return any(map(_has_text, output.values()))
    return any(map(_has_text, output)) if isinstance(output, list) else isinstance(output, str)


def _begins(later: Any, earlier: Any) -> bool:
    """Return True if an output, or a part of one, begins with an earlier one."""
    if isinstance(earlier, str) and isinstance(later, str):
        return later.startswith((earlier, _unclosed(earlier)))
    if isinstance(earlier, dict) and isinstance(later, dict):
        return earlier.keys() == later.keys() and all(
            _begins(later[n], earlier[n]) for n in earlier
        )
    if isinstance(earlier, list) and isinstance(later, list) and earlier:
        at = len(earlier) - 1
        return later[:at] == earlier[:at] and len(later) > at and _begins(later[at], earlier[at])
    return bool(earlier == later)


def _unclosed(text: str) -> str:
    """Return a text that is one block of code in Markdown, without the fence at its end."""
    fence = text[: len(text) - len(text.lstrip("`"))]
    body = text.rstrip("\n")
    closed = len(fence) >= 3 and body.endswith("\n" + fence)
    return body[: -len(fence) - 1] if closed else text
