"""The words of ACP that the bridge itself knows; everything else passes through unread.

Every method, kind of update, error code, capability and key of `_meta` that the code names stands
here once.
"""

from __future__ import annotations

from enum import IntEnum, StrEnum
from typing import Any, Final

Json = dict[str, Any]

VERSION: Final = 1  #: the version of the protocol, in `initialize`.
VERSION_2: Final = 2  #: that of the ends which are translated (`ends.py`).
#: the version of the bridges' own protocol on a socket, raised when older clients can't use it.
SOCKET_PROTOCOL: Final = 1


class ErrorCode(IntEnum):
    """The codes of errors: JSON-RPC 2.0's own and ACP's."""

    PARSE_ERROR = -32700
    INVALID_REQUEST = -32600
    METHOD_NOT_FOUND = -32601
    INVALID_PARAMS = -32602
    INTERNAL_ERROR = -32603
    AUTH_REQUIRED = -32000
    RESOURCE_NOT_FOUND = -32002
    REQUEST_CANCELLED = -32800
    #: of version 2: the version that is asked for is not supported.
    UNSUPPORTED_VERSION = -32022


# --- methods of the agent side, in the order of the specification -------------------------------

INITIALIZE: Final = "initialize"
AUTHENTICATE: Final = "authenticate"
LOGOUT: Final = "logout"
PROVIDERS_SET: Final = "providers/set"
PROVIDERS_DISABLE: Final = "providers/disable"
SESSION_NEW: Final = "session/new"
SESSION_LOAD: Final = "session/load"
SESSION_RESUME: Final = "session/resume"
SESSION_LIST: Final = "session/list"
SESSION_CLOSE: Final = "session/close"
SESSION_DELETE: Final = "session/delete"
SESSION_FORK: Final = "session/fork"
SESSION_PROMPT: Final = "session/prompt"
SESSION_CANCEL: Final = "session/cancel"
SET_MODE: Final = "session/set_mode"
SET_MODEL: Final = "session/set_model"
SET_CONFIG_OPTION: Final = "session/set_config_option"
SET_TITLE: Final = "session/set_title"
#: drafts that the bridge refuses: its lists have every session.
ARCHIVES: Final = ("session/archive", "session/unarchive")
QUOTA_READ: Final = "quota/read"  #: a proposal: the limits of the account.
#: an extension that several agents share: a message of the user joins the running turn.
STEERING: Final = "_session/steering"
#: the outcome of `STEERING` when no turn runs; and in the request, as
#: `_meta.steering.idleBehavior`, the wish that none begins.
PROMPT_REQUIRED: Final = "promptRequired"

# --- methods of the client side -----------------------------------------------------------------

SESSION_UPDATE: Final = "session/update"
REQUEST_PERMISSION: Final = "session/request_permission"
READ_TEXT_FILE: Final = "fs/read_text_file"
WRITE_TEXT_FILE: Final = "fs/write_text_file"
CREATE_TERMINAL: Final = "terminal/create"
RELEASE_TERMINAL: Final = "terminal/release"
#: prefixes of an agent's requests that read, write or run something on the client's machine.
ON_THE_MACHINE: Final = ("fs/", "terminal/")
CREATE_ELICITATION: Final = "elicitation/create"
#: methods with which an agent asks a person, through a client.
ASKS_A_PERSON: Final = (REQUEST_PERMISSION, CREATE_ELICITATION)

# --- methods of both sides ----------------------------------------------------------------------

CANCEL_REQUEST: Final = "$/cancel_request"
#: the same, also as LSP spells it.
CANCEL_REQUESTS: Final = (CANCEL_REQUEST, "$/cancelRequest")

# --- methods of the bridge's own (docs/extension.md) ----------------------------------------------

