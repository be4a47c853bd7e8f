"""The server: who comes in over real connections, what is bounded before, and what ends them."""

import json
import logging
import shutil
import ssl
import threading
from contextlib import suppress
from pathlib import Path

import anyio
import anyio.lowlevel
import pytest
from websockets.asyncio.client import ClientConnection
from websockets.exceptions import ConnectionClosed
from websockets.frames import Frame, Opcode

from acp_bridge.core.clients.rights import May
from acp_bridge.core.runtime.threads import in_thread
from acp_bridge.remote.serve import control, server
from acp_bridge.remote.serve.server import HEADER, MOST_OF_TOKEN, WAITING, Proof
from acp_bridge.remote.serve.tokens import Unusable
from acp_bridge.sharing.listening.peers import Refused
from tests.remote.serve.certificate import certificate
from tests.remote.serve.site import said, site
from tests.support.waiting import until


@pytest.fixture
def logged(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> pytest.LogCaptureFixture:
    monkeypatch.setattr(logging.getLogger("acp_bridge"), "propagate", True)
    caplog.set_level(logging.ERROR, "websockets.client")  # the test's own
    caplog.set_level(logging.DEBUG)
    return caplog


@pytest.mark.hazard("N1")
async def test_a_client_with_the_token_comes_in_and_others_are_told_why_not(home: Path) -> None:
    async with site(home) as it:
        async with it.connect() as client:
            assert await said(client, '{"a": 1}') == '{"a": 1}'
            assert client.response.headers["Acp-Connection-Id"]
        assert await it.refused("acpb_wrong") == 401
        assert await it.refused(origin="https://evil.example") == 403
        assert await it.refused(additional_headers={}) == 401
        assert it.came == ["laptop"]


@pytest.mark.hazard("N1.7")
async def test_no_secret_reaches_the_log_not_even_at_the_level_debug(
    home: Path, logged: pytest.LogCaptureFixture
) -> None:
    async with site(home) as it:
        async with it.connect() as client:
            await said(client, "{}")
        await it.refused("acpb_wrongwrongwrong")
        assert logged.messages
        assert not [line for line in logged.messages if it.secret in line or "wrongwrong" in line]


async def test_who_is_refused_again_and_again_does_not_fill_the_log(
    home: Path, logged: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server, "_LOGGED", 2)
    monkeypatch.setattr(anyio, "current_time", lambda: 30.0)
    async with site(home) as it:
        asked = f"GET /x HTTP/1.1\r\nHost: 127.0.0.1:{it.port}\r\n\r\n".encode()
        for _ in range(4):
            assert (await it.raw(asked)).startswith(b"HTTP/1.1 404 ")
        assert len([line for line in logged.messages if "remote.refused" in line]) == 2
        monkeypatch.setattr(anyio, "current_time", lambda: 60.0)
        await it.raw(asked)
        assert len([line for line in logged.messages if "remote.refused" in line]) == 3


@pytest.mark.hazard("N1.2")
async def test_a_wrong_token_is_refused_before_a_websocket_is_opened(home: Path) -> None:
    async with site(home) as it:
        asked = f"GET /acp HTTP/1.1\r\nHost: 127.0.0.1:{it.port}\r\n".encode()
        answer = await it.raw(asked + b"Authorization: Bearer x\r\n\r\n")
        assert answer.startswith(b"HTTP/1.1 401 Unauthorized\r\n")
        assert b"WWW-Authenticate: Bearer\r\n" in answer
        assert b"Cache-Control: no-store\r\n" in answer
        assert answer.endswith(b"on the machine of the server\n")
        assert it.came == []


#: requests of a client that tries ACP's Streamable HTTP, each without Host and Authorization.
_TRIES = [
    ("POST /acp HTTP/1.1", b"Content-Length: 2\r\n\r\n{}"),
    ("POST /acp HTTP/1.1", b"Transfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n"),
    ("POST /acp HTTP/1.1", b"Content-Length: 90000\r\n\r\n" + b"x" * 90_000),
    ("POST /acp HTTP/1.1", b"Upgrade: websocket\r\n\r\n"),
    ("GET /acp HTTP/1.1", b"Accept: text/event-stream\r\n\r\n"),
    ("GET /acp HTTP/1.1", b"Upgrade: h2c\r\n\r\n"),
    ("DELETE /acp HTTP/1.1", b"Acp-Connection-Id: x\r\n\r\n"),
]


@pytest.mark.parametrize(("first", "rest"), _TRIES)
async def test_a_client_that_tries_http_first_is_sent_to_the_websocket(
    home: Path, first: str, rest: bytes
) -> None:
    async with site(home) as it:
        host = f"{first}\r\nHost: 127.0.0.1:{it.port}\r\n"
        answer = await it.raw(f"{host}Authorization: Bearer {it.secret}\r\n".encode() + rest)
        head, _, text = answer.partition(b"\r\n\r\n")
        status, *header = head.split(b"\r\n")
        assert status == b"HTTP/1.1 426 Upgrade Required"
        assert b"Upgrade: websocket" in header
        assert b"WebSocket" in text
        assert text.count(b"\n") == 1
        assert it.server.count("laptop") == 0
        assert it.came == []


@pytest.mark.hazard("N1.1", "N1.2")
@pytest.mark.parametrize(("first", "rest"), _TRIES)
async def test_who_has_no_right_is_answered_the_same_by_each_http_method(
    home: Path, first: str, rest: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    def agent(*_: object, **__: object) -> None:
        raise Refused("an agent may not connect")

    monkeypatch.setattr(server, "_look", agent)
    async with site(home, Proof(local=True, proxied=False)) as it:
        host, right = f"Host: 127.0.0.1:{it.port}", f"Authorization: Bearer {it.secret}"
        for status, header in [
            (b"421", ["Host: evil.example", right]),
            (b"403", [host, right, "Origin: https://evil.example"]),
            (b"401", [host]),
            (b"401", [host, "Authorization: Bearer acpb_wrong"]),
            (b"403", [host, right]),
        ]:
            answer = await it.raw("\r\n".join([first, *header, ""]).encode() + rest)
            assert answer.startswith(b"HTTP/1.1 " + status)
            assert b"websocket" not in answer.lower()


@pytest.mark.parametrize("path", ["/", "/page", "/nothing"])
async def test_a_body_is_read_for_no_other_path(home: Path, path: str) -> None:
    async with site(home) as it:
        asked = (
            f"POST {path} HTTP/1.1\r\nHost: 127.0.0.1:{it.port}\r\nContent-Length: 2\r\n\r\n{{}}"
        )
        assert (await it.raw(asked.encode())).startswith(b"HTTP/1.1 400 ")


async def test_health_is_answered_to_anybody(home: Path) -> None:
    async with site(home) as it:
        asked = f"GET /health HTTP/1.1\r\nHost: 127.0.0.1:{it.port}\r\n\r\n".encode()
        answer = await it.raw(asked)
        assert answer.startswith(b"HTTP/1.1 200 OK\r\n")
        assert answer.endswith(b"\r\n\r\nok\n")


@pytest.mark.parametrize(
    ("data", "status"),
    [
        (b"GET / HTTP/1.1\r\nX: " + b"y" * HEADER, b"431"),
        (b"GET /" + b"y" * HEADER, b"431"),
        (b"hello\r\n\r\n", b"400"),
        (b"\x16\x03\x01\x02\x00\x01", b""),
        (b"POST /acp HTTP/1.1\r\nX: " + b"y" * HEADER, b"431"),
        (b"POST /acp HTTP/1.1\r\nHost x\r\nContent-Length: 5\r\n\r\nhello", b"400"),
    ],
)
async def test_what_is_no_request_of_some_kilobytes_is_refused(
    home: Path, data: bytes, status: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not status:
        monkeypatch.setattr(server, "PATIENCE", 0.1)  # nobody knows how it goes on
    async with site(home) as it:
        answer = await it.raw(data)
        assert answer.startswith(b"HTTP/1.1 " + status if status else b"")
        assert bool(answer) == bool(status)
        async with it.connect() as client:
            assert await said(client, "{}") == "{}"


@pytest.mark.hazard("N1.1")
@pytest.mark.parametrize("frame", [b"\x81\x82\0\0\0\0{}", b"\x80\x80\0\0\0\0", b"\x81\x02hi"])
async def test_frames_that_come_before_the_answer_are_not_taken(home: Path, frame: bytes) -> None:
    async with site(home) as it:
        asked = (
            f"GET /acp HTTP/1.1\r\nHost: 127.0.0.1:{it.port}\r\nAuthorization: Bearer {it.secret}"
            "\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Version: 13\r\n"
            "Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n"
        ).encode()
        assert (await it.raw(asked + frame)).startswith(b"HTTP/1.1 400 ")
        assert it.came == []


@pytest.mark.hazard("N1.3")
async def test_who_says_nothing_gives_way_and_is_cut_after_a_while(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with site(home) as it:
        silent = [await anyio.connect_tcp("127.0.0.1", it.port) for _ in range(WAITING)]
        with anyio.fail_after(5):
            await until(lambda: len(it.server._waiting) == WAITING)
        async with it.connect() as client:  # in the place of the oldest
            assert await said(client, "{}") == "{}"
        with pytest.raises(anyio.EndOfStream):
            await silent[0].receive()
        assert len(it.server._waiting) == WAITING - 1
        for each in silent:
            await each.aclose()
        monkeypatch.setattr(server, "PATIENCE", 0.05)
        assert await it.raw(b"GET /acp HTTP/1.1\r\n") == b""


@pytest.mark.hazard("N1")
async def test_who_comes_again_and_again_puts_out_nobody_at_another_address(home: Path) -> None:
    async with site(home) as it:
        slow = await anyio.connect_tcp("127.0.0.1", it.port)
        await until(lambda: len(it.server._waiting) == 1)
        there = "127.0.0.1", it.port
        many = [await anyio.connect_tcp(*there, local_host="127.0.0.2") for _ in range(2 * WAITING)]
        for each in many[:WAITING]:
            with pytest.raises(anyio.EndOfStream):
                await each.receive()
        await slow.send(f"GET /health HTTP/1.1\r\nHost: 127.0.0.1:{it.port}\r\n\r\n".encode())
        assert (await slow.receive()).startswith(b"HTTP/1.1 200 ")
        for each in (slow, *many):
            await each.aclose()


@pytest.mark.hazard("N1.3")
async def test_a_token_has_so_many_connections_and_others_their_own(home: Path) -> None:
    async with site(home) as it:
        clients = [await it.connect() for _ in range(MOST_OF_TOKEN)]
        assert await it.refused() == 429
        async with it.connect(it.token("phone", May.LOOK)) as other:
            assert await said(other, "{}") == "{}"
        await clients.pop().close()
        with anyio.fail_after(5):
            await until(lambda: it.server.count("laptop") == MOST_OF_TOKEN - 1)
        async with it.connect() as client:
            assert await said(client, "{}") == "{}"
        for each in clients:
            await each.close()


@pytest.mark.hazard("N1.10")
async def test_a_revoked_token_ends_its_connections_and_no_other_s(home: Path) -> None:
    async with site(home) as it:
        phone = it.token("phone")
        async with it.connect() as client, it.connect(phone) as other:
            await said(client, "{}")
            await said(other, "{}")
            asked = str(it.private), control.REMOVE, {"name": "laptop"}
            assert await in_thread(control.ask, *asked) == {"ended": 1}
            with pytest.raises(ConnectionClosed):
                await client.recv()
            assert (client.close_code, client.close_reason) == (1008, "the token was revoked")
            assert await said(other, "{}") == "{}"
        assert await it.refused() == 401


@pytest.mark.hazard("N1.10")
async def test_a_token_that_is_revoked_while_its_process_is_looked_at_does_not_come_in(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    looking, revoked = threading.Event(), threading.Event()

    def look(*_: object, **__: object) -> None:
        looking.set()
        revoked.wait(10)

    monkeypatch.setattr(server, "_look", look)
    async with site(home, Proof(local=True, proxied=False)) as it, anyio.create_task_group() as all:

        async def come() -> None:
            assert await it.refused() == 401

        all.start_soon(come)
        await until(looking.is_set)
        await in_thread(control.ask, str(it.private), control.REMOVE, {"name": "laptop"})
        revoked.set()
    assert it.came == []


@pytest.mark.hazard("N1")
async def test_what_one_token_s_connections_send_without_an_end_is_bounded_together(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server, "MOST_UNFINISHED", 100_000)

    def begin(client: ClientConnection, size: int) -> None:
        frame = Frame(Opcode.TEXT, b"x" * size, fin=False)
        client.transport.write(frame.serialize(mask=True))

    async with (
        site(home) as it,
        it.connect() as one,
        it.connect() as two,
        it.connect(it.token("phone")) as other,
    ):
        for client in (one, two, other):
            await said(client, "{}")
        begin(one, 40_000)
        begin(other, 90_000)
        begin(two, 70_000)
        with pytest.raises(ConnectionClosed):
            await two.recv()
        assert two.close_code == 1009
        for client, size in ((one, 40_000), (other, 90_000)):
            client.transport.write(Frame(Opcode.CONT, b"y").serialize(mask=True))
            assert len(str(await client.recv())) == size + 1


@pytest.mark.hazard("N1", "N6")
@pytest.mark.parametrize("may", [May.LOOK, May.APPROVE])
async def test_who_may_not_prompt_sends_no_long_message(home: Path, may: May) -> None:
    """Some 60 MB of brackets take gigabytes and seconds to be read."""
    async with (
        site(home) as it,
        it.connect(max_size=None) as owner,
        it.connect(it.token("phone", may)) as other,
    ):
        assert len(await said(other, "x" * 1_000_000)) == 1_000_000
        with suppress(ConnectionClosed):
            await other.send("[" * 2_000_000)
        await other.wait_closed()
        assert other.close_code == 1009
        assert len(await said(owner, "x" * 3_000_000)) == 3_000_000


async def test_tokens_are_made_and_listed_on_the_private_socket(home: Path) -> None:
    async with site(home) as it:
        async with it.connect() as client:
            await said(client, "{}")
            path = str(it.private)
            given = {"name": "tablet", "may": "look", "made": "now", "hash": "00"}
            assert await in_thread(control.ask, path, control.ADD, given) == {}
            listed = await in_thread(control.ask, path, control.LIST, {})
            assert [(each["name"], each["open"]) for each in listed["tokens"]] == [
                ("laptop", 1),
                ("tablet", 0),
            ]
        assert json.loads((home / "remote/tokens.json").read_text())["tokens"][1] == {
            **given,
            "used": "",
        }


async def test_a_code_for_a_page_is_made_on_the_private_socket_for_a_name_that_is_free(
    home: Path,
) -> None:
    async with site(home) as it:
        path, given = str(it.private), {"name": "phone", "may": "look"}
        found = await in_thread(control.ask, path, control.CODE, given)
        assert found["page"] == "http://page"
        assert len(found["code"]) == 9
        for taken in ({**given, "name": "laptop"}, {**given, "name": "a b"}):
            with pytest.raises(Unusable):
                await in_thread(control.ask, path, control.CODE, taken)


@pytest.mark.hazard("N1")
async def test_a_code_that_nobody_has_used_is_revoked_by_its_name(home: Path) -> None:
    async with site(home) as it:
        path, given = str(it.private), {"name": "phone", "may": "look"}
        await in_thread(control.ask, path, control.CODE, given)
        revoked = path, control.REMOVE, {"name": "phone"}
        assert await in_thread(control.ask, *revoked) == {"ended": 0}
        with pytest.raises(Unusable, match="no token phone"):
            await in_thread(control.ask, *revoked)


@pytest.mark.parametrize(
    ("method", "given"),
    [
        ("add", {}),
        ("add", {"name": "x", "may": "everything", "made": "", "hash": ""}),
        ("add", {"name": "laptop", "may": "all", "made": "", "hash": ""}),
        ("remove", {"name": 5}),
        ("vouch", {"address": "x", "port": "y"}),
        ("nothing", {}),
        ("code", {"name": "phone", "may": "everything"}),
    ],
)
async def test_an_odd_question_on_the_private_socket_is_refused(
    home: Path, method: str, given: dict[str, object]
) -> None:
    async with site(home) as it:
        with pytest.raises(Unusable):
            await in_thread(control.ask, str(it.private), method, given)
        assert [each.name for each in it.tokens.all] == ["laptop"]


async def test_a_question_that_fails_or_is_none_ends_neither_the_server_nor_the_next(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with site(home) as it:
        for said_there in (b"", b"no json\n", b"{}\n", b'{"id": 1, "method": 5, "params": 6}\n'):
            async with await anyio.connect_unix(it.private) as stream:
                await stream.send(said_there or b"\n")
                await stream.send_eof()
        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(it.tokens, "add", None)
            given = {"name": "x", "may": "all", "made": "", "hash": ""}
            with pytest.raises(Unusable):
                await in_thread(control.ask, str(it.private), control.ADD, given)
        listed = await in_thread(control.ask, str(it.private), control.LIST, {})
        assert len(listed["tokens"]) == 1


@pytest.mark.process
@pytest.mark.hazard("V6")
async def test_a_private_process_comes_in_on_the_loopback_when_it_has_vouched(home: Path) -> None:
    proof = Proof(local=True, proxied=False)
    async with site(home, proof) as it:
        # This process has the server's end, too, and so can be seen: it is hidden from itself.
        async with it.connect() as client:
            assert await said(client, "{}") == "{}"
        with pytest.MonkeyPatch.context() as patched:
            patched.setattr("acp_bridge.remote.serve.local._has", lambda *_: False)
            assert await it.refused() == 403
            async with await anyio.connect_tcp("127.0.0.1", it.port) as stream:
                raw = stream.extra(anyio.abc.SocketAttribute.raw_socket)
                assert await in_thread(control.vouch, home, raw.getsockname())
                async with it.connect(sock=raw.dup()) as client:
                    assert await said(client, "{}") == "{}"
            assert await it.refused() == 403
            assert it.server._vouched == {}  # it counted for that connection alone


@pytest.mark.process
@pytest.mark.hazard("V6", "N1")
async def test_a_connection_that_was_vouched_for_and_has_ended_leaves_its_address_to_nobody(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("acp_bridge.remote.serve.local._has", lambda *_: False)
    async with site(home, Proof(local=True, proxied=False)) as it:
        async with await anyio.connect_tcp("127.0.0.1", it.port) as stream:
            raw = stream.extra(anyio.abc.SocketAttribute.raw_socket)
            assert await in_thread(control.vouch, home, raw.getsockname())
            await stream.send(b"GET / HTTP/1.1\r\nHost: elsewhere\r\n\r\n")
            assert b" 421 " in await stream.receive()
        await until(lambda: not it.server._vouched)


async def test_nobody_can_vouch_where_no_server_runs(home: Path) -> None:
    assert not await in_thread(control.vouch, home, ("127.0.0.1", 1))


async def test_a_client_that_fails_inside_ends_no_other(home: Path) -> None:
    async with site(home) as it, it.connect() as client, it.connect() as other:
        await client.send("fail")
        with pytest.raises(ConnectionClosed):
            await client.recv()
        assert await said(other, "{}") == "{}"


@pytest.mark.skipif(not shutil.which("openssl"), reason="openssl is not installed")
async def test_over_tls_a_client_comes_in_and_one_without_does_not(
    home: Path, tmp_path: Path
) -> None:
    files = certificate(tmp_path, "IP:127.0.0.1")
    async with site(home, files=files) as it:
        trusting = ssl.create_default_context(cafile=files[0])
        async with it.connect(ssl=trusting) as client:
            text = json.dumps({"a": "x" * 200_000})
            assert await said(client, text) == text
        with pytest.raises(ssl.SSLError):
            async with it.connect(ssl=ssl.create_default_context()):
                pass
        plain = b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n"
        assert b"HTTP" not in await it.raw(plain)
        assert await it.refused("acpb_x", ssl=trusting) == 401
