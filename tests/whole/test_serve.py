"""`acp-bridge serve` as a process: over WebSocket a client works as over a pipe, with its token."""

import json
import os
import re
import shutil
import signal
import ssl
import stat
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Self

import acp
import anyio
import pytest
from acp.ws import create_websocket_stream
from websockets.asyncio.client import ClientConnection, connect, unix_connect
from websockets.exceptions import ConnectionClosed, InvalidStatus

from acp_bridge.core.clients.rights import May
from acp_bridge.remote.serve import tokens
from tests.remote.serve.certificate import certificate
from tests.support import processes
from tests.support.fixture_agents import fixture_command
from tests.support.processes import descendants
from tests.support.waiting import until
from tests.whole.bridge_support import ROOT, World
from tests.whole.test_sdk_client import Editor
from tests.whole.tiny_agent import tiny_agent

pytestmark = [pytest.mark.process, pytest.mark.hazard("N1")]

#: what it says once it can be reached.
_AT = re.compile(r"^acp-bridge serve: ws.*\n", re.MULTILINE)
HELLO = {"protocolVersion": 1, "clientCapabilities": {}}

#: An agent whose tool comes to a server with a token that it has read somewhere.
CONNECTING = r"""
import socket

def _x_come(id, params):
    port = params["port"]
    with socket.create_connection(("127.0.0.1", port)) as talk:
        talk.sendall((
            f"GET /acp HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nUpgrade: websocket\r\n"
            f"Authorization: Bearer {params['token']}\r\nConnection: Upgrade\r\n"
            "Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n"
        ).encode())
        return {"said": talk.recv(65536).decode()}
"""


class Remote:
    """A client over WebSocket."""

    def __init__(self, socket: ClientConnection) -> None:
        self.socket = socket
        self.updates: list[Any] = []
        self.count = 0

    async def ask(self, method: str, params: Any) -> Any:
        """The result of a request, or its error; updates before it are kept."""
        self.count += 1
        asked = {"jsonrpc": "2.0", "id": self.count, "method": method, "params": params}
        await self.socket.send(json.dumps(asked))
        while True:
            message = json.loads(await self.socket.recv())
            if message.get("id") == self.count and "method" not in message:
                return message.get("result", message.get("error"))
            self.updates.append(message)

    async def session(self, cwd: Path) -> str:
        await self.ask("initialize", HELLO)
        made = await self.ask("session/new", {"cwd": str(cwd), "mcpServers": []})
        return str(made["sessionId"])

    async def prompt(self, session: str, text: str) -> Any:
        words = [{"type": "text", "text": text}]
        return await self.ask("session/prompt", {"sessionId": session, "prompt": words})


class Serving:
    """A server's process and the token `laptop`."""

    def __init__(self, world: World, process: processes.Process, said: Path) -> None:
        self.world, self.process, self._said = world, process, said
        self.secret, self.port = "", 0

    @property
    def said(self) -> str:
        """What it has said on stderr."""
        return self._said.read_text()

    @property
    def url(self) -> str:
        return f"ws://127.0.0.1:{self.port}/acp"

    @property
    def bearer(self) -> dict[str, str]:
        return {"Authorization": f"Bearer {self.secret}"}

    @asynccontextmanager
    async def client(self, secret: str | None = None) -> AsyncIterator[Remote]:
        header = {"Authorization": f"Bearer {secret or self.secret}"}
        async with connect(self.url, additional_headers=header, proxy=None) as socket:
            yield Remote(socket)

    async def command(self, *words: str) -> str:
        code, out, err = await self.world.command("serve", *words)
        assert code == 0, err
        return out

    async def started(self) -> Self:
        """Wait until it has said where it listens."""
        with anyio.fail_after(30):
            await until(lambda: _AT.search(self.said) or self.process.poll() is not None)
        assert _AT.search(self.said), self.said
        found = re.search(r"127\.0\.0\.1:(\d+)", self.said)
        self.port = int(found[1]) if found else 0
        return self


def start(command: list[str], env: dict[str, str], cwd: Path, said: Path) -> processes.Process:
    """Start a process whose stderr is a file."""
    with said.open("wb") as err, open(os.devnull) as none:
        return processes.start(command, env, cwd, (none.fileno(), 1, err.fileno()))


def token_of(home: Path, name: str) -> str:
    """The secret of a new token that may all, made as the command makes it where no server runs."""
    secret = tokens.new_secret()
    with tokens.held(home) as mine:
        mine.add(tokens.new_token(name, May.ALL, secret))
    return secret


