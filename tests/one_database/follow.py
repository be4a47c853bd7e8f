"""An editor comes to one machine by `acp-bridge connect`, for a session that another one has."""

import os
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import anyio

from tests.one_database.machines import DATABASE, at
from tests.one_database.site import LONG, ROOT, Place, Shown, Site
from tests.remote.serve.certificate import certificate, log_in
from tests.support.client import RecordingClient
from tests.support.recording import RpcError
from tests.support.waiting import until
from tests.whole.bridge_support import TELL_ACCEPTED, accepted, stopped

PORT = 8765
RUNS = "stream 100000 50"
WAIT = "say what waited"


class Server:
    """What serves at a machine, under its own address and a certificate of its own."""

    def __init__(self, site: Site, folder: Path) -> None:
        """Make the certificate and a token."""
        folder.mkdir()
        self._site, self._said = site, folder / "said"
        self.address = f"https://{site.machine.address}:{PORT}"
        self._files = certificate(folder, f"IP:{site.machine.address}")
        made = subprocess.run(
            site.words("serve", "token", "laptop"), env=site.env, capture_output=True, check=True
        )
        self._token = made.stdout.decode().strip()

    @asynccontextmanager
    async def serving(self, project: Path) -> AsyncIterator[None]:
        where = f"{self._site.machine.address}:{PORT}"
        words = ["serve", where, "--root", str(project), "--tls", *self._files]
        with self._said.open("wb") as said:
            process = await anyio.open_process(
                self._site.words(*words, agent=True), env=self._site.env, stdout=None, stderr=said
            )
        async with process:
            with anyio.fail_after(LONG):
                await until(lambda: b"wss" in self._said.read_bytes(), within=LONG)
            try:
                yield
            finally:
                with suppress(ProcessLookupError):  # its machine was killed
                    process.kill()

    def log_in(self, home: Path) -> str:
        """Keep a login for it in a data folder; returns the command for that."""
        log_in(home, self.address, self._token, self._files[0])
        return f"acp-bridge connect --login {self.address}"

    @asynccontextmanager
    async def editor(self, home: Path) -> AsyncIterator[RecordingClient]:
        """An editor on the database's machine, from which there is a way to both others."""
        self.log_in(home)
        words = [*at(DATABASE), sys.executable, "-m", "acp_bridge", "connect", self.address]
        env = {**os.environ, "ACP_BRIDGE_HOME": str(home), "PYTHONPATH": str(ROOT)}
        async with RecordingClient.start(words, env=env, exit_within=10) as client:
            await client.initialize(TELL_ACCEPTED, within=LONG)
            yield client


async def followed(place: Place) -> None:
    """The session's machine is killed while an editor has the session there, by way of A."""
    report = place.report
    report.title("An editor is connected to machine A, and machine B has the session")
    a = Server(place.a, place.folder / "serve-a")
    b = Server(place.b, place.folder / "serve-b")
    home = place.folder / "laptop"
    async with (
        a.serving(place.project),
        b.serving(place.project),
        b.editor(place.folder / "other") as first,
        a.editor(home) as client,
    ):
        place.session_id = await first.new_session(place.project)
        await first.prompt("say before", within=LONG)
        first.send_prompt(RUNS)
        await first.until_text("30 ", within=LONG)
        await _refused_without_a_login(place, client, b)
        command = b.log_in(home)
        client.session_id = place.session_id
        await client.load_session(place.session_id, place.project)
        waits = client.send_prompt(WAIT)
        await accepted(client, waits)
        await client.until_text("60 ", within=LONG)
        words = Shown(client).words
        report.row(
            "logged in at B, it has the session there by way of A, and a prompt of its own waits",
            f"{command}; session/load",
            f"{words[:20]!r} ... {words[-20:]!r}",
            holds=words.startswith("before0 1 2 "),
        )
        place.b.machine.kill()
        await _taken_up(place, client, time.monotonic())
        await _goes_on(place, client, waits)


async def _refused_without_a_login(place: Place, client: RecordingClient, b: Server) -> None:
    try:
        await client.load_session(place.session_id, place.project)
        said = "it was loaded"
    except RpcError as error:
        said = error.message
    place.report.row(
        "without a login for B the editor is told what to do, and nothing goes there",
        "session/load",
        said,
        holds=f"acp-bridge connect --login {b.address}" in said,
    )


async def _taken_up(place: Place, client: RecordingClient, since: float) -> None:
    mark = client.mark()
    with anyio.fail_after(2 * LONG):
        while True:
            try:
                await client.load_session(place.session_id, place.project)
                break
            except RpcError:
                await anyio.sleep(0.2)
    text = client.text(since=mark)
    place.report.row(
        "machine B is killed, and the same editor has the session from A when the lease is over",
        f"kill -9 $(ip netns pids {place.b.machine.name}); session/load",
        f"{time.monotonic() - since:.1f} s after, ... {text[-200:]!r}",
        holds="before0 1 2 " in text and "Interrupted" in text,
    )


async def _goes_on(place: Place, client: RecordingClient, waits: Any) -> None:
    await client.prompt("/queue run", within=LONG)
    more = client.send_prompt("say after")
    ended = [await stopped(client, asked, LONG) for asked in (waits, more)]
    sent = [*place.b.log.prompts(), *place.a.log.prompts()]
    place.report.row(
        "what waited runs on the user's word, and the session goes on at A; nothing ran twice",
        "/queue run; what the agents of both machines got",
        f"{ended}; {sent}",
        holds=ended == ["end_turn"] * 2 and sent == ["say before", RUNS, WAIT, "say after"],
    )