#: a notification: a prompt is on disk.
ACCEPTED: Final = "_acp_bridge/accepted"
#: a request: the running turn waits once its model or tool call in flight has ended.
PAUSE: Final = "_acp_bridge/pause"
#: a request: no further turn of the session starts.
HOLD: Final = "_acp_bridge/hold"
#: a request: ends a pause or a hold.
GO: Final = "_acp_bridge/go"
#: a notification: the prompts that wait or are left over, in the order in which they run.
QUEUE: Final = "_acp_bridge/queue"
#: a request: its answer is the same list, with the whole words of each prompt.
QUEUE_LIST: Final = "_acp_bridge/queue/list"
#: requests that change a prompt of the list: to another place, to other words, or never to run.
QUEUE_MOVE: Final = "_acp_bridge/queue/move"
QUEUE_EDIT: Final = "_acp_bridge/queue/edit"
QUEUE_DROP: Final = "_acp_bridge/queue/drop"
QUEUE_CHANGES: Final = (QUEUE_MOVE, QUEUE_EDIT, QUEUE_DROP)
#: the user's own title of the session.
TITLE: Final = "_acp_bridge/title"
#: a question that is answered on a copy of the session, which stays as it is.
ASK: Final = "_acp_bridge/ask"
#: shows a live session to one more client.
ATTACH: Final = "_acp_bridge/attach"
#: a notification: the state of a session.
SESSION_STATE: Final = "_acp_bridge/state"
#: lists the sessions that are live here.
LIVE: Final = "_acp_bridge/live"
#: cancels the running turn, whoever asked for it.
CANCEL_TURN: Final = "_acp_bridge/cancel"
#: ends one tool call or terminal in the background, of an agent that can do so.
CANCEL_ITEM: Final = "_acp_bridge/cancel_item"
#: ends a session for all clients that have it.
CLOSE_FOR_ALL: Final = "_acp_bridge/close"
#: a notification: why a connection ends.
LET_GO: Final = "_acp_bridge/let_go"

#: requests that read or make a session; they can't go on while the sessions end.
OPENING: Final = frozenset({SESSION_NEW, SESSION_LOAD, SESSION_RESUME, SESSION_FORK, ATTACH})

OWN_PREFIX: Final = "_acp_bridge/"
#: the requests of clients among them. Another one with the prefix is nobody's, and no agent's.
OWN_METHODS: Final = (
    *(PAUSE, HOLD, GO, TITLE, ASK, ATTACH, LIVE, CANCEL_TURN, CLOSE_FOR_ALL),
    *(QUEUE_LIST, *QUEUE_CHANGES, CANCEL_ITEM),
)


class LiveState(StrEnum):
    """The states of a session as clients are told them, by `SESSION_STATE` and `LIVE`."""

    IDLE = "idle"
    STARTING = "starting"
    RUNNING = "running"
    #: the agent works without a prompt.
    WORKING = "working"
    #: the agent asks the user something.
    PERMISSION = "permission"
    PAUSED = "paused"
    HELD = "held"
    CANCELLING = "cancelling"
    #: the agent can't be started, or wants a login.
    BLOCKED = "blocked"
    ASLEEP = "asleep"
    #: the session was closed or deleted for all; the end of a bridge is not told so.
    CLOSED = "closed"


