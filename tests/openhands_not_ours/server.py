"""The agent-server as a process, and what the tests ask of it over REST, as another client would.

A server has a folder of its own: its home, its conversations, its log. It can be killed and started
again on the same port.
"""

from __future__ import annotations

import os
import socket
import subprocess
import time
import urllib.error
import urllib.request
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import anyio
import httpx

from tests.openhands_not_ours import environment
from tests.openhands_not_ours.model import SECRET
from tests.support.processes import MARK, kill_marked

Json = dict[str, Any]
KEY = "the-key-of-the-tests"
#: seconds for a start on a busy machine
START = 90
PROFILE, SECOND = "bench", "second"


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return int(listener.getsockname()[1])


@dataclass
class AgentServer:
    """`with AgentServer(folder, model_url) as server`; `running()` waits until it answers."""

    folder: Path
    model_url: str
    port: int = field(default_factory=free_port)
    #: beside its usual environment
    more_env: Mapping[str, str] = field(default_factory=dict)
    process: subprocess.Popen[bytes] | None = None
    _mark: str = field(default_factory=lambda: uuid.uuid4().hex)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def __enter__(self) -> Self:
        self.start()
        try:
            self.running()
            self.set_up()
        except BaseException:
            self.kill()
            raise
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.kill()

    def start(self) -> None:
        """It answers some seconds later."""
        command = [*environment.command(), "--host", "127.0.0.1", "--port", str(self.port)]
        for name in ("home", "work"):
            (self.folder / name).mkdir(parents=True, exist_ok=True)
        with (self.folder / "log").open("ab") as log:
            self.process = subprocess.Popen(
                command,
                cwd=self.folder,
                env=self._env(),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def _env(self) -> dict[str, str]:
        place = environment.PLACE / "bin"
        return {
            "PATH": f"{place}:{os.environ['PATH']}",
            "HOME": str(self.folder / "home"),
            "OH_SESSION_API_KEYS_0": KEY,
            "OH_CONVERSATIONS_PATH": str(self.folder / "conversations"),
            "OH_BASH_EVENTS_DIR": str(self.folder / "bash_events"),
            "OH_WORKSPACE_PATH": str(self.folder / "work"),
            "OH_ENABLE_VSCODE": "false",
            "OH_PRELOAD_TOOLS": "false",
            # else it fetches a table of prices
            "LITELLM_LOCAL_MODEL_COST_MAP": "True",
            "TMUX_TMPDIR": str(self.folder),
            MARK: self._mark,
            **self.more_env,
        }

    def running(self) -> None:
        """Returns when it answers; raises CannotSetUp with the end of its log if it doesn't."""
        end = time.monotonic() + START
        while time.monotonic() < end:
            assert self.process
            if self.process.poll() is not None:
                break
            try:
                with urllib.request.urlopen(f"{self.url}/health", timeout=5):
                    return
            except (urllib.error.URLError, ConnectionError, TimeoutError):
                time.sleep(0.1)
        log = (self.folder / "log").read_text("utf-8", "replace")[-2000:]
        raise environment.CannotSetUp(f"the agent-server doesn't answer:\n{log}")

    def kill(self) -> None:
        """SIGKILL to it and to what it started: its terminals leave its process tree."""
        if self.process is None:
            return
        kill_marked(self._mark)
        self.process.wait()
        self.process = None

    def set_up(self) -> None:
        """Two models, and the agent `bench`, which is the active one."""
        with httpx.Client(base_url=self.url, headers={"X-Session-API-Key": KEY}) as client:
            for name, model in ((PROFILE, "openai/bench"), (SECOND, "openai/other")):
                llm = {"model": model, "api_key": SECRET, "base_url": self.model_url}
                about = {"stream": True, "usage_id": name, "num_retries": 0}
                about["max_input_tokens"] = 90_000
                body = {"llm": {**llm, **about}, "include_secrets": True}
                client.post(f"/api/profiles/{name}", json=body).raise_for_status()
            agent = {"agent_kind": "openhands", "llm_profile_ref": PROFILE}
            client.post(f"/api/agent-profiles/{PROFILE}", json=agent).raise_for_status()
            found = client.get("/api/agent-profiles").json()["profiles"]
            (wanted,) = (profile["id"] for profile in found if profile["name"] == PROFILE)
            client.post(f"/api/agent-profiles/{wanted}/activate").raise_for_status()


class Api:
    """Another client of the server: what is there, whatever the adapter says."""

    def __init__(self, url: str) -> None:
        headers = {"X-Session-API-Key": KEY, "Connection": "close"}
        self._client = httpx.AsyncClient(base_url=url, headers=headers, timeout=60)

    async def close(self) -> None:
        await self._client.aclose()

    async def ask(self, method: str, path: str, body: Json | None = None) -> Any:
        """The JSON of the answer; raises httpx.HTTPStatusError."""
        answer = await self._client.request(method, path, json=body)
        answer.raise_for_status()
        return answer.json()

    async def conversation(self, conversation: str) -> Json:
        found = await self.ask("GET", f"/api/conversations/{conversation}")
        assert isinstance(found, dict)
        return found

    async def conversations(self) -> list[str]:
        found = await self.ask("GET", "/api/conversations/search?limit=100")
        return [item["id"] for item in found["items"]]

    async def events(self, conversation: str) -> list[Json]:
        """All that are stored, in the order of their time."""
        items: list[Json] = []
        page = ""
        while True:
            path = f"/api/conversations/{conversation}/events/search?limit=100{page}"
            found = await self.ask("GET", path)
            items += found["items"]
            if not found["next_page_id"]:
                return items
            page = f"&page_id={found['next_page_id']}"

    async def messages(self, conversation: str, source: str = "user") -> list[str]:
        """The texts of the stored messages of the user, or of the agent."""
        return [
            "".join(part.get("text", "") for part in event["llm_message"]["content"])
            for event in await self.events(conversation)
            if event["kind"] == "MessageEvent" and event["source"] == source
        ]

    async def say(self, conversation: str, text: str) -> None:
        body = {"role": "user", "content": [{"type": "text", "text": text}], "run": True}
        await self.ask("POST", f"/api/conversations/{conversation}/events", body)

    async def until_status(self, conversation: str, *wanted: str, within: float = 30) -> str:
        """Polls: the server tells this only over the socket that is being tested."""
        with anyio.fail_after(within):
            while True:
                status = (await self.conversation(conversation))["execution_status"]
                if status in wanted:
                    return str(status)
                await anyio.sleep(0.05)

    async def until_messages(
        self, conversation: str, wanted: list[str], within: float = 30
    ) -> None:
        """Polls, as `until_status`."""
        with anyio.fail_after(within):
            while True:
                if await self.messages(conversation) == wanted:
                    return
                await anyio.sleep(0.05)
