"""Asks the agent a question beside the session: at once, on a copy that is then forgotten.

An agent that takes `_acp_bridge/ask` answers it itself. Of another one that can fork, the process
that has the session forks it and is asked in the fork (`ForkedAsk`); no other process ever has
the session or the fork open (invariant P12). Nothing of a question is recorded.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final

import anyio
from msgspec import Struct, field

from acp_bridge.core import errors
from acp_bridge.core.agents.link import Link
from acp_bridge.core.clients.client import Client, ClientRequest
from acp_bridge.core.journal import JournalError
from acp_bridge.core.protocol import (
    AGENT_MESSAGE,
    ASK,
    CAN_ASK,
    CANCELLED_PERMISSION,
    ENDED,
    REQUEST_PERMISSION,
    SESSION_CANCEL,
    SESSION_CLOSE,
    SESSION_DELETE,
    SESSION_FORK,
    SESSION_PROMPT,
    SET_MODE,
    TOOL_CALL,
    TOOL_CALL_UPDATE,
    ErrorCode,
    Json,
    add_own_methods,
    can_own,
    has,
)
from acp_bridge.core.runtime import waits
from acp_bridge.core.runtime.log import event
from acp_bridge.core.session.feature import Command, Feature, Parts, Plugin
from acp_bridge.core.session.opening import Workspace
from acp_bridge.core.session.requests.to_agent import ToAgent
from acp_bridge.core.settings import Settings
from acp_bridge.core.updates.notices import notice
from acp_bridge.core.updates.wording import visible, words
from acp_bridge.core.wire.jsonrpc import Answer, Ok, RpcError
from acp_bridge.core.wire.peer import Call, Peer

#: characters of an answer that are passed on.
_LONGEST: Final = 1_000_000
#: ids of modes in which agents in use only read.
_READING_MODES: Final = ("plan", "read-only", "readonly", "read_only")


#: kinds of tool calls that change nothing.
_LOOKING: Final = ("read", "search", "think", "fetch")
_BESIDE: Final = (
    "[This is asked beside the conversation. Answer from what you know, in words; use no tools and"
    " change nothing.]\n\n"
)
#: characters of an answer that are kept.
_LONGEST_IN_FORK: Final = 1_000_000
ASK_WHAT: Final = "Ask what? `/queue ask QUESTION` is answered beside the session."
CANNOT_ASK: Final = (
    "this agent can't be asked beside the session: it has no forks. Ask it in a prompt"
)


class Fork:
    """Receives what the agent says, and refuses what it asks, in the fork made for one question."""

    def __init__(self) -> None:
        """Nothing was said."""
        self._words: list[str] = []
        self._room = _LONGEST_IN_FORK
        #: cancelled when the agent begins to do more than answer.
        self.scope = anyio.CancelScope()
        self.tool = ""
        self.ended = False  #: the agent has answered the question's prompt.

    @property
    def text(self) -> str:
        """The agent's words until now."""
        return "".join(self._words).strip()

    def close(self) -> None:
        """Ignore further updates; requests are still refused."""
        self._room = 0
        self._words = []

    def on_update(self, params: Json) -> None:
        """Collect the agent's words from an update of the fork; end a question that does more."""
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
        """Refuse a request of the agent's."""
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
    """A question to an agent that can fork: in a fork of the session, in the same process.

    The fork is hidden from the listing before it is asked, then closed, and deleted where the agent
    can do that. Nothing may be changed: what the agent asks for in the fork is refused; a mode that
    only reads is chosen if the agent has one of a known name; a tool call that is not known to only
    look ends the question. An agent that changes things without asking may be quicker than that.
    """

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
        if mode_id in _READING_MODES:
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
    """Let the agent forget a fork that it made only after its question had ended."""
    fork_id = _id_of(answer.result) if isinstance(answer, Ok) else None
    if fork_id is None or fork_id == link.agent_session_id:
        return
    for capability, method in (("close", SESSION_CLOSE), ("delete", SESSION_DELETE)):
        if link.can("sessionCapabilities", capability):
            link.request_for(None, method, {"sessionId": fork_id}, lambda answer: None)


def _id_of(result: Any) -> str | None:
    fork_id = result.get("sessionId") if isinstance(result, dict) else None
    return fork_id if isinstance(fork_id, str) else None


class _Question(Struct, eq=False):
    """A question that is not answered yet."""

    request: ClientRequest
    #: it was typed as `/queue ask`, so that a Stop ends it.
    typed: bool
    scope: anyio.CancelScope = field(default_factory=anyio.CancelScope)


