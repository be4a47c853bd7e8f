"""A client of version 2 that is used as one of version 1, so that the trials know no version."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

from tests.support.client import RecordingClient
from tests.support.recording import Message, Record, is_answer

_HELLO: Message = {
    "protocolVersion": 2,
    "info": {"name": "trials", "version": "1"},
    "capabilities": {"elicitation": {"form": {}}},
}
_WITHDRAWN = -32800


class V2Client(RecordingClient):
    """A prompt counts as answered when its turn has ended, as in version 1."""

    def __init__(self, read_fd: int, write_fd: int) -> None:
        super().__init__(read_fd, write_fd)
        #: by the ids of prompts: their sessions.
        self._prompts: dict[Any, str] = {}

    async def initialize(self, capabilities: Message | None = None, within: float = 20) -> Any:
        """Initialize with what each client of version 2 can, and forms."""
        assert capabilities is None
        answer = await self.request("initialize", _HELLO, within)
        assert answer["protocolVersion"] == 2
        return answer

    async def load_session(
        self, session_id: str, cwd: Path | str, within: float = 20, /, **extra: Any
    ) -> Any:
        """Resume with a replay from the start."""
        params = {"sessionId": session_id, "cwd": str(cwd), "replayFrom": {"type": "start"}}
        result = await self.request("session/resume", {**params, **extra}, within)
        self.session_id = session_id
        return result

    def send_prompt(self, text: str, session_id: str | None = None, **extra: Any) -> Any:
        request = super().send_prompt(text, session_id, **extra)
        self._prompts[request] = session_id or self.session_id
        return request

    async def answer_to(self, request_id: Any, within: float = 5) -> Message:
        """Return the answer; for a prompt that of version 1, when its turn has ended."""
        answer = await super().answer_to(request_id, within)
        if request_id not in self._prompts:
            return answer
        if "error" in answer:
            withdrawn = answer["error"]["code"] == _WITHDRAWN
            return {"result": {"stopReason": "cancelled"}} if withdrawn else answer
        end = await self.until_recorded(partial(self._end_of, request_id), within)
        assert end is not None
        return {"error": end["error"]} if "error" in end else {"result": end}

    def _end_of(self, request_id: Any) -> Message | None:
        """Return the first end of a turn behind the answer to its prompt."""
        since = next(at for at, each in enumerate(self.recording) if _answers(each, request_id))
        states = self.updates(self._prompts[request_id], since)
        return next((each for each in states if each.get("stopReason")), None)


def _answers(record: Record, request_id: Any) -> bool:
    return record.direction == "in" and is_answer(request_id, record.message or {})
