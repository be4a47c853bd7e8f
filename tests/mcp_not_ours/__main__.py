"""`make test-mcp`: what the agent does with each server. Exit 1 if any of it is not a plain yes.

A server that can't be installed is a failure, not a reason to leave it out.
"""

from __future__ import annotations

import json
import sys
import tempfile
import uuid
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import anyio

from agent.tools import ToolError
from tests.agent.mcp_servers.support import Stand, serving
from tests.mcp_not_ours import servers
from tests.mcp_not_ours.servers import Place
from tests.support.processes import all_gone, kill_marked

OK = "yes"
Install = Callable[[Path], str | None]


@dataclass(frozen=True, slots=True)
class Row:
    name: str
    #: says what went wrong
    install: Install
    #: the server as ACP has it, perhaps with its process
    spec: Callable[[Place], AbstractAsyncContextManager[dict[str, Any]]]
    trial: Callable[[Stand], Awaitable[None]]


async def everything(stand: Stand) -> None:
    sum_of_two = await stand.call("get-sum", a=2, b=40)
    assert sum_of_two.text == "The sum of 2 and 40 is 42."
    structured = await stand.call("get-structured-content", location="Chicago")
    assert structured.raw["conditions"] == "Light rain / drizzle"
    picture = await stand.call("get-tiny-image")
    assert picture.images[0].startswith("data:image/png;base64,iVBOR")
    assert _kinds(picture) == ["text", "image", "text"]
    assert _kinds(await stand.call("get-resource-links", count=2)) == [
        "text",
        "resource_link",
        "resource_link",
    ]
    assert "resource" in _kinds(await stand.call("get-resource-reference"))
    assert "expected number" in await _refused(stand, "get-sum", a="two")
    await _cancelled(stand, "trigger-long-running-operation", duration=600)
    assert (await stand.call("echo", message="still here")).text == "Echo: still here"


async def filesystem(stand: Stand) -> None:
    file = stand.cwd / "notes.txt"
    await stand.call("write_file", path=str(file), content="grüße")
    assert file.read_text("utf-8") == "grüße"
    assert (await stand.call("read_text_file", path=str(file))).text == "grüße"
    assert "denied" in await _refused(stand, "read_text_file", path="/etc/hostname")


async def clock(stand: Stand) -> None:
    now = await stand.call("get_current_time", timezone="Europe/Berlin")
    assert json.loads(now.text)["timezone"] == "Europe/Berlin"
    assert "timezone" in await _refused(stand, "get_current_time", timezone="Europe/Nowhere")


ROWS = (
    Row(
        "everything, stdio",
        servers.install_npm,
        lambda place: nullcontext(servers.everything(place)),
        everything,
    ),
    Row(
        "everything, streamable HTTP",
        servers.install_npm,
        lambda place: servers.everything_on_http(place, "http"),
        everything,
    ),
    Row(
        "everything, SSE",
        servers.install_npm,
        lambda place: servers.everything_on_http(place, "sse"),
        everything,
    ),
    Row(
        "filesystem, stdio",
        servers.install_npm,
        lambda place: nullcontext(servers.filesystem(place)),
        filesystem,
    ),
    Row(
        "time (Python), stdio",
        servers.install_python,
        lambda place: nullcontext(servers.clock(place)),
        clock,
    ),
)


async def tried(row: Row, place: Place) -> str:
    try:
        with anyio.fail_after(60):
            async with row.spec(place) as spec, serving(place.folder, spec) as stand:
                assert not stand.said, stand.said
                await row.trial(stand)
                assert not stand.said, stand.said
                await stand.servers.close()
                if "command" in spec:
                    await all_gone(place.mark)
            return OK
    except Exception as error:
        return _first_line(error)
    finally:
        kill_marked(place.mark)


async def _cancelled(stand: Stand, name: str, **arguments: Any) -> None:
    with anyio.move_on_after(0.5) as limit:
        await stand.call(name, **arguments)
    assert limit.cancelled_caught


async def _refused(stand: Stand, name: str, **arguments: Any) -> str:
    try:
        result = await stand.call(name, **arguments)
    except ToolError as error:
        return str(error)
    raise AssertionError(f"{name} was not refused: {result.text}")


def _kinds(result: Any) -> list[str]:
    return [part["content"]["type"] for part in result.content or ()]


def _first_line(error: BaseException) -> str:
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return f"{type(error).__name__}: {(str(error).splitlines() or [''])[0][:120]}"


def main() -> int:
    with tempfile.TemporaryDirectory() as packages:
        installed: dict[Install, str | None] = {}
        failed = sum(_told(row, Path(packages), installed) != OK for row in ROWS)
    print(f"{len(ROWS) - failed} passed, {failed} failed")
    return 1 if failed else 0


def _told(row: Row, packages: Path, installed: dict[Install, str | None]) -> str:
    if row.install not in installed:
        installed[row.install] = row.install(packages)
    if trouble := installed[row.install]:
        result = f"not installed: {trouble}"
    else:
        with tempfile.TemporaryDirectory() as home:
            place = Place(uuid.uuid4().hex, Path(home).resolve(), packages)
            result = anyio.run(tried, row, place)
    print(f"{row.name:30} {result}", flush=True)
    return result


if __name__ == "__main__":
    sys.exit(main())
