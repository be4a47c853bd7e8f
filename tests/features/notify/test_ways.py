"""How a notification is shown on the desktop, and posted."""

from __future__ import annotations

import shutil
import socket
import ssl
import threading
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import anyio
import pytest
from anyio.abc import ByteStream, SocketAttribute, SocketStream
from anyio.streams.tls import TLSStream

from acp_bridge.core.runtime import waits
from acp_bridge.features.notify import desktop, ntfy
from acp_bridge.features.notify.config import address
from acp_bridge.features.notify.errors import NotTold
from tests.remote.serve.certificate import certificate
from tests.support.waiting import until

OK = b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"


@asynccontextmanager
async def server(answer: Callable[[SocketStream], Awaitable[None]]) -> AsyncIterator[int]:
    """A server on the loopback; gives its port."""
    listener = await anyio.create_tcp_listener(local_host="127.0.0.1")

    async def serve(stream: SocketStream) -> None:
        async with stream:
            await answer(stream)

    with anyio.fail_after(20):
        async with listener, anyio.create_task_group() as tasks:
            tasks.start_soon(listener.serve, serve)
            yield listener.extra(SocketAttribute.local_port)
            tasks.cancel_scope.cancel()


async def request_on(stream: ByteStream) -> bytes:
    got = b""
    while b"\r\n\r\n" not in got:
        got += await stream.receive()
    head, _, body = got.partition(b"\r\n\r\n")
    length = int(head.lower().partition(b"content-length: ")[2].split(b"\r\n")[0])
    while len(body) < length:
        body += await stream.receive()
    return head + b"\r\n\r\n" + body


async def test_a_text_is_posted_with_the_login_of_the_address() -> None:
    got: list[bytes] = []

    async def answer(stream: SocketStream) -> None:
        got.append(await request_on(stream))
        await stream.send(OK)

    async with server(answer) as port:
        await ntfy.post(address(f"http://me:pw@127.0.0.1:{port}/topic?x=1"), "müde: waits\nb")
    head, _, body = got[0].partition(b"\r\n\r\n")
    assert head.splitlines()[0] == b"POST /topic?x=1 HTTP/1.1"
    assert f"Host: 127.0.0.1:{port}".encode() in head.splitlines()
    assert b"Authorization: Basic bWU6cHc=" in head.splitlines()
    assert body.decode() == "müde: waits\nb"


async def test_an_answer_that_redirects_is_not_followed_and_is_a_failure() -> None:
    elsewhere: list[bytes] = []

    async def never(stream: SocketStream) -> None:
        elsewhere.append(await stream.receive())

    async with server(never) as other:

        async def answer(stream: SocketStream) -> None:
            await request_on(stream)
            to = f"HTTP/1.1 307 Over there\r\nLocation: http://127.0.0.1:{other}/\r\n\r\n"
            await stream.send(to.encode())

        async with server(answer) as port:
            with pytest.raises(NotTold, match="the server has answered 307"):
                await ntfy.post(address(f"http://localhost:{port}/s3cret"), "x")
    assert elsewhere == []


@pytest.mark.parametrize(
    ("said", "why"),
    [
        (b"HTTP/1.1 403 Forbidden\r\n\r\n", "the server has answered 403"),
        (b"SSH-2.0-x\r\n", "the answer is not HTTP"),
        (b"x" * 100_000, "the answer is not HTTP"),
        (b"", "the connection failed"),
    ],
)
async def test_a_failure_says_why_and_no_part_of_the_address(said: bytes, why: str) -> None:
    async def answer(stream: SocketStream) -> None:
        await request_on(stream)
        await stream.send(said or b"HTTP")

    async with server(answer) as port:
        with pytest.raises(NotTold, match=why) as failed:
            await ntfy.post(address(f"http://localhost:{port}/s3cret"), "x")
    assert not any(word in str(failed.value) for word in ("s3cret", "localhost", str(port)))
    with pytest.raises(NotTold, match="the connection failed") as failed:
        await ntfy.post(address(f"http://localhost:{port}/s3cret"), "x")
    assert not any(word in str(failed.value) for word in ("s3cret", "localhost", str(port)))


async def test_a_server_that_says_nothing_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(waits, "NOTIFY", 0.05)

    async def answer(stream: SocketStream) -> None:
        await anyio.sleep_forever()

    async with server(answer) as port:
        with pytest.raises(NotTold, match="no answer within"):
            await ntfy.post(address(f"http://127.0.0.1:{port}/"), "x")


