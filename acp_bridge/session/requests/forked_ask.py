"""A question to an agent that can fork: in a fork of the session, in the same process.

- The fork is made, asked and let go of in the process that has the session. It is hidden from the
  listing before it is asked, then closed, and deleted where the agent can do that.
- Nothing may be changed: what the agent asks for in the fork is refused; a mode that only reads is
  chosen if the agent has one of a known name; a tool call that is not known to only look ends the
  question. An agent that changes things without asking anybody may be quicker than that.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Final

import anyio

from acp_bridge import errors, waits
from acp_bridge.agents.link import Link
from acp_bridge.clients.client import ClientRequest
from acp_bridge.log import event
from acp_bridge.protocol import (
    AGENT_MESSAGE,
    CANCELLED_PERMISSION,
    ENDED,
    READING_MODES,
    REQUEST_PERMISSION,
    SESSION_CANCEL,
    SESSION_CLOSE,
    SESSION_DELETE,
    SESSION_FORK,
    SESSION_PROMPT,
    SET_MODE,
    TOOL_CALL,
    TOOL_CALL_UPDATE,
    Json,
)
from acp_bridge.session.opening import Workspace
from acp_bridge.session.requests.to_agent import ToAgent
from acp_bridge.wire.jsonrpc import Answer, Ok, RpcError
from acp_bridge.wire.peer import Call, Peer

#: kinds of tool calls that change nothing.
_LOOKING: Final = ("read", "search", "think", "fetch")
_BESIDE: Final = (
    "[This is asked beside the conversation. Answer from what you know, in words; use no tools and"
    " change nothing.]\n\n"
)
#: characters of an answer that are kept.
_LONGEST: Final = 1_000_000


class Fork:
    """Takes what the agent says and asks in the fork of one question."""

    def __init__(self) -> None:
        """Nothing was said."""
        self._words: list[str] = []
        self._room = _LONGEST
        #: cancelled when the agent begins to do more than answer.
        self.scope = anyio.CancelScope()
        self.tool = ""
        self.ended = False  #: the agent has answered the question's prompt.

    @property
    def text(self) -> str:
        """What the agent has said."""
        return "".join(self._words).strip()

    def close(self) -> None:
        """Take nothing more; requests are refused still."""
        self._room = 0
        self._words = []

    def on_update(self, params: Json) -> None:
        """Take an update of the fork."""
        match params.get("update"):
            case {"sessionUpdate": kind, "content": {"text": str(text)}} if kind == AGENT_MESSAGE:
                self._words.append(text[: self._room])
                self._room -= len(self._words[-1])
            case {"sessionUpdate": kind} if kind in (TOOL_CALL, TOOL_CALL_UPDATE):
                self._note_call(params["update"])

    def _note_call(self, call: Json) -> None:
        looks = call.get("kind") in _LOOKING
        goes_on = call["sessionUpdate"] == TOOL_CALL_UPDATE and "kind" not in call
        if not looks and not goes_on and call.get("status") not in ENDED:
            self.tool = str(call.get("title") or "a tool")[:200]
            self.scope.cancel()

    def on_agent_request(self, peer: Peer, call: Call) -> None:
        """Refuse what the agent asks for."""
        if call.method == REQUEST_PERMISSION:
            peer.answer(call.id, _rejected(call.params))
        else:
            peer.fail(call.id, errors.refused("nothing may be done beside the session"))


def _rejected(params: Any) -> Json:
    options = params.get("options") if isinstance(params, dict) else None
    for option in options if isinstance(options, list) else []:
        match option:
            case {"kind": "reject_once", "optionId": str(option_id)}:
                return {"outcome": {"outcome": "selected", "optionId": option_id}}
    return CANCELLED_PERMISSION


class ForkedAsk:
    """Asks one question in a fork."""

    def __init__(
        self,
        to_agent: ToAgent,
        workspace: Workspace,
        hide: Callable[[str], Awaitable[None]],
    ) -> None:
        """`hide` keeps a session of the agent out of the listing."""
        self._to_agent = to_agent
        self._workspace = workspace
        self._hide = hide

    async def answer(self, request: ClientRequest, question: str) -> str:
        """Return the agent's words; raises RpcError. Cancelled, it lets go of the fork."""
        params = {**self._workspace.params(""), "mcpServers": []}
        link, result = await self._to_agent.ask_beside(request, SESSION_FORK, params, _let_go_late)
        fork_id = _id_of(result)
        if fork_id is None or fork_id == link.agent_session_id:
            raise errors.agent_trouble("the agent gave no session id")
        link.forks.add(fork_id, fork := Fork())
        try:
            await self._hide(fork_id)
            await _read_only(link, fork_id, result)
            prompt = {
                "sessionId": fork_id,
                "prompt": [{"type": "text", "text": _BESIDE + question}],
            }
            with fork.scope:
                await link.ask_for(request, SESSION_PROMPT, prompt)
                fork.ended = True
            text = fork.text
        finally:
            fork.close()
            with anyio.move_on_after(2 * waits.AGENT_PATIENCE, shield=True):
                await _let_go(link, fork_id, cancel=not fork.ended)
        if not fork.ended:
            raise errors.agent_trouble(f"the agent began to use {fork.tool}: it was stopped")
        if not text:
            raise errors.agent_trouble("the agent gave no answer in words")
        return text


async def _read_only(link: Link, fork_id: str, result: Json) -> None:
    """Choose a mode that only reads, if there is one of a known name."""
    modes = result.get("modes")
    available = modes.get("availableModes") if isinstance(modes, dict) else None
    for mode in available if isinstance(available, list) else []:
        mode_id = mode.get("id") if isinstance(mode, dict) else None
        if mode_id in READING_MODES:
            await _try(link, SET_MODE, {"sessionId": fork_id, "modeId": mode_id})
            return


async def _let_go(link: Link, fork_id: str, *, cancel: bool) -> None:
    """Let the agent forget the fork; `cancel`: it may be at work there."""
    given = {"sessionId": fork_id}
    if cancel:
        link.peer.notify(SESSION_CANCEL, given)
    if link.can("sessionCapabilities", "close"):
        await _try(link, SESSION_CLOSE, given)
    if link.can("sessionCapabilities", "delete"):
        await _try(link, SESSION_DELETE, given)


async def _try(link: Link, method: str, params: Json) -> None:
    with anyio.move_on_after(waits.AGENT_PATIENCE):
        try:
            await link.ask(method, params)
        except RpcError as exc:
            event("agent.fork_refused", agent=link.name, method=method, what=exc.message)


def _let_go_late(link: Link, answer: Answer) -> None:
    """Let the agent forget a fork that came when nobody waited for it any more."""
    fork_id = _id_of(answer.result) if isinstance(answer, Ok) else None
    if fork_id is None or fork_id == link.agent_session_id:
        return
    for capability, method in (("close", SESSION_CLOSE), ("delete", SESSION_DELETE)):
        if link.can("sessionCapabilities", capability):
            link.request_for(None, method, {"sessionId": fork_id}, lambda answer: None)


def _id_of(result: Any) -> str | None:
    fork_id = result.get("sessionId") if isinstance(result, dict) else None
    return fork_id if isinstance(fork_id, str) else None
