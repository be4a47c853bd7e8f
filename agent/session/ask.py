"""Answers a question beside the conversation, on a copy of the transcript.

Invariants
- Nothing of it is kept: no record, no session, nothing shown. The conversation stays as it is.
- It changes nothing: every tool call is refused.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any, NoReturn

import anyio
import anyio.to_thread
from pydantic import BaseModel

from acp_bridge.core.records import replace
from agent.client import ClientError, Update
from agent.conversation.compaction import Compactor
from agent.conversation.entries import Answer
from agent.conversation.transcript import Transcript, UnknownSession
from agent.errors import request_cancelled, unknown_session
from agent.model import ModelError, ToolSpec
from agent.session.config_options import ConfigOptions
from agent.session.shared_parts import SharedParts
from agent.session.system_prompt import GivenPrompt, system_prompt
from agent.tools import Access, Action, AnyTool, Toolbox, ToolContext, ToolError
from agent.turn.loop import Turn
from agent.turn.permissions import Permissions

#: model calls for one question; a model that calls tools is told twice that it can't
_CALLS = 3
_DENIED = "Not run: no tool can be used to answer this. Answer from what you know, in words."
_BESIDE = """\
[The user asks this beside the conversation, and the answer goes to the user alone. You may be at \
work: a call without a result has not ended yet, and goes on. Answer from what you know, in words; \
no tool can be used.]

"""


class Questions:
    """Answers the questions that a user asks beside one session's conversation."""

    def __init__(
        self,
        shared: SharedParts,
        session_id: str,
        options: ConfigOptions,
        tools: Toolbox,
    ) -> None:
        """`options` and `tools` are the session's own."""
        self._shared = shared
        self._session_id = session_id
        self._options = options
        self._tools = tools
        self._open: set[anyio.CancelScope] = set()

    async def answer(self, question: str, context: ToolContext, given: GivenPrompt | None) -> str:
        """Returns the answer to a question, also while a prompt runs.

        `given`: the client's part of the system prompt.
        Raises ModelError, RequestError.
        """
        with anyio.CancelScope() as scope:
            self._open.add(scope)
            try:
                copy = partial(Transcript.copy, self._shared.settings.folder, self._session_id)
                copied = await anyio.to_thread.run_sync(copy)
                return await self._answer(question, copied, context, given)
            except UnknownSession:
                raise unknown_session() from None
            finally:
                self._open.remove(scope)
        raise request_cancelled()  # the session was closed

    def close(self) -> None:
        """Cancels the questions that are being answered."""
        for scope in self._open:
            scope.cancel()

    async def _answer(
        self, question: str, copy: Transcript, context: ToolContext, given: GivenPrompt | None
    ) -> str:
        if copy.history.system is None:  # no prompt was answered yet
            text = await system_prompt(context.cwd, context.extra_roots, given)
            copy.append({"t": "system", "text": text})
        # Refuses nothing by itself; the model is told of the session's mode.
        permissions = Permissions()
        permissions.mode = self._options.mode
        before = len(copy.history.entries)
        turn = Turn(
            model=self._options.model,
            tools=_DeniedTools(self._tools),
            transcript=copy,
            permissions=permissions,
            context=replace(context, client=_Nobody(), seen={}),
            secrets=context.secrets,
            compactor=Compactor(copy, self._shared.summariser(), _unheard),
            max_calls=_CALLS,
        )
        stop = await turn.run([{"type": "text", "text": _BESIDE + question}])
        answers = [each for each in copy.history.entries[before:] if isinstance(each, Answer)]
        said = [text for each in answers if (text := each.said("text").strip())]
        if not said:
            raise ModelError(f"The model gave no answer in words ({stop}).")
        return "\n\n".join(said)


async def _unheard(text: str) -> None:
    pass


class _DeniedTools(Toolbox):
    """Offers a session's tools, since providers want those that a history names, and runs none."""

    def __init__(self, offered: Toolbox) -> None:
        self._offered = offered

    def get(self, name: str) -> AnyTool | None:
        tool = self._offered.get(name)
        return None if tool is None else _DeniedTool(tool)

    @property
    def specs(self) -> list[ToolSpec]:
        return self._offered.specs


class _DeniedTool:
    """A tool that refuses all calls."""

    def __init__(self, tool: AnyTool) -> None:
        self.name, self.description, self.kind = tool.name, tool.description, tool.kind
        self.Args: type[BaseModel] = tool.Args
        self.access: Access = tool.access
        self._tool = tool

    def title(self, args: BaseModel) -> str:
        return self._tool.title(args)

    def locations(self, args: BaseModel, cwd: Path) -> list[dict[str, Any]]:
        return self._tool.locations(args, cwd)

    async def prepare(self, args: BaseModel, context: ToolContext) -> Action:
        raise ToolError(_DENIED)


class _Nobody:
    """The client of the copied session: it drops updates and refuses every request."""

    reads_files = writes_files = has_terminals = False

    async def update(self, update: Update) -> None:
        pass

    async def ask(self, tool_call: dict[str, Any], options: list[dict[str, Any]]) -> str | None:
        _refuse()

    async def read_file(self, path: str, line: int | None, limit: int | None) -> str:
        _refuse()

    async def write_file(self, path: str, content: str) -> None:
        _refuse()

    async def create_terminal(self, command: str, args: Sequence[str], cwd: str, limit: int) -> str:
        _refuse()

    async def terminal_output(self, terminal_id: str) -> dict[str, Any]:
        _refuse()

    async def wait_for_terminal(self, terminal_id: str) -> dict[str, Any]:
        _refuse()

    async def kill_terminal(self, terminal_id: str) -> None:
        _refuse()

    async def release_terminal(self, terminal_id: str) -> None:
        _refuse()


def _refuse() -> NoReturn:
    raise ClientError("nobody can be asked")
