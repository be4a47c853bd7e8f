"""`approve` and `deny`: gets a session's question and answers exactly what was shown.

Invariants
- An answer goes only to the request that was shown. If that was settled elsewhere meanwhile, or was
  asked anew because the agent changed it, this is reported and nothing is answered.
- Only an offered option is chosen, and without `--option` one that holds for once.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Final

import anyio

from acp_bridge.core.protocol import (
    CANCEL_REQUEST,
    HEARS_STATE,
    LIVE,
    ONLY_LOOKS,
    REQUEST_PERMISSION,
    TOOL_CALL,
    WHOLE_CALLS,
    ErrorCode,
    Json,
    as_object,
    may_of,
)
from acp_bridge.core.runtime.own_commands import OWN_COMMANDS
from acp_bridge.core.updates import tool_calls
from acp_bridge.core.wire.jsonrpc import RpcError
from acp_bridge.sharing.bridge_client.connection import Connection
from acp_bridge.sharing.bridge_client.listener import BridgeRequest
from acp_bridge.sharing.bridge_client.permission_options import options_of, selected
from acp_bridge.sharing.bridge_client.tasks import beside
from acp_bridge.terminal.cli.harmless import one_line
from acp_bridge.terminal.shared.reach import LOOKS
from acp_bridge.terminal.shared.waiting import first_of
from acp_bridge.terminal.view.markdown import markdown

#: seconds for the bridge to attach this client, and then to send the question.
_PATIENCE: Final = 5.0
_ABILITIES: Final = {HEARS_STATE: True, WHOLE_CALLS: True}
#: whether an option of this kind allows.
ALLOWS: Final = {
    "allow_once": True,
    "allow_always": True,
    "reject_once": False,
    "reject_always": False,
}


class NotAnswered(Exception):
    """No answer was given; the text is for the user."""


class Question:
    """The client that shows and answers one question of a session; a `Listener`."""

    def __init__(self) -> None:
        #: the permission requests received, in order.
        self.requests: list[BridgeRequest] = []
        self._shown: BridgeRequest | None = None
        #: the shown request was withdrawn before the bridge had read the answer.
        self._overtaken = False
        self._asked, self._gone = anyio.Event(), anyio.Event()

    # -- messages of the bridge

    def on_notification(self, method: str, params: Any) -> None:
        """Note that the shown question was withdrawn before the bridge had read its answer."""
        if method == CANCEL_REQUEST and self._shown is not None and not self._shown.open:
            self._overtaken |= as_object(params).get("requestId") == self._shown.call.id

    def on_request(self, request: BridgeRequest) -> None:
        """Keep a permission request. Raises RpcError for others, which other clients can show."""
        if request.method != REQUEST_PERMISSION:
            raise RpcError(ErrorCode.METHOD_NOT_FOUND, "this client can't do that")
        self.requests.append(request)
        self._asked.set()

    def on_withdrawn(self, request: BridgeRequest) -> None:
        """Note that the shown question was settled by another client."""
        request.give_up()
        if request is self._shown:
            self._gone.set()

    async def room(self) -> None:
        """Return at once: nothing is buffered."""

    # -- steps of an answer

    async def ask(self, connection: Connection, joining: tuple[str, Json]) -> Json:
        """Attach to a session; return the params of its oldest open permission, to be shown now.

        `joining`: the request that attaches. Raises NotAnswered, RpcError, ConnectionLost and
        NoAnswer.
        """
        about = await connection.initialize("acp-bridge", own=_ABILITIES, within=_PATIENCE)
        if may_of(about) == ONLY_LOOKS:
            raise NotAnswered(LOOKS)
        await connection.request(*joining, within=_PATIENCE)
        with anyio.move_on_after(_PATIENCE):
            await first_of(self._asked, connection.ended)
        self._shown = next((each for each in self.requests if each.open), None)
        if self._shown is None:
            raise NotAnswered("no permission is asked in this session any more")
        return self._shown.params

    async def answer(
        self,
        connection: Connection,
        choose: Callable[[], Awaitable[Json]],
    ) -> Json:
        """Answer the shown permission with the option that `choose` returns; returns the option.

        Raises:
            NotAnswered: the question was settled elsewhere or withdrawn before the answer arrived.
        """
        request = self._shown
        assert request is not None, "nothing was asked"
        chosen: list[Json] = []
        async with beside() as tasks:

            async def watch() -> None:
                await first_of(self._gone, connection.ended)
                tasks.cancel_scope.cancel()

            tasks.start_soon(watch)
            chosen.append(await choose())
        if not chosen or not request.open:
            raise NotAnswered(_settled())
        request.answer(selected(str(chosen[0]["optionId"])))
        # A withdrawal that the bridge sent before it read the answer arrives before this result.
        await connection.request(LIVE, {}, within=_PATIENCE)
        if self._overtaken:
            raise NotAnswered(_settled())
        return chosen[0]


def _settled() -> str:
    return (
        "the question was settled elsewhere meanwhile, or the agent has changed it: nothing was"
        f" answered; `{OWN_COMMANDS.line('ps')}` shows what is asked now"
    )


def shown(params: Json) -> str:
    """Return the tool call and the options of a permission as harmless text."""
    call = tool_calls.shown(as_object(params.get("toolCall")))
    update = {**call, "sessionUpdate": TOOL_CALL}
    lines = [markdown([{"update": update}]), ""]
    lines += [
        f"  --option {one_line(option['optionId'])}: {one_line(str(option.get('name')))}"
        f" ({one_line(str(option.get('kind')))})"
        for option in options_of(params)
    ]
    return "\n".join(lines)


def option_for(params: Json, *, allow: bool, given: str | None) -> Json:
    """Return the option whose id, kind or name is `given`; None: the one that holds for once.

    `allow`: look only at options that allow, else only at those that deny. Raises NotAnswered if
    none fits, naming those offered.
    """
    fitting = [each for each in options_of(params) if ALLOWS.get(str(each.get("kind"))) is allow]
    wanted = given if given is not None else ("allow_once" if allow else "reject_once")
    keys: tuple[str, ...] = ("kind",) if given is None else ("optionId", "kind", "name")
    for key in keys:
        for option in fitting:
            if option.get(key) == wanted:
                return option
    offered = ", ".join(one_line(str(each["optionId"])) for each in fitting)
    verb = "approves" if allow else "denies"
    raise NotAnswered(
        f"no option that {verb} is '{one_line(wanted)}'"
        + (f"; offered: {offered}" if offered else "")
    )


def summary_of(params: Json) -> str:
    """Return the tool call of a permission as one harmless line."""
    return tool_calls.summary(as_object(params.get("toolCall")))
