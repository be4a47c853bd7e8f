"""The REST routes of an agent-server: one method each, with the same errors and bounds for all.

Invariants
- Reads are tried again; nothing else is: a request whose answer is lost may have been carried out.
- Every wait is bounded. Every failure is a ServerProblem that says what is known of the request.
- The key goes in a header of each request, and no redirect is followed with it.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Callable
from typing import Any, Final
from urllib.parse import quote

import anyio
import httpx

from acp_bridge.core.protocol import as_object
from agent.openhands.events import Json
from agent.openhands.problems import Kind, ServerProblem, one_line
from agent.openhands.settings import KEY_VARIABLE
from agent.providers.server_words import words_of

logger = logging.getLogger(__name__)

#: seconds for an answer; an interrupt waits up to five itself
_TIMEOUT: Final = httpx.Timeout(20, connect=5)
#: seconds for requests that the server delays until a running command has ended
_LOCKED_TIMEOUT: Final = httpx.Timeout(900, connect=5)
_INTERRUPT_TIMEOUT: Final = httpx.Timeout(8, connect=2)
#: seconds for requests that ask the model: a condensation, a question
_MODEL_TIMEOUT: Final = httpx.Timeout(300, connect=5)
#: seconds between attempts to read
_READ_AGAIN: Final = (0.2, 1.0)
_PAGE: Final = 100
#: the parent of an event at the beginning of a branch
_ROOT: Final = "__root__"
_CONVERSATIONS: Final = "/api/conversations"


class Server:
    """The client of one agent-server. `mask` removes secrets from what the server says."""

    def __init__(self, url: str, key: str | None, mask: Callable[[str], str]) -> None:
        headers = {"X-Session-API-Key": key} if key else {}
        # No kept connections: if the server closed an idle one, it would be unknown whether a
        # request had been carried out.
        limits = httpx.Limits(max_keepalive_connections=0)
        self._http = httpx.AsyncClient(base_url=url, headers=headers, limits=limits)
        self._url = url
        self._mask = mask

    async def aclose(self) -> None:
        with anyio.move_on_after(5, shield=True):
            await self._http.aclose()

    # the server

    async def ready(self) -> None:
        """Asks the server whether it is up; raises ServerProblem if it doesn't answer yet."""
        await self._ask("GET", "/health")

    async def agent_profiles(self) -> Json:
        return as_object(await self._read("/api/agent-profiles"))

    async def model_profiles(self) -> Json:
        return as_object(await self._read("/api/profiles"))

    async def settings(self) -> Json:
        return as_object(await self._read("/api/settings"))

    async def check_folder(self, path: str) -> None:
        """Raises ServerProblem if the server has no such folder or can't read it."""
        await self._read("/api/file/search_subdirs", {"path": path, "limit": 1})

    # conversations

    async def create(self, request: Json) -> Json:
        return as_object(await self._ask("POST", _CONVERSATIONS, request))

    async def info(self, conversation_id: str) -> Json:
        return as_object(await self._read(_at(conversation_id)))

    async def status(self, conversation_id: str) -> object:
        return (await self.info(conversation_id)).get("execution_status")

    async def listed(self, page_id: str | None) -> Json:
        params: Json = {"limit": _PAGE, "sort_order": "UPDATED_AT_DESC"}
        return as_object(
            await self._read(
                f"{_CONVERSATIONS}/search", params | ({"page_id": page_id} if page_id else {})
            )
        )

    async def delete(self, conversation_id: str) -> None:
        await self._ask("DELETE", _at(conversation_id))

    async def fork(self, conversation_id: str, new_id: str) -> None:
        await self._ask("POST", f"{_at(conversation_id)}/fork", {"id": new_id})

    async def events(self, conversation_id: str, after: str | None) -> AsyncIterator[list[Any]]:
        """Yields the stored events in pages, beginning with the one whose id is `after`."""
        page_id = after
        while True:
            params: Json = {"limit": _PAGE} | ({"page_id": page_id} if page_id else {})
            page = as_object(await self._read(f"{_at(conversation_id)}/events/search", params))
            items = page.get("items")
            yield items if isinstance(items, list) else []
            next_id = page.get("next_page_id")
            if not isinstance(next_id, str) or next_id == page_id:
                return
            page_id = next_id

    # a run

    async def send_message(self, conversation_id: str, content: list[Json]) -> None:
        message = {"role": "user", "content": content, "run": True}
        path = f"{_at(conversation_id)}/events"
        await self._ask("POST", path, message, limits=_LOCKED_TIMEOUT)

    async def run(self, conversation_id: str) -> None:
        await self._ask("POST", f"{_at(conversation_id)}/run")

    async def interrupt(self, conversation_id: str) -> None:
        path = f"{_at(conversation_id)}/interrupt"
        await self._ask("POST", path, limits=_INTERRUPT_TIMEOUT)

    async def leave_out(self, conversation_id: str, message_id: str) -> None:
        """Removes a message, and all after it, from the branch on which the agent continues."""
        path = f"{_at(conversation_id)}/events/{quote(message_id, safe='')}"
        before = as_object(await self._read(path)).get("parent_id")
        body = {"event_id": None if before == _ROOT else before}
        await self._ask("POST", f"{_at(conversation_id)}/navigate", body)

    async def pause(self, conversation_id: str) -> None:
        await self._ask("POST", f"{_at(conversation_id)}/pause", limits=_LOCKED_TIMEOUT)

    async def confirm(self, conversation_id: str, accept: bool, reason: str) -> None:
        path = f"{_at(conversation_id)}/events/respond_to_confirmation"
        await self._ask("POST", path, {"accept": accept, "reason": reason})

    async def set_policy(self, conversation_id: str, policy: Json) -> None:
        path = f"{_at(conversation_id)}/confirmation_policy"
        await self._ask("POST", path, {"policy": policy}, limits=_LOCKED_TIMEOUT)

    async def switch_profile(self, conversation_id: str, name: str) -> None:
        path = f"{_at(conversation_id)}/switch_profile"
        await self._ask("POST", path, {"profile_name": name})

    async def condense(self, conversation_id: str) -> None:
        await self._ask("POST", f"{_at(conversation_id)}/condense", limits=_MODEL_TIMEOUT)

    async def question(self, conversation_id: str, question: str) -> str:
        path = f"{_at(conversation_id)}/ask_agent"
        answer = await self._ask("POST", path, {"question": question}, limits=_MODEL_TIMEOUT)
        return str(as_object(answer).get("response") or "")

    # one request

    async def _read(self, path: str, params: Json | None = None) -> Any:
        for pause in _READ_AGAIN:
            try:
                return await self._ask("GET", path, params=params)
            except ServerProblem as problem:
                if problem.kind not in (Kind.UNSURE, Kind.UNREACHED, Kind.BUSY):
                    raise
                await anyio.sleep(pause)
        return await self._ask("GET", path, params=params)

    async def _ask(
        self,
        method: str,
        path: str,
        body: Json | None = None,
        *,
        params: Json | None = None,
        limits: httpx.Timeout = _TIMEOUT,
    ) -> Any:
        try:
            with anyio.fail_after(limits.read):  # bounds a server that sends a byte now and then
                response = await self._http.request(
                    method, path, json=body, params=params, timeout=limits
                )
        except (httpx.ConnectError, httpx.ConnectTimeout, httpx.UnsupportedProtocol) as error:
            text = f"The agent-server can't be reached at {self._url}."
            raise ServerProblem(Kind.UNREACHED, text) from error
        except (httpx.HTTPError, httpx.InvalidURL, TimeoutError) as error:
            text = "The connection to the agent-server failed."
            raise ServerProblem(Kind.UNSURE, text) from error
        if response.is_success:
            return _json(response)
        raise self._problem(response)

    def _problem(self, response: httpx.Response) -> ServerProblem:
        status = response.status_code
        said = words_of(response.text, self._mask)
        match status:
            case 401 | 403:
                kind, text = Kind.NOT_ALLOWED, f"The agent-server does not allow it (HTTP {status})"
                said = f"is {KEY_VARIABLE} the right key?"
            case 404:
                kind, text = Kind.GONE, "The agent-server does not have it"
            case 409:
                kind, text = Kind.RUNNING, "The agent-server can't do that now"
            case 429:
                kind, text = Kind.BUSY, "The agent-server has no room for another run"
            case _ if status >= 500:
                kind, text = Kind.UNSURE, f"The agent-server failed (HTTP {status})"
            case _:
                kind, text = Kind.REFUSED, f"The agent-server refused (HTTP {status})"
        return ServerProblem(kind, one_line(f"{text}: {said}" if said else f"{text}."))


def _at(conversation_id: str) -> str:
    return f"{_CONVERSATIONS}/{conversation_id}"


def _json(response: httpx.Response) -> Any:
    try:
        return response.json()
    except ValueError as error:
        text = "The agent-server's answer is no JSON; is the address that of an agent-server?"
        raise ServerProblem(Kind.REFUSED, text) from error