@asynccontextmanager
async def serving(
    world: World,
    tmp_path: Path,
    *options: str,
    agent: list[str] | None = None,
    at: str = "127.0.0.1:0",
) -> AsyncIterator[Serving]:
    """A server on the loopback with a token, until the block ends."""
    secret = token_of(world.home, "laptop")
    said = tmp_path / "said"
    words = ["serve", at, "--root", str(world.cwd), *options]
    command = [sys.executable, "-m", "acp_bridge", *words, "--", *(agent or fixture_command())]
    own = {"ACP_BRIDGE_HOME": str(world.home), "PYTHONPATH": str(ROOT)}
    with anyio.fail_after(60):
        process = start(command, {**os.environ, **world.env, **own}, world.cwd, said)
        try:
            it = Serving(world, process, said)
            it.secret = secret
            yield await it.started()
            process.send_signal(signal.SIGTERM)
            await until(lambda: process.poll() is not None, within=5)
            assert process.returncode == 0, it.said
        finally:
            process.kill()
            process.wait()


def told_in_proc(pid: int) -> str:
    """The arguments and the environment of a process."""
    files = [Path(f"/proc/{pid}/{name}") for name in ("cmdline", "environ")]
    return "".join(file.read_bytes().decode(errors="replace") for file in files)


@pytest.mark.hazard("P2")
async def test_a_signal_as_soon_as_the_address_is_said_ends_the_server_in_order(
    world: World,
) -> None:
    token_of(world.home, "laptop")
    words = [sys.executable, "-m", "acp_bridge", "serve", "127.0.0.1:0", "--", *fixture_command()]
    env = {**os.environ, **world.env, "ACP_BRIDGE_HOME": str(world.home), "PYTHONPATH": str(ROOT)}
    with anyio.fail_after(30):
        async with await anyio.open_process(words, env=env, cwd=world.cwd, stdout=None) as process:
            assert process.stderr
            assert (await process.stderr.receive()).startswith(b"acp-bridge serve: ws")
            process.send_signal(signal.SIGTERM)
            assert await process.wait() == 0


async def test_a_client_prompts_over_websocket_and_another_sees_it(
    world: World, tmp_path: Path
) -> None:
    async with serving(world, tmp_path) as it:
        assert it.said == (
            f"acp-bridge serve: {it.url}, for 1 token, below {world.cwd}\n"
            f"acp-bridge serve: open the page at http://127.0.0.1:{it.port}/\n"
        )
        async with it.client() as one:
            session = await one.session(world.cwd)
            assert await one.prompt(session, "say one") == {"stopReason": "end_turn"}
            looking = (await it.command("token", "--may", "look", "phone")).strip()
            async with it.client(looking) as other:
                await other.ask("initialize", HELLO)
                listed = await other.ask("session/list", {})
                assert [each["sessionId"] for each in listed["sessions"]] == [session]
                given = {"sessionId": session, "cwd": str(world.cwd), "mcpServers": []}
                await other.ask("session/load", given)
                assert other.updates
                refused = await other.prompt(session, "say two")
                assert "may only look" in refused["message"]
        assert world.log.prompts() == ["say one"]


async def test_the_python_sdk_s_websocket_client_works_through_it(
    world: World, tmp_path: Path
) -> None:
    async with serving(world, tmp_path) as it:
        stream = await create_websocket_stream(it.url, headers=it.bearer)
        editor: Any = Editor()
        connection = acp.connect_to_agent(editor, stream)
        await connection.initialize(protocol_version=1)
        session = await connection.new_session(cwd=str(world.cwd), mcp_servers=[])
        words: list[Any] = [acp.text_block("say one")]
        answer = await connection.prompt(prompt=words, session_id=session.session_id)
        assert answer.stop_reason == "end_turn"
        assert editor.text
        await connection.close()
        await stream.close()


async def test_behind_a_proxy_it_is_reached_on_a_socket_under_the_proxy_s_name(
    world: World, tmp_path: Path
) -> None:
    path = tmp_path / "s"
    options = "--behind-proxy", "https://bridge.example.org"
    async with serving(world, tmp_path, *options, at=f"unix:{path}") as it:
        assert it.said.startswith(
            f"acp-bridge serve: wss://bridge.example.org/acp, behind a proxy at unix:{path}, for"
        )
        assert "\nacp-bridge serve: open the page at https://bridge.example.org/\n" in it.said
        assert stat.S_IMODE(path.stat().st_mode) == 0o660
        there = "ws://bridge.example.org/acp"
        async with unix_connect(str(path), there, additional_headers=it.bearer) as socket:
            assert await Remote(socket).session(world.cwd)
        with pytest.raises(InvalidStatus, match="421"):
            async with unix_connect(str(path), "ws://evil.example/acp"):
                pass
    assert not path.exists()


def other_groups() -> list[int]:
    """The groups beside its own that this process can give a file to."""
    return [33] if os.getuid() == 0 else [each for each in os.getgroups() if each != os.getgid()]


@pytest.mark.skipif(not other_groups(), reason="the user is in no other group")
async def test_the_socket_for_a_proxy_has_the_group_of_its_folder(
    world: World, tmp_path: Path
) -> None:
    folder, group = tmp_path / "for-proxy", other_groups()[0]
    folder.mkdir(mode=0o750)
    os.chown(folder, -1, group)
    options = "--behind-proxy", "https://bridge.example.org"
    async with serving(world, tmp_path, *options, at=f"unix:{folder / 's'}"):
        found = (folder / "s").stat()
        assert (stat.S_IMODE(found.st_mode), found.st_gid) == (0o660, group)
        async with await anyio.connect_unix(folder / "s") as proxy:
            await proxy.send(b"GET /health HTTP/1.1\r\nHost: bridge.example.org\r\n\r\n")
            assert b" 200 " in await proxy.receive()  # it serves, and so ends in order


