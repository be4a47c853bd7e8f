"""An agent that the test plays, from its start to its end, behind a real Link."""

from collections.abc import Callable
from typing import Any

import anyio
import anyio.lowlevel
from anyio.abc import TaskGroup

from acp_bridge.core.agents.link import Owner
from acp_bridge.core.agents.process import Exit
from acp_bridge.core.protocol import SESSION_PROMPT
from acp_bridge.core.wire.jsonrpc import RpcError
from tests.core.agents.scripted_process import Listener
from tests.core.session.memory import Json, MemoryLink
from tests.core.session.waiting import until

KILLED = Exit(None, 9)


def refusal(code: int, message: str = "no", **data: Any) -> RpcError:
    """Return an error as an agent gives it."""
    return RpcError.received(code, message, data) if data else RpcError.received(code, message)


AUTH_REQUIRED = refusal(-32000, "log in", methods=["key"])
UNKNOWN = refusal(-32002, "no such session")
BUSY = refusal(-32603, "busy", kept=1)


class PlayedAgent(MemoryLink):
    """Has one `reply` for each request that it is to answer at once; others stay open."""

    def __init__(
        self,
        *capabilities: str,
        name: str = "agent",
        owner: Owner | None = None,
        parked: bool = False,
    ) -> None:
        """`capabilities`: "load", "resume" and "close"."""
        super().__init__(name, owner or Listener())
        self.agent_session_id = None
        able: Json = {name: {} for name in capabilities if name != "load"}
        can: Json = {"loadSession": "load" in capabilities, "sessionCapabilities": able}
        self.connection.initialized = {"protocolVersion": 1, "agentCapabilities": can}
        #: raised by the system when the process is spawned.
        self.unspawnable: Exception | None = None
        #: set when the process is spawned; as in a thread, nothing cancels the wait for it.
        self.gate: anyio.Event | None = None
        #: it answers `initialize` at once.
        self.ready = True
        #: no kill ends it.
        self.immortal = False
        #: it ends turns without a word, unless the test lets it say some.
        self.mute = False
        #: it does not end by itself when it is closed.
        self.stays = False
        self.lock: int | None = None
        #: called when something was sent to it.
        self.on_sent: Callable[[], None] = lambda: None
        self._parked = parked
        self._spawned = False
        self._replies: dict[str, list[Any]] = {}
        self._open: list[Json] = []

    # --- what it is asked ----------------------------------------------------------------------

    @property
    def heard(self) -> list[str]:
        """The methods of everything that it was sent, in order; answers have none."""
        return [message["method"] for message in self.sent.messages if "method" in message]

    def params(self, method: str) -> list[Json]:
        """Return the parameters of everything that it was sent of this method."""
        sent = self.sent.messages
        return [message["params"] for message in sent if message.get("method") == method]

    def reply(self, method: str, *results: Any) -> None:
        """Answer the next requests of this method at once; an RpcError refuses one."""
        self._replies.setdefault(method, []).extend(results)

    async def asked(self, method: str) -> Json:
        """Return the oldest open request of this method, waited for."""
        await until(lambda: any(each["method"] == method for each in self._open))
        found = next(each for each in self._open if each["method"] == method)
        self._open.remove(found)
        return found

    def answer(self, request: Json, result: Any) -> None:
        """Answer an open request; an RpcError refuses it.

        A prompt's turn has had a word then, about which no test asks, unless the agent is `mute`.
        """
        updates = getattr(self.owner, "_updates", None)
        if request.get("method") == SESSION_PROMPT and updates and not self.mute:
            updates.spoke = True
        if isinstance(result, RpcError):
            self.says({"id": request["id"], "error": result.to_wire()})
        else:
            self.says({"id": request["id"], "result": result})

    def _send(self, data: bytes) -> None:
        super()._send(data)
        self.on_sent()
        message = self.sent.messages[-1]
        if "method" in message and "id" in message:
            if replies := self._replies.get(message["method"]):
                self.answer(message, replies.pop(0))
            else:
                self._open.append(message)

    # --- what it says --------------------------------------------------------------------------

    def update(self, **update: Any) -> None:
        """Say something of its session."""
        params = {"sessionId": self.agent_session_id, "update": update}
        self.says({"method": "session/update", "params": params})

    def says_text(self, text: str, message_id: str = "m") -> None:
        content = {"type": "text", "text": text}
        self.update(sessionUpdate="agent_message_chunk", content=content, messageId=message_id)

    # --- its life ------------------------------------------------------------------------------

    @property
    def started(self) -> bool:
        return self._spawned

    async def start(self, tasks: TaskGroup, *, lock_fd: int | None = None) -> None:
        self.lock = lock_fd
        if self.gate:
            with anyio.move_on_after(5, shield=True):
                await self.gate.wait()
            await anyio.lowlevel.checkpoint_if_cancelled()
        if self.unspawnable:
            raise self.unspawnable
        self._spawned = True
        if self.ready:
            self.reply("initialize", {})
        try:
            await self.ask("initialize", {})
        except BaseException:
            self.connection._unfit = not self.gone
            await self.kill()
            raise

    def hold_lock(self, lock_fd: int) -> None:
        self.lock = lock_fd

    def exits(self, how: Exit = KILLED) -> None:
        """End the main process; descendants live."""
        if not self.gone:
            self.connection.exit = how
            self.connection.over()

    def dies(self, how: Exit = KILLED) -> None:
        """End the whole tree."""
        self.exits(how)
        if not self.dead.is_set():
            self.dead.set()
            self.owner.on_dead(self)

    async def kill(self) -> bool:
        await anyio.lowlevel.checkpoint()
        if self._spawned and not self.immortal:
            self.dies()
        return not self.immortal

    async def close(self, grace: float) -> None:
        await anyio.lowlevel.checkpoint()
        if not self.stays:
            self.dies(Exit(0, None))
