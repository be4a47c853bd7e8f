"""The page's way in over real connections: what a stranger can send, and what ends a login."""

import json
import logging
from pathlib import Path
from typing import Any

import anyio
import pytest
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.frames import Frame, Opcode
from websockets.typing import Origin

from acp_bridge.remote.serve.door import FAILURES
from tests.page_not_ours.site import Site, Working, site

pytestmark = pytest.mark.hazard("N1")


def visit(there: Site) -> Any:
    """A page's WebSocket, before it has said anything."""
    address = there.url.replace("http", "ws", 1)
    return connect(f"{address}/page", origin=Origin(there.url), proxy=None)


async def told(page: ClientConnection, **first: Any) -> Any:
    """What a page is answered first that sends this."""
    await page.send(json.dumps(first))
    return json.loads(await page.recv())


@pytest.mark.hazard("N1.10")
async def test_a_log_out_ends_every_page_with_the_login(tmp_path: Path) -> None:
    with anyio.fail_after(20):
        async with (
            site(tmp_path / "home", Working()) as there,
            visit(there) as one,
            visit(there) as other,
        ):
            secret = (await told(one, code=there.code()))["login"]
            assert (await told(other, login=secret))["name"] == "phone-1"
            await one.send('{"do": "leave"}')
            await other.wait_closed()
            assert there.server.count("phone-1") == 0


async def test_a_login_of_odd_letters_counts_as_a_wrong_one_and_fills_no_log(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(logging.getLogger("acp_bridge"), "propagate", True)
    with anyio.fail_after(20):
        async with site(tmp_path / "home", Working()) as there:
            for _ in range(FAILURES):
                async with visit(there) as page:
                    assert (await told(page, login="\ud800"))["login"] is None
            with pytest.raises(InvalidStatus, match="429"):
                await visit(there)
    assert not [each for each in caplog.records if each.levelno >= logging.ERROR]


async def test_of_a_stranger_a_server_keeps_no_more_than_a_first_message(tmp_path: Path) -> None:
    with anyio.fail_after(20):
        async with site(tmp_path / "home", Working()) as there, visit(there) as page:
            frame = Frame(Opcode.TEXT, b"x" * 300_000, fin=False)
            page.transport.write(frame.serialize(mask=True))
            with pytest.raises(ConnectionClosed):
                await page.recv()
            assert page.close_code == 1009
