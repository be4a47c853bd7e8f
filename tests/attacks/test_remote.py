"""What an agent, another user and a page can do to a server of clients from elsewhere.

They have a token, as if it had been stolen; the server is on the loopback, where all reach it.
"""

import json
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

import pytest

from tests.attacks.conftest import a_field
from tests.attacks.field import SECONDS, Field
from tests.attacks.test_other_users import stranger
from tests.support.client import RecordingClient
from tests.support.rights import without_rights
from tests.support.waiting import until
from tests.whole.bridge_support import ROOT
from tests.whole.test_serve import start

pytestmark = [pytest.mark.process, pytest.mark.slow]

#: Comes to the server with a token, and prints the first line of its answer and the last.
COME = r"""
import os, socket, sys

def come(port, token, *more):
    with socket.socket() as talk:
        talk.settimeout(10)
        talk.connect(("127.0.0.1", int(port)))
        lines = ["GET /acp HTTP/1.1", f"Host: 127.0.0.1:{port}", "Upgrade: websocket",
                 "Connection: Upgrade", "Sec-WebSocket-Version: 13",
                 "Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==", f"Authorization: Bearer {token}"]
        talk.sendall("\r\n".join([*lines, *more, "", ""]).encode())
        said = talk.recv(65536).decode().strip().split("\r\n")
        print(said[0], said[-1], flush=True)
"""
ITSELF = f"{COME}\ncome(*sys.argv[1:])\n"
#: No process can look into one that is private, as those of acp-bridge are.
PRIVATE = f"{COME}\nimport ctypes; ctypes.CDLL(None).prctl(4, 0)\ncome(*sys.argv[1:])\n"
#: It says on the server's private socket that its connection is no agent's.
VOUCHING = f"""
import ctypes, pathlib, sys
sys.path.insert(0, sys.argv.pop())
home = pathlib.Path(sys.argv.pop())
from acp_bridge.remote.serve import control
{COME}
connect = socket.socket.connect
def connect_and_vouch(talk, address):
    connect(talk, address)
    if talk.family == socket.AF_INET:
        print(control.vouch(home, talk.getsockname()), end=" ")
socket.socket.connect = connect_and_vouch
ctypes.CDLL(None).prctl(4, 0)
come(*sys.argv[1:])
"""
#: It has lost its parents, and its standard streams lead to a file.
DAEMON = f"""{COME}
readable, writable = os.pipe()
if os.fork() == 0:
    os.setsid()
    if os.fork():
        os._exit(0)
    os.dup2(writable, 1)
    come(*sys.argv[1:])
    os._exit(0)
os.close(writable)
print(os.fdopen(readable).read())
"""
#: The user's own client: prompts the agent with its third word, and prints what that says.
CLIENT = r"""
import asyncio, json, sys
from websockets.asyncio.client import connect

async def main(port, token, text, cwd):
    url, header = f"ws://127.0.0.1:{port}/acp", {"Authorization": f"Bearer {token}"}
    async with connect(url, additional_headers=header, proxy=None) as client:
        async def ask(number, method, params):
            await client.send(json.dumps(
                {"jsonrpc": "2.0", "id": number, "method": method, "params": params}))
            while (message := json.loads(await client.recv())).get("id") != number:
                words = message["params"].get("update", {}).get("content", {})
                print(words.get("text", ""), end="")
            return message["result"]
        await ask(1, "initialize", {"protocolVersion": 1, "clientCapabilities": {}})
        made = await ask(2, "session/new", {"cwd": cwd, "mcpServers": []})
        await ask(3, "session/prompt", {"sessionId": made["sessionId"],
                                        "prompt": [{"type": "text", "text": text}]})

asyncio.run(main(*sys.argv[1:]))
"""


@dataclass(frozen=True)
class Target:
    """A server of an ordinary user's, and a token of it."""

    field: Field
    port: str
    token: str

    def client(self, prompt: str) -> str:
        """What the agent says to a prompt of the user's own client."""
        words = [self.port, self.token, prompt, str(self.field.folder)]
        return ran([*without_rights(), sys.executable, "-c", CLIENT, *words], self.field)

    def attack(self, code: str, *more: str) -> str:
        """What a tool of the agent is answered that comes with the token."""
        return self.client(self.field.tool(code, self.port, self.token, *more))


def ran(command: list[str], field: Field) -> str:
    """What a command prints."""
    env = {**os.environ, **field.env}
    out = subprocess.STDOUT
    done = subprocess.run(
        command, env=env, cwd=field.folder, stdout=subprocess.PIPE, stderr=out, timeout=SECONDS
    )
    return done.stdout.decode()


@asynccontextmanager
async def serving(field: Field) -> AsyncIterator[Target]:
    """A server on the loopback, until the block ends."""
    code, said = await field.command("serve", "token", "stolen")
    assert code == 0, said
    command = [*without_rights(), sys.executable, "-m", "acp_bridge", "serve"]
    command += ["127.0.0.1:0", "--root", str(field.folder), "--", *field.agent]
    log = field.folder / "said"
    process = start(command, {**os.environ, **field.env}, field.folder, log)
    try:
        await until(lambda: "\n" in log.read_text())
        bound = log.read_text().partition("ws://127.0.0.1:")[2].partition("/")[0]
        yield Target(field, bound, said.split()[-1])
        process.send_signal(signal.SIGTERM)
        await until(lambda: process.poll() is not None, within=5)
    finally:
        process.kill()
        process.wait()