# What a client declares in `clientCapabilities._meta.acp_bridge`.
#: the client is sent `ACCEPTED`, `SESSION_STATE`, `QUEUE`.
HEARS_ACCEPTED: Final = "accepted"
HEARS_STATE: Final = "state"
HEARS_QUEUE: Final = "queue"
#: the client is asked nothing and prompts nothing.
OBSERVES: Final = "observer"
#: the client is asked only about turns of its own prompts.
OWN_TURNS_ONLY: Final = "ownTurnsOnly"
#: a permission that the client is asked for has all that is known of the tool call, and is asked
#: anew when that changes.
WHOLE_CALLS: Final = "wholeCalls"
#: the client has a Stop for any turn, and shows what runs: it needs no notice of that.
HAS_STOP: Final = "stop"
#: the client gets, with each recorded update, the cursor behind that update.
TAKES_CURSORS: Final = "cursors"
#: the name under which a client comes back on another connection.
CLIENT_NAME: Final = "client"
#: of a remote client that another bridge passes on: the name of the login with which it came in.
LOGIN: Final = "login"
#: in the answer to `initialize`: the methods of our own that the bridge takes.
METHODS: Final = "methods"
#: in the answer to a remote client's `initialize`: what it may do; and the value for only looking.
MAY: Final = "may"
ONLY_LOOKS: Final = "look"
#: the client speaks version 2, and is shown the words of an agent of version 2 as that said them.
SHOWS_SAID: Final = "said"
#: in `_meta.acp_bridge` of a permission: the user's rules say that it waits for a person where
#: none is there, so that a client which answers by a rule of its own may leave it open.
WAITS_FOR_PERSON: Final = "waitsForPerson"
#: in the answer to `initialize`, of an agent and of the bridge: it takes `STEERING`.
CAN_STEER: Final[Json] = {"steering": {"supported": True}}
BUILTIN_INFO: Final = "acp-bridge-agent"  #: the built-in agent's name in `agentInfo`.
#: the member of `_meta` in which the built-in agent tells the name of a tool.
BUILTIN_AGENT: Final = "acpBridgeAgent"
#: there, in the call of a permission: no rule and no hook may allow it, only a person.
ONLY_PERSON: Final = "onlyPerson"

#: abilities of an agent in `agentCapabilities._meta.acp_bridge`: it takes
#: `_acp_bridge/pause` and `_acp_bridge/go`; it takes `_acp_bridge/ask`.
CAN_PAUSE: Final = "pause"
CAN_ASK: Final = "ask"
#: an ability of a client, and a member of a prompt's answer: the tokens since the last one.
TOKENS: Final = "tokens"
#: such an ability, declared by the translator of an agent of version 2: it takes `CANCEL_ITEM`.
CAN_CANCEL_ITEM: Final = "cancelItem"
#: the member of `_meta` in which the bridge's own marks and abilities stand.
_OWN: Final = "acp_bridge"

# --- kinds of `session/update` ------------------------------------------------------------------

USER_MESSAGE: Final = "user_message_chunk"
AGENT_MESSAGE: Final = "agent_message_chunk"
AGENT_THOUGHT: Final = "agent_thought_chunk"
TOOL_CALL: Final = "tool_call"
PLAN: Final = "plan"
PLAN_UPDATE: Final = "plan_update"
PLAN_REMOVED: Final = "plan_removed"
TOOL_CALL_UPDATE: Final = "tool_call_update"
COMMANDS_UPDATE: Final = "available_commands_update"
MODE_UPDATE: Final = "current_mode_update"
OPTIONS_UPDATE: Final = "config_option_update"
USAGE_UPDATE: Final = "usage_update"
INFO_UPDATE: Final = "session_info_update"
#: a proposal: the limits of the account. It is shown, and never recorded or replayed.
QUOTA_UPDATE: Final = "quota_update"
QUOTA: Final = "quota"  #: the capability for it: of an agent, and in `session` of a client.
SUBAGENT_UPDATE: Final = "subagent_update"
SESSION_MESSAGE: Final = "session_message"
SESSION_MESSAGE_CHUNK: Final = "session_message_chunk"
#: how `SESSION_STATE` calls a terminal of the agent's that runs in the background (a tool call is a
#: `TOOL_CALL` there), and the member that has the id of each kind.
TERMINAL: Final = "terminal"
ITEM_IDS: Final = {TOOL_CALL: "toolCallId", TERMINAL: "terminalId"}
#: kinds that only a client gets with the capability `SUBAGENTS`.
OF_SUBAGENTS: Final = frozenset({SUBAGENT_UPDATE, SESSION_MESSAGE, SESSION_MESSAGE_CHUNK})
#: a draft: a capability of an agent, and a parameter of the requests that open a session.
SYSTEM_PROMPT: Final = "systemPrompt"
SUBAGENTS: Final = "subagents"  #: of a client that shows the sessions of subagents.