@pytest.mark.skipif(not shutil.which("openssl"), reason="openssl is not installed")
async def test_a_renewed_certificate_is_served_and_a_file_of_tokens_that_others_changed_is_not_read(
    world: World, tmp_path: Path
) -> None:
    files = certificate(tmp_path, "IP:127.0.0.1")
    async with serving(world, tmp_path, "--tls", *files) as it:
        assert it.said.startswith("acp-bridge serve: wss://127.0.0.1:")
        before = ssl.get_server_certificate(("127.0.0.1", it.port))
        certificate(tmp_path, "IP:127.0.0.1")
        log = world.home / "bridge.log"
        await until(lambda: "remote.renewed" in log.read_text())
        assert ssl.get_server_certificate(("127.0.0.1", it.port)) != before
        kept = world.home / "remote/tokens.json"
        kept.write_text(kept.read_text().replace("laptop", "forged"))
        await until(lambda: "changed by another program" in it.said)
        assert "changed by another program" in log.read_text()
        secure = it.url.replace("ws:", "wss:")
        trust = ssl.create_default_context(cafile=files[0])
        async with connect(secure, additional_headers=it.bearer, proxy=None, ssl=trust) as socket:
            assert await Remote(socket).session(world.cwd)
        assert "laptop" in await it.command("tokens")


@pytest.mark.hazard("N1.1")
async def test_without_a_token_nothing_is_served(world: World) -> None:
    code, _, said = await world.command("serve", "127.0.0.1:0", "--", *fixture_command())
    assert code == 1
    assert said.endswith("acp-bridge serve token NAME\n")


async def test_a_second_server_of_the_same_home_is_refused(world: World, tmp_path: Path) -> None:
    async with serving(world, tmp_path):
        code, _, said = await world.command("serve", "127.0.0.1:0", "--", *fixture_command())
        assert code == 1
        assert "--home" in said


async def test_an_address_that_is_taken_is_said(world: World, tmp_path: Path) -> None:
    async with serving(world, tmp_path) as it:
        home = str(tmp_path / "another")
        token_of(Path(home), "x")
        words = ["serve", f"127.0.0.1:{it.port}", "--home", home, "--", *fixture_command()]
        code, _, said = await world.command(*words)
        assert (code, said.strip()[-22:]) == (1, "Address already in use")


@pytest.mark.hazard("N1.10")
async def test_a_token_that_is_revoked_while_it_is_used_ends_its_connections(
    world: World, tmp_path: Path
) -> None:
    async with serving(world, tmp_path) as it, it.client() as client:
        await client.session(world.cwd)
        assert "laptop" in await it.command("tokens")
        assert await it.command("revoke", "laptop") == (
            "The token laptop is revoked; 1 connection of it has ended.\n"
        )
        with pytest.raises(ConnectionClosed):
            await client.ask("session/list", {})
        assert client.socket.close_code == 1008
        with pytest.raises(InvalidStatus):
            async with it.client():
                pass
        assert await it.command("tokens") == "No tokens. acp-bridge serve token NAME makes one.\n"


@pytest.mark.hazard("V6")
async def test_an_agent_does_not_come_in_with_a_token_that_it_has_stolen(
    world: World, tmp_path: Path
) -> None:
    agent = tiny_agent(tmp_path, CONNECTING)
    async with serving(world, tmp_path, agent=agent) as it, it.client() as client:
        session = await client.session(world.cwd)
        given = {"sessionId": session, "port": it.port, "token": it.secret}
        said = (await client.ask("_x/come", given))["said"]
        assert said.startswith("HTTP/1.1 403 ")
        assert "agents and what they start may not connect" in said
        given["port"], given["token"] = it.port, "acpb_x"
        assert (await client.ask("_x/come", given))["said"].startswith("HTTP/1.1 401 ")


@pytest.mark.hazard("N1.7")
async def test_the_token_is_in_no_argument_environment_or_log(world: World, tmp_path: Path) -> None:
    async with serving(world, tmp_path, "--log-level", "debug") as it, it.client() as client:
        session = await client.session(world.cwd)
        await client.prompt(session, "say one")
        pids = [it.process.pid, *descendants(it.process.pid)]
        assert len(pids) > 2
        for pid in pids:
            assert it.secret not in told_in_proc(pid)
        secret = it.secret.removeprefix("acpb_").encode()
        files = [each for each in world.home.rglob("*") if each.is_file()]
        assert world.home / "bridge.log" in files
        assert not [each for each in files if secret in each.read_bytes()]
        assert secret.decode() not in it.said
