"""The names of version 2 of ACP that differ from those of version 1, which `protocol.py` has.

They are taken from the schema in fixtures/acp-v2: that of the TypeScript SDK 2.4.0, with the
additions of Preview (2026-11-20).
"""

from __future__ import annotations

from typing import Final

from acp_bridge.core import protocol

# --- methods ------------------------------------------------------------------------------------

AUTH_LOGIN: Final = "auth/login"
AUTH_LOGOUT: Final = "auth/logout"
CANCEL_TOOL_CALL: Final = "tool_call/cancel"
CANCEL_TERMINAL: Final = "terminal/cancel"

# --- members ------------------------------------------------------------------------------------

#: in `session/resume`: the part of the session that is to be replayed.
REPLAY_FROM: Final = "replayFrom"
#: the type of `REPLAY_FROM` for a replay of everything.
FROM_START: Final = "start"
#: in `session/prompt` (Preview): a key that is the same for each attempt to send one prompt.
IDEMPOTENCY_KEY: Final = "idempotencyKey"

# --- kinds of `session/update` ------------------------------------------------------------------

USER_MESSAGE: Final = "user_message"
AGENT_MESSAGE: Final = "agent_message"
AGENT_THOUGHT: Final = "agent_thought"
STATE_UPDATE: Final = "state_update"
TOOL_CALL_CONTENT_CHUNK: Final = protocol.TOOL_CALL_CONTENT_CHUNK
TERMINAL_UPDATE: Final = protocol.TERMINAL_UPDATE
TERMINAL_OUTPUT_CHUNK: Final = protocol.TERMINAL_OUTPUT_CHUNK
NOTICE: Final = "notice"
COMPACTION_UPDATE: Final = "compaction_update"
COMPACTION_SUMMARY_CHUNK: Final = "compaction_summary_chunk"
#: Preview: the end of a replay.
REPLAY_COMPLETE: Final = "replay_complete"
#: the kinds of updates that version 1 has not.
KINDS: Final = (
    *(USER_MESSAGE, AGENT_MESSAGE, AGENT_THOUGHT, STATE_UPDATE, REPLAY_COMPLETE),
    *(TOOL_CALL_CONTENT_CHUNK, TERMINAL_UPDATE, TERMINAL_OUTPUT_CHUNK),
)

# --- values -------------------------------------------------------------------------------------

#: the states in `STATE_UPDATE`.
RUNNING: Final = "running"
REQUIRES_ACTION: Final = "requires_action"
IDLE: Final = "idle"
#: the stop reason of a turn that ended with an error.
ERROR: Final = "error"
#: statuses of a tool call that version 1 has not.
PAUSED: Final = "paused"
CANCELLED: Final = "cancelled"
#: the id of the one plan of an agent that speaks version 1.
PLAN_ID: Final = protocol.PLAN
#: the type of a plan that has entries. The drafts of both versions have two more, which are
#: documents: each with the member that has the document.
ITEMS: Final = "items"
_DOCUMENTS: Final = {"markdown": "content", "file": "uri"}
#: the one format of a diff's patch.
GIT_PATCH: Final = "git_patch"
#: the types of work in a state's `background`; `OF_TOOL_CALL` is a question's subject, too.
OF_TERMINAL: Final = protocol.TERMINAL
OF_TOOL_CALL: Final = protocol.TOOL_CALL
OF_SUBAGENT: Final = "subagent"
#: the category of the option that version 1 knows as modes.
MODE: Final = "mode"


def is_document(plan: protocol.Json) -> bool:
    """Return True for a plan, of either version, that is a text in Markdown or names a file."""
    kind = plan.get("type")
    member = _DOCUMENTS.get(kind) if isinstance(kind, str) else None
    return member is not None and all(isinstance(plan.get(n), str) for n in ("planId", member))


def answers_as_v2(result: object) -> bool:
    """Return True if an answer to `initialize` is one of version 2.

    Some agents of version 1 repeat whatever version they are asked for.
    """
    return (
        isinstance(result, dict)
        and result.get("protocolVersion") == protocol.VERSION_2
        and isinstance(result.get("info"), dict)
        and "capabilities" in result
        and "agentCapabilities" not in result
    )