#: an update whose member `said` has the words of an agent of version 2 that version 1 can't say.
SAID_UPDATE: Final = "_acp_bridge_said"
TERMINAL_UPDATE: Final = "terminal_update"
TERMINAL_OUTPUT_CHUNK: Final = "terminal_output_chunk"
TOOL_CALL_CONTENT_CHUNK: Final = "tool_call_content_chunk"

#: kinds that carry text of the conversation, in chunks.
MESSAGES: Final = (USER_MESSAGE, AGENT_MESSAGE, AGENT_THOUGHT)
#: kinds about a tool call.
CALLS: Final = frozenset({TOOL_CALL, TOOL_CALL_UPDATE})
#: kinds that tell the conversation: recorded in order, replayed by a load.
TRANSCRIPT: Final = frozenset({*MESSAGES, *CALLS, PLAN, PLAN_UPDATE, PLAN_REMOVED, SAID_UPDATE})
#: kinds of which only the last one counts: kept by kind, sent once after a replay, in this order.
STATE: Final = (COMMANDS_UPDATE, MODE_UPDATE, OPTIONS_UPDATE, USAGE_UPDATE, INFO_UPDATE)
STATES: Final = frozenset(STATE)
#: kinds that say nothing of what the agent does: all states, also one that is not kept.
ASIDE: Final = STATES | {QUOTA_UPDATE}
#: kinds that a client gets only with these capabilities (drafts of plans, compaction, quotas).
ASKED_FOR_KINDS: Final = {
    PLAN_UPDATE: (PLAN,),
    PLAN_REMOVED: (PLAN,),
    "compaction_update": ("session", "compaction"),
    "compaction_summary_chunk": ("session", "compaction"),
    QUOTA_UPDATE: ("session", QUOTA),
    SAID_UPDATE: ("_meta", _OWN, SHOWS_SAID),
}
#: the statuses of a tool call that has ended.
ENDED: Final = ("completed", "failed")

CANCELLED_PERMISSION: Final[Json] = {"outcome": {"outcome": "cancelled"}}


def as_object(value: object) -> Json:
    """Return an object as it is; anything else becomes an empty one."""
    return value if isinstance(value, dict) else {}


def objects(value: object) -> list[Json]:
    """Return the objects in a list; anything else becomes an empty list."""
    return [each for each in value if isinstance(each, dict)] if isinstance(value, list) else []


def parted(session_id: object) -> tuple[str, str]:
    """Divide a subagent's id at clients, `SESSION:1`, into the session's id and the key `:1`.

    Returns two empty strings for any other id.
    """
    above, _, number = session_id.rpartition(":") if isinstance(session_id, str) else ("", "", "")
    return (above, f":{number}") if above and number.isdecimal() else ("", "")


def renamed(holder: Json, before: str, after: str) -> Json:
    """Return an object with its member `before` renamed to `after`, at the same position."""
    return {after if name == before else name: value for name, value in holder.items()}


def without(holder: Json, *names: str) -> Json:
    """Return an object without the members of these names."""
    return {name: value for name, value in holder.items() if name not in names}


def meta_of(holder: Json) -> Json:
    """Return an object that has only the `_meta` of `holder`; an empty one if that has none."""
    return {"_meta": holder["_meta"]} if holder.get("_meta") else {}


def strings(value: object) -> list[str]:
    """Return the strings in a list; anything else becomes an empty list."""
    return [each for each in value if isinstance(each, str)] if isinstance(value, list) else []


def speaks_v2(params: object) -> bool:
    """Return True for the parameters of an `initialize` in the form of version 2."""
    if not isinstance(params, dict):
        return False
    asked = params.get("protocolVersion")
    later = isinstance(asked, int) and not isinstance(asked, bool) and asked >= 2
    new_form = "capabilities" in params or "clientCapabilities" not in params
    return later and new_form and isinstance(params.get("info"), dict)


