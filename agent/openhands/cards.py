"""Shows tool calls as ACP's cards, each with one start and one end.

Invariants
- A card's id is that of the action's event: the model's own ids of calls may repeat.
- A result without a card, or after its card's end, shows nothing.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

from acp_bridge.core.protocol import TOOL_CALL, TOOL_CALL_UPDATE
from agent.client import Update
from agent.content.fences import fenced
from agent.openhands.events import Action, InnerCall, Json, Part, Result
from agent.tools.cards import diff, short

#: tools whose call is shown as a message, not as a card
WORDS = frozenset({"FinishAction", "ThinkAction"})
#: characters of one text on a card
_LONGEST = 100_000
_COMMANDS = {"TerminalAction": "command", "ExecuteBashAction": "command", "BashAction": "command"}
_EDITS = frozenset({"FileEditorAction", "PlanningFileEditorAction", "StrReplaceEditorAction"})
_KINDS = {
    "GlobAction": "search",
    "GrepAction": "search",
    "ListDirectoryAction": "search",
    "ReadFileAction": "read",
    "EditAction": "edit",
    "WriteFileAction": "edit",
    "ApplyPatchAction": "edit",
    "TaskTrackerAction": "think",
}
_INNER_KINDS = frozenset(
    {"read", "edit", "delete", "move", "search", "execute", "think", "fetch", "switch_mode"}
)
_PLAN_STATUS = {"todo": "pending", "in_progress": "in_progress", "done": "completed"}


class Cards:
    """The tool calls that have not ended, in the order of their starts."""

    def __init__(self) -> None:
        self._open: dict[str, Action] = {}
        self._inner: dict[str, str] = {}

    @property
    def waiting(self) -> tuple[Action, ...]:
        """The actions without a result that the server would run if its run continued."""
        return tuple(action for action in self._open.values() if action.runs)

    def start(self, action: Action) -> list[Update]:
        self._open[action.id] = action
        if action.kind in WORDS:
            return []
        return [{"sessionUpdate": TOOL_CALL, **described(action), "status": "pending"}]

    def end(self, result: Result) -> list[Update]:
        action = self._taken(result)
        if action is None or action.kind in WORDS:
            return []
        update: Update = {
            "sessionUpdate": TOOL_CALL_UPDATE,
            "toolCallId": action.id,
            "title": title(action),
            "status": "failed" if result.failed else "completed",
        }
        if content := _result_content(action, result):
            update["content"] = content
        return [update, *_plan(result)]

    def inner(self, call: InnerCall) -> list[Update]:
        """Returns the updates for a tool call of an ACP agent inside the conversation."""
        status = call.status if call.status in ("in_progress", "completed", "failed") else "pending"
        begun = self._inner.get(call.call_id)
        if begun in ("completed", "failed"):
            return []
        self._inner[call.call_id] = status
        update: Update = {
            "sessionUpdate": TOOL_CALL if begun is None else TOOL_CALL_UPDATE,
            "toolCallId": call.call_id,
            "title": short(call.title) or "Tool",
            "kind": call.kind if call.kind in _INNER_KINDS else "other",
            "status": status,
        }
        if (given := call.values.get("raw_input")) is not None:
            update["rawInput"] = given
        if content := _inner_content(call.values):
            update["content"] = content
        return [update]

    def _taken(self, result: Result) -> Action | None:
        if result.action_id:
            return self._open.pop(result.action_id, None)
        # An error names only the model's id of the call: it belongs to the last call with that id.
        for action in reversed(self._open.values()):
            if action.call_id == result.call_id:
                return self._open.pop(action.id)
        return None


def described(action: Action) -> Json:
    """Returns the card of an action that has not run."""
    card: Json = {
        "toolCallId": action.id,
        "title": title(action),
        "kind": _kind(action),
        "rawInput": dict(action.values),
    }
    if path := _path(action.values):
        card["locations"] = [{"path": path} | _line(action.values)]
    if content := planned(action):
        card["content"] = content
    return card


def title(action: Action) -> str:
    if (name := _COMMANDS.get(action.kind)) is not None:
        command = str(action.values.get(name) or "")
        return f"`{short(command)}`" if command.strip() else "Read the terminal"
    if path := _path(action.values):
        verb = {"read": "Read", "edit": "Edit", "search": "Search"}.get(_kind(action), action.tool)
        return f"{verb} {short(path)}"
    if isinstance(pattern := action.values.get("pattern"), str):
        return f"{action.tool} {short(pattern)}"
    return short(action.tool) or "Tool"


def planned(action: Action) -> list[Json]:
    """Returns the diff of an action that edits a file; [] if its parameters don't tell it."""
    values, path = action.values, _path(action.values)
    if _kind(action) != "edit" or not path:
        return []
    match values:
        case {"file_text": str(new)} | {"content": str(new)}:
            return list(diff(path, None, new[:_LONGEST]))
        case {"old_str": str(old), "new_str": str(new)}:
            return list(diff(path, old, new))
        case {"old_string": str(old), "new_string": str(new)}:
            return list(diff(path, old, new))
        case {"new_str": str(new)}:
            return list(diff(path, "", new))
    return []


