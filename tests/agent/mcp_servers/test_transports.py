"""A server on the official SDK, over each transport."""

import json
import subprocess
import uuid
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import anyio
import pytest

from agent.tools import ToolError
from tests.agent.mcp_servers.support import SDK_SERVER, Stand, serving, stdio
from tests.agent.support import Fifo
from tests.support.mcp_offers import ECHO_SCHEMA, NAMES, PIXEL
from tests.support.processes import MARK, all_gone, kill_marked

pytestmark = pytest.mark.process

KEY = "a key for this server"


@pytest.fixture(scope="module")
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(scope="module")
def module_mark() -> Iterator[str]:
    mark = uuid.uuid4().hex
    yield mark
    kill_marked(mark)


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    """Of one process that serves HTTP."""
    with subprocess.Popen([*SDK_SERVER, "http"], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout
        yield f"http://127.0.0.1:{process.stdout.readline().strip()}"
        process.kill()


@pytest.fixture(scope="module", params=["stdio", "http", "sse"])
async def stand(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, module_mark: str
) -> AsyncIterator[Stand]:
    """Connected once for the module: what tests do to the server, the next ones see."""
    kind = request.param
    if kind == "stdio":
        spec = stdio("sdk", *SDK_SERVER, "stdio", mark=module_mark, GIVEN="yes")
    else:
        path = {"http": "mcp", "sse": "sse"}[kind]
        headers = [{"name": "X-Key", "value": KEY}]
        url = f"{request.getfixturevalue('address')}/{path}"
        spec = {"type": kind, "name": "sdk", "url": url, "headers": headers}
    async with serving(tmp_path_factory.mktemp(kind), spec) as stand:
        yield stand
    assert not stand.said
    await all_gone(module_mark)


async def test_the_tools_of_every_page_are_offered(stand: Stand) -> None:
    assert [name for name in stand.names if "grown" not in name] == [
        f"mcp__sdk__{name}" for name in NAMES
    ]
    assert stand.tool("echo").description == "The tool echo."
    assert stand.tool("echo").Args.model_json_schema() == ECHO_SCHEMA


async def test_a_text_comes_back_with_what_is_structured(stand: Stand) -> None:
    result = await stand.call("echo", text="grüße\n" * 1000)
    assert result.text == "grüße\n" * 1000
    assert result.raw == {"said": result.text}


async def test_an_image_comes_back(stand: Stand) -> None:
    assert (await stand.call("picture")).images == (f"data:image/png;base64,{PIXEL}",)


async def test_resources_come_back(stand: Stand) -> None:
    result = await stand.call("documents")
    assert result.text.splitlines() == [
        "[resource memo://notes]",
        "buy milk",
        "[image, image/x-disk: not readable here]",
        "[resource memo://plan] plan: what to do",
        "[audio, audio/wav: not readable here]",
    ]
    assert result.content
    assert [part["content"]["type"] for part in result.content] == [
        "resource",
        "image",
        "resource_link",
        "audio",
    ]


async def test_a_tool_that_fails_says_why(stand: Stand) -> None:
    with pytest.raises(ToolError, match=r"^no such thing$"):
        await stand.call("fail")


async def test_a_call_that_is_refused_says_why(stand: Stand) -> None:
    with pytest.raises(ToolError, match=r"^The MCP server sdk refused the call: `text` is missing"):
        await stand.call("refuse")


@pytest.mark.hazard("C10")
async def test_cancelled_the_server_hears_of_it_and_goes_on(stand: Stand, tmp_path: Path) -> None:
    fifo = Fifo(tmp_path / "tell")
    async with anyio.create_task_group() as tasks:

        async def wait() -> None:
            await stand.call("wait", tell=str(fifo.path))

        tasks.start_soon(wait)
        await fifo.lines()
        tasks.cancel_scope.cancel()
    await fifo.lines()
    fifo.close()
    assert (await stand.call("echo", text="still here")).text == "still here"


async def test_several_calls_run_at_once(stand: Stand, tmp_path: Path) -> None:
    fifo = Fifo(tmp_path / "tell")
    with anyio.fail_after(10):
        async with anyio.create_task_group() as tasks:

            async def wait() -> None:
                await stand.call("wait", tell=str(fifo.path))

            tasks.start_soon(wait)
            tasks.start_soon(wait)
            await fifo.lines(2)
            assert (await stand.call("echo", text="meanwhile")).text == "meanwhile"
            tasks.cancel_scope.cancel()
        await fifo.lines(2)
    fifo.close()


async def test_a_tool_that_comes_later_is_offered_from_then_on(stand: Stand) -> None:
    with anyio.fail_after(5):
        while "mcp__sdk__grown" not in stand.names:
            await stand.call("grow")  # again: over HTTP, what is said too early is said to nobody


@pytest.mark.parametrize("stand", ["stdio"], indirect=True)
async def test_a_process_runs_in_the_sessions_folder_with_what_was_given_alone(
    stand: Stand,
) -> None:
    place: dict[str, Any] = json.loads((await stand.call("place")).text)
    assert place["cwd"] == str(stand.cwd)
    # LC_CTYPE: what Python itself puts there in the C locale.
    usual = {"HOME", "LOGNAME", "PATH", "SHELL", "TERM", "USER", "LC_CTYPE"}
    assert set(place["env"]) - usual == {"GIVEN", MARK}


@pytest.mark.parametrize("stand", ["http", "sse"], indirect=True)
async def test_headers_are_sent(stand: Stand) -> None:
    assert (await stand.call("headers")).text == KEY