@pytest.mark.hazard("P2")
def test_neither_the_event_loop_nor_the_process_waits_for_a_lookup_that_hangs(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    begun, late = threading.Event(), threading.Event()
    at_work: list[threading.Thread] = []

    def look_up(*args: object, **more: object) -> None:
        at_work.append(threading.current_thread())
        begun.set()
        late.wait()

    async def give_up() -> None:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(ntfy.post, address("https://ntfy.example/s3cret"), "x")
            await until(begun.is_set)
            tasks.cancel_scope.cancel()

    monkeypatch.setattr(socket, "getaddrinfo", look_up)
    timer = threading.Timer(5, late.set)
    timer.start()
    anyio.run(give_up)
    assert not late.is_set()
    assert [thread.daemon for thread in at_work] == [True]  # others are waited for by the process
    timer.cancel()
    late.set()


async def test_of_several_addresses_the_first_that_can_be_reached_is_taken(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(ntfy, "_ATTEMPT", 0.05)
    got: list[bytes] = []

    async def answer(stream: SocketStream) -> None:
        got.append(await request_on(stream))
        await stream.send(OK)

    connect = anyio.connect_tcp

    async def connected(host: str, port: int) -> SocketStream:
        if host == "192.0.2.1":
            raise ConnectionRefusedError
        if host == "192.0.2.2":
            await anyio.sleep_forever()
        return await connect(host, port)

    hosts = ["192.0.2.1", "192.0.2.2", "127.0.0.1", "127.0.0.1", "192.0.2.3"]
    found = [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (host, 0)) for host in hosts]
    monkeypatch.setattr(anyio, "connect_tcp", connected)
    async with server(answer) as port:
        monkeypatch.setattr(socket, "getaddrinfo", lambda *args, **more: found)
        await ntfy.post(address(f"http://localhost:{port}/"), "x")
        assert len(got) == 1


@pytest.mark.skipif(not shutil.which("openssl"), reason="openssl is not installed")
@pytest.mark.parametrize("trusted", [True, False])
async def test_over_tls_the_server_s_certificate_counts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, trusted: bool
) -> None:
    files = certificate(tmp_path, "DNS:localhost")
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(*files)
    if trusted:
        monkeypatch.setenv("SSL_CERT_FILE", files[0])
    got: list[bytes] = []

    async def answer(stream: SocketStream) -> None:
        with suppress(anyio.BrokenResourceError, anyio.EndOfStream, ssl.SSLError):
            tls = await TLSStream.wrap(stream, server_side=True, ssl_context=context)
            got.append(await request_on(tls))
            await tls.send(OK)

    async with server(answer) as port:
        to = address(f"https://localhost:{port}/s3cret")
        if trusted:
            await ntfy.post(to, "x")
        else:
            with pytest.raises(NotTold, match="the certificate of the server can't be verified"):
                await ntfy.post(to, "x")
    assert len(got) == trusted


# --- the desktop --------------------------------------------------------------------------------


def test_a_text_is_one_argument_behind_the_options_and_no_markup() -> None:
    assert desktop.command("notify-send", "--help <b>&") == (
        *("notify-send", "--app-name=acp-bridge", "--", "acp-bridge"),
        "--help &lt;b&gt;&amp;",
    )
    words = desktop.command("osascript", '--help" & (do shell script "x")')
    assert words[-2:] == ("--", '--help" & (do shell script "x")')
    assert not any("do shell" in word for word in words[:-1])


def fake(folder: Path, script: str) -> None:
    """Put a program in the place of the system's."""
    program = folder / desktop.program()
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)


@pytest.mark.process
async def test_the_program_gets_the_text_and_none_of_the_bridge_s_secrets(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake(tmp_path, f'printf "%s\\n" "$@" > {tmp_path}/got; env > {tmp_path}/env')
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    monkeypatch.setenv("SOME_API_KEY", "s3cret")
    await desktop.show("api: waits for you")
    assert (tmp_path / "got").read_text().splitlines()[-1] == "api: waits for you"
    assert "s3cret" not in (tmp_path / "env").read_text()


@pytest.mark.process
async def test_a_program_that_fails_hangs_or_is_not_there_is_a_failure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    fake(tmp_path, "exit 3")
    with anyio.fail_after(20):
        with pytest.raises(NotTold, match="exit code 3"):
            await desktop.show("x")
        monkeypatch.setattr(waits, "NOTIFY", 0.2)
        fake(tmp_path, "sleep 60")
        with pytest.raises(NotTold, match=r"killed after 0\.2 s"):
            await desktop.show("x")
        monkeypatch.setenv("PATH", str(tmp_path))
        (tmp_path / desktop.program()).unlink()
        with pytest.raises(NotTold):
            await desktop.show("x")