def kind_of(params: Json) -> object:
    """Return the kind of update in the parameters of `session/update`, or None."""
    update = params.get("update")
    return update.get("sessionUpdate") if isinstance(update, dict) else None


def names_terminal(update: Json) -> bool:
    """Return True when an update shows a terminal, which lives at one client."""
    content = update.get("content")
    return isinstance(content, list) and any(is_terminal(item) for item in content)


def without_terminals(update: Json) -> Json:
    """Return an update without the terminals in its content, which its client does not have."""
    return {**update, "content": [c for c in update["content"] if not is_terminal(c)]}


def is_terminal(item: object) -> bool:
    """Return True when an item of a tool call's content shows a terminal."""
    return isinstance(item, dict) and item.get("type") == "terminal"


def is_link(item: object) -> bool:
    """Return True when a content block, or an item of a tool call's content, links to a session."""
    return isinstance(item, dict) and item.get("type") == "session"


def only_stands(update: Json) -> bool:
    """Return True when a `subagent_update` tells nothing but the subagent's state."""
    return update.keys() == {"sessionUpdate", "sessionId", "state"}


def is_state(update: Json) -> bool:
    """Return True when only the last update of this kind counts."""
    return update.get("sessionUpdate") in STATES


def has(capabilities: object, *path: str) -> bool:
    """Return True when this capability is declared: as a true flag or an object, not as null."""
    at: Any = capabilities
    for key in path:
        at = at.get(key) if isinstance(at, dict) else None
    return at is not None and at is not False


def user_chunk(block: object) -> Json:
    """Return the update that shows a content block of a prompt as said by the user."""
    return {"sessionUpdate": USER_MESSAGE, "content": block}


def follows_apart(before: Json | None, update: Json) -> bool:
    """Return True when a chunk begins another message than the chunk `before`, which it follows.

    What users say comes whole, and often without an id: of two texts in a row the second one is
    another prompt. A link in the middle of a prompt stands between its texts.
    """
    if before is None or before.get("sessionUpdate") != update.get("sessionUpdate"):
        return True
    ids = [each.get("messageId") for each in (before, update)]
    if update.get("sessionUpdate") != USER_MESSAGE or ids != [None, None]:
        return ids[0] != ids[1]
    contents = [each.get("content") for each in (before, update)]
    return all(isinstance(each, dict) and each.get("type") == "text" for each in contents)


def text_chunk(kind: str, text: str, message_id: str) -> Json:
    """Return the update that shows a text as a message, or as part of one."""
    content = {"type": "text", "text": text}
    return {"sessionUpdate": kind, "content": content, "messageId": message_id}


# --- `_meta.acp_bridge` -------------------------------------------------------------------------

