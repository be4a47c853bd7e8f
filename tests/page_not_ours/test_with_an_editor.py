"""The command itself: a phone logs in by a code and takes part in what an editor's bridge runs."""

import re
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import anyio
import pytest

from tests.page_not_ours.browser import Browser
from tests.page_not_ours.test_in_a_browser import SETTLED, count
from tests.support.fixture_agents import fixture_command
from tests.whole.bridge_support import ROOT, World
from tests.whole.conftest import world

__all__ = ["world"]

pytestmark = pytest.mark.process


@asynccontextmanager
async def served(world: World) -> AsyncIterator[None]:
    """`acp-bridge serve` over the sessions of the world, until the block ends."""
    code, _, why = await world.command("serve", "token", "laptop")
    assert code == 0, why
    words = ["serve", "127.0.0.1:0", "--root", str(world.cwd), "--home", str(world.home)]
    async with await anyio.open_process(
        [sys.executable, "-m", "acp_bridge", *words, "--", *fixture_command()],
        cwd=world.cwd,
        env={**world.env, "PYTHONPATH": str(ROOT)},
        stdin=subprocess.DEVNULL,
    ) as process:
        assert process.stderr is not None
        with anyio.fail_after(30):
            assert b"/acp" in await process.stderr.receive()
        try:
            yield
        finally:
            process.terminate()
            with anyio.fail_after(10, shield=True):
                await process.wait()
        assert process.returncode == 0


async def test_a_phone_sees_and_approves_what_an_editor_s_bridge_runs(
    world: World, chromium: Browser
) -> None:
    async with world.bridge() as editor:
        editor.side.permission = "never"
        async with served(world):
            code, told, why = await world.command("serve", "token", "--phone", "phone")
            assert code == 0, why
            found = re.search(r"http://127\.0\.0\.1:\d+/#code=[-A-Z0-9]{9}", told)
            assert found is not None
            page = await chromium.page(found[0])
            await page.shows("ready", "#sessions")
            prompt = editor.send_prompt("say hello; permission; say done")
            await page.shows("Asks:", "#sessions")
            await page.click("#sessions a")
            await page.shows("The agent asks", "#questions")
            await anyio.sleep(SETTLED)
            await page.click(".answers .allow")
            await page.shows("done", "#pieces")
            await page.shows("token phone", "#pieces")
            assert (await editor.answer_to(prompt))["result"] == {"stopReason": "end_turn"}
            await page.click("#prompt")
            await page.type("say from the phone")
            await page.click("#send")
            await editor.until(lambda m: "say from the phone" in str(m.get("params")))
            await page.until(f"{count('from the phone')} === 2")  # the prompt and its answer
            code, told, why = await world.command("serve", "revoke", "phone")
            assert (code, told) == (
                0,
                "The token phone is revoked; 1 connection of it has ended.\n",
            )
            await page.shows("does not count", "#link")