@pytest.fixture(scope="module")
def anyio_backend() -> str:
    """The tests share a server."""
    return "asyncio"


@pytest.fixture(scope="module")
def shared_field() -> Iterator[Field]:
    with a_field() as made:
        yield made


@pytest.fixture(scope="module")
async def target(shared_field: Field) -> AsyncIterator[Target]:
    """One for all tests: a client that comes in or is refused changes nothing for the next."""
    async with serving(shared_field) as found:
        yield found


@pytest.mark.hazard("S28", "V6", "N1.11")
@pytest.mark.parametrize("code", [ITSELF, PRIVATE, DAEMON], ids=["itself", "private", "daemon"])
async def test_an_agent_does_not_come_in_with_a_stolen_token(target: Target, code: str) -> None:
    said = target.attack(code)
    assert said.startswith("HTTP/1.1 403 Forbidden"), said
    assert "may not connect" in said or "can't be seen" in said


@pytest.mark.hazard("N1", "P17.2")
async def test_an_agent_gets_at_no_descriptor_or_memory_of_the_server(target: Target) -> None:
    told = json.loads(target.client("thief"))
    assert told["seen"]
    assert told["got"] == []


@pytest.mark.hazard("S28")
async def test_the_user_s_own_client_comes_in(target: Target) -> None:
    """So that the others are refused for what they are."""
    assert target.client("hello") == 'took ["hello"]'
    words = [sys.executable, "-I", "-c", ITSELF, target.port, target.token]
    assert ran([*without_rights(), *words], target.field).startswith("HTTP/1.1 101 ")


@pytest.mark.hazard("S28")
async def test_a_private_process_of_the_user_s_vouches_for_itself_and_an_agent_can_not(
    target: Target,
) -> None:
    more = [str(target.field.home), str(ROOT)]
    words = [sys.executable, "-c", VOUCHING, target.port, target.token, *more]
    assert ran([*without_rights(), *words], target.field).startswith("True HTTP/1.1 101 ")
    said = target.attack(VOUCHING, *more)
    assert said.startswith("False HTTP/1.1 403 "), said


@pytest.mark.hazard("S28", "V6")
async def test_connect_is_private_and_comes_in_from_the_server_s_own_machine(
    target: Target,
) -> None:
    field, url = target.field, f"http://127.0.0.1:{target.port}"
    code, said = await field.command("connect", "--login", url, given=f"{target.token}\n")
    assert code == 0, said
    command = [*without_rights(), sys.executable, "-m", "acp_bridge", "connect", url]
    async with RecordingClient.start(command, env=field.env, exit_within=5) as client:
        await client.initialize({})
        await client.new_session(field.folder)
        assert await client.prompt("words", within=SECONDS) == {"stopReason": "end_turn"}
    code, said = await field.command("ps", "--at", url)
    assert (code, "words" in said) == (0, True), said
    # with another data folder nobody vouches for it
    elsewhere = "--home", str(field.folder / "elsewhere")
    login = "connect", "--login", url, *elsewhere
    code, said = await field.command(*login, given=f"{target.token}\n")
    assert (code, "can't be seen" in said) == (1, True), said


@pytest.mark.hazard("S28", "V6")
async def test_an_agent_can_use_no_command_at_a_server_though_the_user_has_logged_in(
    target: Target,
) -> None:
    url = f"http://127.0.0.1:{target.port}"
    code, said = await target.field.command("connect", "--login", url, given=f"{target.token}\n")
    assert code == 0, said
    commands = [
        [sys.executable, "-m", "acp_bridge", *words, "--at", url]
        for words in (["ps"], ["run", "words"], ["approve", "3f", "--option", "x"])
    ]
    said = target.attack(f"import subprocess\nfor each in {commands}: subprocess.run(each)")
    assert said.count("an agent can't do that") == len(commands), said


@pytest.mark.hazard("S29", "N1.11")
async def test_another_user_does_not_come_in_with_a_stolen_token(target: Target) -> None:
    code = ITSELF.replace("import os, socket, sys", "")  # which a stranger's code has
    said = stranger(code, target.port, target.token)
    assert said.startswith("HTTP/1.1 403 Forbidden"), said
    assert "only the user of this acp-bridge may connect" in said


@pytest.mark.hazard("S30", "N1.8")
async def test_a_page_of_another_origin_or_port_or_name_gets_nowhere(target: Target) -> None:
    for more in (
        "Origin: https://evil.example",
        "Origin: null",
        "Origin: http://127.0.0.1:3000",
        "Host: evil.example",
    ):
        words = [sys.executable, "-I", "-c", ITSELF, target.port, target.token, more]
        said = ran([*without_rights(), *words], target.field)
        assert said.startswith(("HTTP/1.1 403 ", "HTTP/1.1 421 ")), said