#: of a prompt: the key that its client gives it, the same however often the prompt is sent. In
#: `agentCapabilities`: the bridge takes such keys.
PROMPT_KEY: Final = "promptKey"
#: of a user's words in a replay: the id of the prompt that they are of.
PROMPT_ID: Final = "promptId"
#: of `session/cancel`, for an agent's translator: the agent's background work goes on.
SPARES: Final = "sparesBackground"
#: marks a text of the bridge's own, or of an agent that belongs to it, which is no answer.
NOTICE: Final = "notice"
#: on an update of a tool call, False: the call has ended, and nothing of it was run.
RAN: Final = "ran"
#: marks a prompt that a hook made, and its words in the transcript.
FEEDBACK: Final = "feedback"
#: marks a text that a hook added to a prompt: recorded, since an agent may replay it, not shown.
CONTEXT: Final = "context"
#: what an agent of version 2 has said, for clients of version 2; None: they get nothing.
SAID: Final = "said"
#: of an update: it is for clients of version 1 alone.
OF_VERSION_1: Final = "ofVersion1"
#: marks the end of a tool card that the bridge has assumed, since the agent told none.
ASSUMED: Final = "assumed"
#: on a load: the session is not to be opened if it is not live.
ONLY_LIVE: Final = "onlyIfLive"
#: in a prompt's `_meta`, for the built-in agent: its demo is not to answer for want of a key.
NO_DEMO: Final = "noDemo"
#: of a prompt that is left over: the agent may have read it.
PERHAPS_READ: Final = "perhapsRead"
#: in a resume: the client saw the session until the bridge that held it ended.
CONTINUES: Final = "continues"
#: of the answer to a prompt: the agent's stop reason, of which version 1 has none.
STOP_REASON: Final = "stopReason"
#: of a recorded update, and of the answer to a request that shows a session: the first place of the
#: transcript that the client has not seen yet.
CURSOR: Final = "cursor"
#: in a resume and in `ATTACH`: a cursor. What follows it is shown.
AFTER: Final = "after"
#: the same in a resume of version 2: a type of `replayFrom`.
REPLAY_AFTER: Final = "_acp_bridge_after"
#: of a question to a client with a name: the question's id, the same each time it is asked.
QUESTION: Final = "question"
#: in the answer to a load: the bridge that holds the session, and its settings.
HOLDER: Final = "holder"
#: why a cursor, or a session, is refused, in the `data` of the error.
REASON: Final = "reason"
#: such a reason: a bridge of another machine has the session; its name and https origin follow.
ELSEWHERE: Final = "elsewhere"
MACHINE: Final = "machine"
ADDRESS: Final = "address"


def own_meta(params: Json) -> Json:
    """Return the `_meta.acp_bridge` of a message's parameters; an empty object if there is none."""
    meta = params.get("_meta")
    own = meta.get(_OWN) if isinstance(meta, dict) else None
    return own if isinstance(own, dict) else {}


def only_if_live(params: Json) -> Json:
    """Return a load's parameters, marked so that a session that is not live is not opened."""
    return with_own_meta(params, {**own_meta(params), ONLY_LIVE: True})


def continuing(params: Json) -> Json:
    """Return a load's parameters, marked: the client saw the session until its holder ended."""
    return with_own_meta(params, {**own_meta(params), CONTINUES: True})


def after_of(method: str, params: Json) -> object:
    """Return the cursor behind which a request is to show a session, None for a request without."""
    return own_meta(params).get(AFTER) if method in (SESSION_RESUME, ATTACH) else None


def resuming(params: Json, cursor: str | None) -> Json:
    """Return the parameters of a resume or attach that shows what follows `cursor`, or no past."""
    own = without(own_meta(params), AFTER)
    return with_own_meta(params, {**own, AFTER: cursor} if cursor else own)


def add_own_methods(initialized: Json, *methods: str) -> None:
    """Add methods of our own to those that the bridge's answer to `initialize` names."""
    own_meta(as_object(initialized.get("agentCapabilities")))[METHODS] += methods


def may_of(initialized: Json) -> object:
    """Return what a bridge's answer to `initialize` says that its remote client may do, or None."""
    return own_meta(as_object(initialized.get("agentCapabilities"))).get(MAY)


def can_own(capabilities: object, ability: str) -> bool:
    """Return True when an agent says in its capabilities that it has an ability of ours."""
    return has(capabilities, "_meta", _OWN, ability)


def can_steer(initialized: Json) -> bool:
    """Return True when an agent's answer to `initialize` says that it takes `_session/steering`."""
    return has(initialized, "_meta", "steering", "supported")


def with_own_meta(holder: Json, own: Json) -> Json:
    """Return a result or an update with `own` in `_meta.acp_bridge`; other `_meta` stays."""
    meta = holder.get("_meta")
    return {**holder, "_meta": {**(meta if isinstance(meta, dict) else {}), _OWN: own}}