def _kind(action: Action) -> str:
    if action.kind in _COMMANDS:
        return "execute"
    if action.kind in _EDITS:
        return "read" if action.values.get("command") == "view" else "edit"
    if action.kind.startswith("Browser"):
        return "fetch"
    return _KINDS.get(action.kind, "other")


def _path(values: Mapping[str, Any]) -> str:
    for name in ("path", "file_path", "dir_path"):
        if isinstance(path := values.get(name), str) and path:
            return path
    return ""


def _line(values: Mapping[str, Any]) -> Json:
    match values:
        case {"view_range": [int(line), *_]} | {"insert_line": int(line)} if line > 0:
            return {"line": line}
    return {}


def _result_content(action: Action, result: Result) -> list[Json]:
    old, new = result.values.get("old_content"), result.values.get("new_content")
    path = _path(result.values) or _path(action.values)
    if not result.failed and _kind(action) == "edit" and path and isinstance(new, str):
        known = isinstance(old, str) and result.values.get("prev_exist") is not False
        return list(diff(path, old if known else None, new))
    return contents(result.parts, as_code=_kind(action) in ("execute", "read", "search"))


def contents(parts: Iterable[Part], *, as_code: bool = False) -> list[Json]:
    """Returns texts and images as the content of a card."""
    shown: list[Json] = []
    for part in parts:
        if part.image:
            shown += [{"type": "content", "content": block} for block in image_blocks(part.image)]
        elif part.text.strip():
            text = part.text[:_LONGEST]
            block = {"type": "text", "text": fenced(text) if as_code else text}
            shown.append({"type": "content", "content": block})
    return shown


def image_blocks(url: str) -> list[Json]:
    """Returns the content block of the image in a `data:` URL; [] if it can't be read.

    Any other URL is returned as a text block.
    """
    head, comma, data = url.partition(",")
    if head.startswith("data:") and head.endswith(";base64") and comma:
        mime_type = head.removeprefix("data:").removesuffix(";base64")
        return [{"type": "image", "mimeType": mime_type, "data": data}]
    return [{"type": "text", "text": url[:_LONGEST]}] if not head.startswith("data:") else []


def _plan(result: Result) -> list[Update]:
    """Returns the update with the agent's plan if the result has its list of tasks; else []."""
    tasks = result.values.get("task_list")
    if (
        result.failed
        or not isinstance(tasks, list)
        or "TaskTracker" not in str(result.values.get("kind"))
    ):
        return []
    entries = [
        {
            "content": str(task.get("title") or ""),
            "priority": "medium",
            "status": _PLAN_STATUS.get(str(task.get("status")), "pending"),
        }
        for task in tasks
        if isinstance(task, dict)
    ]
    return [{"sessionUpdate": "plan", "entries": entries}]


def _inner_content(values: Mapping[str, Any]) -> list[Json]:
    shown: list[Json] = []
    blocks = values.get("content")
    for block in blocks if isinstance(blocks, list) else ():
        match block:
            case {"type": "diff", "path": str(path), **rest}:
                old = rest.get("oldText", rest.get("old_text"))
                new = rest.get("newText", rest.get("new_text"))
                shown += diff(path, old if isinstance(old, str) else None, str(new or ""))
            case {"type": "content", "content": {"type": "text", "text": str(text)}}:
                shown += contents([Part(text)])
    if not shown and (output := values.get("raw_output")):
        text = output if isinstance(output, str) else json.dumps(output, ensure_ascii=False)
        shown += contents([Part(text)], as_code=True)
    return shown