class Ask(Feature):
    """Answers questions beside one session."""

    def __init__(self, session: Parts, patience: float = waits.ASK) -> None:
        """`patience`: seconds for one answer."""
        self._session = session
        self._core = session.core
        self._transcript = session.transcript
        self._patience = patience
        self.answers = {ASK: self._answer}
        self.words = ("ask QUESTION",) if can_ask(session.capabilities) else ()
        #: the questions that are not answered.
        self.unanswered: list[_Question] = []

    # --- as a method, and as a command ---------------------------------------------------------

    async def _answer(self, request: ClientRequest, params: Json) -> Json:
        """Return the result of `_acp_bridge/ask`; raises RpcError."""
        question = params.get("question")
        if not isinstance(question, str) or not question.strip():
            raise errors.invalid("must be a text", "question")
        self._transcript.end_quiet(request.client)
        asked = _Question(request, typed=False)
        self.unanswered.append(asked)
        answer = await self._run(asked, question)
        if answer is None:
            raise errors.cancelled()
        return {"answer": answer}

    def take_command(self, command: Command) -> bool:
        """Answer the prompt `/queue ask QUESTION`, later, with the answer shown before that.

        What is read right behind the prompt, such as a Stop, finds the question. Nothing of it is
        recorded.
        """
        match command.words:
            case ["ask"]:
                command.show()
                command.end(ASK_WHAT)
            case ["ask", *_]:
                asked = _Question(command.request, typed=True)
                self.unanswered.append(asked)
                self._core.spawn(self._command, asked, command.text.split(maxsplit=2)[2])
            case _:
                return False
        return True

    async def _command(self, asked: _Question, question: str) -> None:
        client, stop = asked.request.client, "end_turn"
        try:
            answer = await self._run(asked, question)
        except Exception as exc:
            error = exc if isinstance(exc, RpcError) else errors.internal(exc, "asking failed")
            self._say(client, not_answered(error.message))
        else:
            if answer is None:
                stop = "cancelled"
            else:
                self._say(client, answered_beside(answer))
        self._transcript.then(client, lambda: asked.request.answer({"stopReason": stop}))
        if stop == "cancelled":
            self._transcript.hush(client)

    def _say(self, client: Client, text: str) -> None:
        """Show a text to the client that asked, and to no other."""
        self._transcript.show_to(client, notice(text))

    # --- the end -------------------------------------------------------------------------------

    def cancel_request(self, client: Client, request_id: object) -> bool:
        """Carry out a client's `$/cancel_request`; False when it means no `/queue ask`."""
        for asked in self.unanswered:
            if asked.typed and asked.request.is_of(client, request_id):
                asked.scope.cancel()
                return True
        return False

    def note_stop(self, client: Client) -> None:
        """End the questions that this client's user has typed, for the user's Stop."""
        for asked in self.unanswered:
            if asked.typed and asked.request.client is client:
                asked.scope.cancel()

    def begin_close(self) -> None:
        """End all open questions, since the session is being closed."""
        for asked in self.unanswered:
            asked.scope.cancel()

    def keeps_awake(self) -> bool:
        """Return True while a question has no answer."""
        return bool(self.unanswered)

    # --- the agent's part ----------------------------------------------------------------------

    async def _run(self, asked: _Question, question: str) -> str | None:
        """Return the answer, or None when the question, which is open, was ended.

        Raises RpcError.
        """
        try:
            if asked.scope.cancel_called:
                return None
            with asked.scope:
                with anyio.fail_after(self._patience):
                    return await self._asked(asked.request, question)
        except TimeoutError:
            raise errors.silent(ASK, self._patience) from None
        finally:
            self.unanswered.remove(asked)
        return None

    async def _asked(self, request: ClientRequest, question: str) -> str:
        capabilities = self._session.capabilities
        if not can_ask(capabilities):
            raise RpcError(ErrorCode.METHOD_NOT_FOUND, CANNOT_ASK)
        if not can_own(capabilities, CAN_ASK):
            forked = ForkedAsk(self._session.to_agent, self._core.workspace, self._hide)
            return await forked.answer(request, question)
        asked: Json = {"sessionId": "", "question": question}
        _, result = await self._session.to_agent.ask_beside(request, ASK, asked)
        return _text(result)

    async def _hide(self, agent_session_id: str) -> None:
        index, agent = self._session.listing.index, self._session.agent_name
        try:
            await index.remove(agent_session_id, known=True, agent=agent)
        except JournalError as exc:
            event("journal.failed", what=exc)


def _text(result: Any) -> str:
    answer = result.get("answer") if isinstance(result, dict) else None
    if not isinstance(answer, str) or not answer.strip():
        raise errors.agent_trouble("the agent gave no answer")
    return answer[:_LONGEST]


def made_for(session: Parts, settings: Settings) -> Sequence[Feature]:
    """Return what answers questions beside a session."""
    return [Ask(session)]


def can_ask(capabilities: object) -> bool:
    """Return True when an agent can be asked beside a session: by itself, or in a fork."""
    return can_own(capabilities, CAN_ASK) or has(capabilities, "sessionCapabilities", "fork")


def announce(agent: Json, told: Json) -> None:
    """Add to the answer to `initialize` that questions beside a session are answered."""
    if can_ask(agent.get("agentCapabilities")):
        add_own_methods(told, ASK)


PLUGIN: Final = Plugin(made_for, announce=announce)


# --- the sentences --------------------------------------------------------------------------------


def answered_beside(answer: str) -> str:
    """Return the notice of the answer to `/queue ask`: the agent's words, each line as a quote."""
    quote = "\n".join(f"> {visible(line)}" for line in answer.splitlines())
    return f"[acp-bridge] Asked beside the session, which keeps nothing of this:\n\n{quote}"


def not_answered(why: str) -> str:
    """Return the notice that `/queue ask` has no answer."""
    return f"[acp-bridge] Not answered: {words(why)}."