def words_of(params: Json) -> list[Json]:
    """Return the updates that show a prompt's words; a hook's feedback is marked in `_meta`."""
    blocks = params.get("prompt")
    said = [{"update": user_chunk(block)} for block in blocks] if isinstance(blocks, list) else []
    return [with_own_meta(each, {FEEDBACK: True}) for each in said] if is_feedback(params) else said


def of_prompt(params: Json, prompt_id: str | None) -> Json:
    """Return an update with words of a prompt, marked with the prompt's id if there is one."""
    own = own_meta(params)
    return with_own_meta(params, {**own, PROMPT_ID: prompt_id}) if prompt_id else params


def with_cursor(params: Json, cursor: str) -> Json:
    """Return a recorded update, marked with the cursor of the place behind it."""
    return with_own_meta(params, {**own_meta(params), CURSOR: cursor})


def without_prompt_id(params: Json) -> Json:
    """Return an update without its prompt's id, which only clients of version 2 are shown."""
    return _without_mark(params, PROMPT_ID)


def is_feedback(params: Json) -> bool:
    """Return True for the parameters of a prompt that a hook made."""
    return own_meta(params).get(FEEDBACK) is True


def feedback_prompt(text: str) -> Json:
    """Return the parameters of `session/prompt` for a hook's feedback, without the session's id."""
    return with_own_meta({"prompt": [{"type": "text", "text": text}]}, {FEEDBACK: True})


def queue_words(prompt: list[Any]) -> list[str] | None:
    """Return the words after `/queue` or `/bridge queue`; None if the prompt is something else."""
    text = prompt[0].get("text") if len(prompt) == 1 and isinstance(prompt[0], dict) else None
    words = text.split() if isinstance(text, str) else []
    if words[:1] in (["/bridge"], ["/acp-bridge"]) and words[1:2] == ["queue"]:
        return words[2:]
    return words[1:] if words[:1] == ["/queue"] else None


def not_feedback(params: Json) -> Json:
    """Return a client's prompt without the mark of a hook's feedback, which no client may set."""
    return _without(params, FEEDBACK)


def prompt_key(params: Json) -> str | None:
    """Return the key under which a prompt was sent, or None."""
    key = own_meta(params).get(PROMPT_KEY)
    return key if isinstance(key, str) else None


def without_key(params: Json) -> Json:
    """Return the parameters of a request without the key of a prompt."""
    return _without(params, PROMPT_KEY)


def without_client_name(capabilities: Json) -> Json:
    """Return a client's capabilities without the name of the client."""
    return _without_mark(capabilities, CLIENT_NAME)


def without_machine(capabilities: Json) -> Json:
    """Return a client's capabilities without its files and its terminals."""
    return without(capabilities, "fs", "terminal")


def cursor_of(params: Json) -> object:
    """Return the cursor that an update or an answer carries, or None."""
    return own_meta(params).get(CURSOR)


def without_cursor(params: Json) -> Json:
    """Return an update or a result without its cursor."""
    return _without_mark(params, CURSOR)


def without_said(params: Json) -> Json:
    """Return an update or a question without what its agent has said in version 2."""
    return _without_mark(params, SAID)


def _without_mark(params: Json, name: str) -> Json:
    """Return the parameters without the mark `name`; an `acp_bridge` left empty goes, too."""
    own = own_meta(params)
    if name not in own:
        return params
    return _without(params, name) if len(own) > 1 else without_own_meta(params)


def as_unread(params: Json) -> Json:
    """Return a prompt's parameters without the mark that the agent may have read its words."""
    return _without(params, PERHAPS_READ)


def _without(params: Json, name: str) -> Json:
    own = own_meta(params)
    if name not in own:
        return params
    return with_own_meta(params, without(own, name))


def without_own_meta(params: Json) -> Json:
    """Return the parameters without `_meta.acp_bridge`."""
    meta = params.get("_meta")
    if not isinstance(meta, dict) or _OWN not in meta:
        return params
    kept, rest = without(meta, _OWN), without(params, "_meta")
    return {**rest, "_meta": kept} if kept else rest
