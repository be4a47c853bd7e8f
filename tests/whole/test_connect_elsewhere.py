"""`acp-bridge connect` follows a session to the machine that has it, and back. Two servers."""

import os
import shutil
import sys
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import pytest
from anyio import fail_after

from tests.remote.serve.certificate import certificate, log_in
from tests.support.client import RecordingClient
from tests.support.fixture_agents import fixture_command
from tests.support.recording import RpcError
from tests.whole.bridge_support import ROOT, World, stopped
from tests.whole.test_database import Machine, Two, load, two
from tests.whole.test_serve import Serving, start, token_of

__all__ = ["two"]
pytestmark = [
    pytest.mark.process,
    pytest.mark.skipif(not shutil.which("openssl"), reason="openssl is not installed"),
]


class Site:
    """A machine with a server that speaks TLS; its address is told by the test."""

    def __init__(self, machine: Machine, folder: Path) -> None:
        folder.mkdir()
        self.machine, self._folder = machine, folder
        self._files = certificate(folder, "IP:127.0.0.1")
        self._starts = 0
        self.it: Serving

    @property
    def address(self) -> str:
        return f"https://127.0.0.1:{self.it.port}"

    async def start(self, stack: AsyncExitStack, port: int = 0) -> None:
        world = self.machine.world
        secret = token_of(world.home, f"laptop{self._starts}")
        at = f"127.0.0.1:{port}"
        words = ["serve", at, "--root", str(world.cwd), "--allow-local", "--tls", *self._files]
        options = [*words, *self.machine.options, "--", *fixture_command()]
        own = {"ACP_BRIDGE_HOME": str(world.home), "PYTHONPATH": str(ROOT)}
        said = self._folder / f"said{self._starts}"
        self._starts += 1
        command = [sys.executable, "-m", "acp_bridge", *options]
        process = start(command, {**os.environ, **world.env, **own}, world.cwd, said)
        stack.callback(process.wait)
        stack.callback(process.kill)
        self.it = await Serving(world, process, said).started()
        self.it.secret = secret

    def log_in(self, home: Path) -> None:
        """Keep a login for it, with the certificate that nobody trusts otherwise."""
        log_in(home, self.address, self.it.secret, self._files[0])

    def kill(self) -> None:
        self.it.process.kill()
        self.it.process.wait()


@asynccontextmanager
async def editor(site: Site, home: Path) -> AsyncIterator[RecordingClient]:
    """An editor whose agent is `connect`, with a data folder of its own."""
    site.log_in(home)
    command = [sys.executable, "-m", "acp_bridge", "connect", site.address]
    env = {"ACP_BRIDGE_HOME": str(home), "PYTHONPATH": str(ROOT)}
    async with RecordingClient.start(command, env=env) as client:
        await client.initialize({})
        yield client


@asynccontextmanager
async def sites(two: Two, tmp_path: Path) -> AsyncIterator[tuple[Site, Site]]:
    here, there = Site(two.here, tmp_path / "a"), Site(two.there, tmp_path / "b")
    with fail_after(90):
        async with AsyncExitStack() as stack:
            for each in (here, there):
                await each.start(stack)
            yield here, there


@pytest.mark.hazard("N1", "N2.21")
async def test_a_session_is_loaded_from_the_machine_that_has_it_and_here_when_that_is_dead(
    two: Two, world: World, tmp_path: Path
) -> None:
    async with (
        sites(two, tmp_path) as (here, there),
        editor(there, tmp_path / "first") as first,
        editor(here, tmp_path / "second") as client,
    ):
        await first.new_session(world.cwd)
        await first.prompt("say before")
        two.execute(f"UPDATE acp_bridge.bridges SET address = '{there.address}'")
        with pytest.raises(RpcError) as refused:
            await load(client, world, first.session_id)
        what_to_do = f"acp-bridge connect --login {there.address}, then load it again"
        assert refused.value.message.endswith(what_to_do)
        there.log_in(tmp_path / "second")
        await load(client, world, first.session_id)
        assert client.text() == "before"
        assert await stopped(client, client.send_prompt("say behind it")) == "end_turn"
        await first.until_text("behind it")
        asked = client.send_prompt("say open; gate g; say never")
        await world.gates.reached("g")
        await client.until_text("open")
        there.kill()
        two.lease_ends()
        mark = client.mark()
        await load(client, world, first.session_id)
        assert "Interrupted" in client.text(since=mark)
        assert "interrupted" in (await client.answer_to(asked, 20))["error"]["message"]
        assert await stopped(client, client.send_prompt("say three")) == "end_turn"
    assert world.log.prompts().count("say behind it") == 1
