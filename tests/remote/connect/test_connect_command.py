"""`acp-bridge connect` as a process: its token, its certificate, its ends."""

import shutil
import ssl
import subprocess
import sys
from pathlib import Path

import anyio
import pytest

from acp_bridge.remote.connect.logins import Login, Unusable, Where, find, read_address
from tests.remote.connect.site import TOKEN, logged_in, site
from tests.support import processes
from tests.support.client import RecordingClient
from tests.support.terminal import on_a_terminal

pytestmark = pytest.mark.process
COMMAND = (sys.executable, "-m", "acp_bridge")


async def ran(*arguments: str, said: bytes = b"") -> tuple[int, str]:
    """Run the command; returns its exit code, and what it has said on stderr."""
    with anyio.fail_after(20):
        done = await processes.run([*COMMAND, *arguments], {}, said=said)
    return done.returncode, done.stderr.decode()


async def test_an_editor_works_through_it_and_its_end_ends_it(tmp_path: Path) -> None:
    async with site() as there:
        command = [*COMMAND, *logged_in(tmp_path / "home", there.port)]
        async with RecordingClient.start(command) as client:
            await client.initialize({})
            await client.new_session("/w")
            there.cut()
            assert await client.prompt("words", within=15) == {"stopReason": "end_turn"}
            client.close_stdin()
            assert await client.wait() == 0
        assert there.lines == 2
        assert there.server.runs == ["words"]


@pytest.mark.hazard("N1.7")
async def test_the_token_stands_in_no_argument_and_no_environment(tmp_path: Path) -> None:
    async with site() as there:
        command = [*COMMAND, *logged_in(tmp_path / "home", there.port)]
        async with RecordingClient.start(command) as client:
            await client.initialize({})
            assert client.process is not None
            proc = Path(f"/proc/{client.process.pid}")  # root may read it, nobody else
            assert TOKEN.encode() not in (proc / "cmdline").read_bytes()
            assert TOKEN.encode() not in (proc / "environ").read_bytes()


async def test_a_token_that_is_refused_ends_it_with_what_to_do(tmp_path: Path) -> None:
    async with site() as there:
        arguments = logged_in(tmp_path / "home", there.port, token="acpb_old")
        # The editor stays: what ends it is the refusal.
        command = [*COMMAND, *arguments]
        async with RecordingClient.start(command) as client:
            assert await client.wait(within=15) == 9
            home = tmp_path / "home"
            await client.logged(f"acp-bridge connect --home {home} --login ws://127.0.0.1")


async def test_without_a_token_it_says_how_to_get_one(tmp_path: Path) -> None:
    code, said = await ran("connect", "https://home.example", "--home", str(tmp_path))
    assert code == 9
    assert f"acp-bridge connect --home {tmp_path} --login https://home.example" in said


@pytest.mark.hazard("N1.13")
async def test_a_login_from_a_pipe_tries_the_token_and_keeps_it_for_the_user_alone(
    tmp_path: Path,
) -> None:
    home = tmp_path / "home"
    async with site() as there:
        login = ("connect", "--login", f"http://127.0.0.1:{there.port}", "--home", str(home))
        code, said = await ran(*login, said=b"acpb_wrong\n")
        assert (code, "the token is not known. Nothing is kept" in said) == (1, True)
        assert not (home / "connect.json").exists()
        assert await ran(*login, said=TOKEN.encode() + b"\n") == (0, "")
        assert (home / "connect.json").stat().st_mode & 0o777 == 0o600
        kept = find(home, Where("127.0.0.1", there.port, "/acp", secure=False))
        assert kept == Login(TOKEN)


@pytest.mark.hazard("N1.13")
async def test_a_file_with_tokens_that_others_may_read_is_not_used(tmp_path: Path) -> None:
    command = logged_in(tmp_path / "home", 1)
    (tmp_path / "home/connect.json").chmod(0o644)
    code, said = await ran(*command)
    assert (code, "others may read" in said) == (1, True)


def certificate(folder: Path) -> tuple[str, str, str]:
    """Make a certificate that nobody trusts; returns its files and its fingerprint."""
    cert, key = str(folder / "cert.pem"), str(folder / "key.pem")
    new = ("openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256")
    files = ("-nodes", "-days", "2", "-subj", "/CN=test", "-out", cert, "-keyout", key)
    subprocess.run([*new, *files], check=True, capture_output=True)
    asked = ("openssl", "x509", "-noout", "-fingerprint", "-sha256", "-in", cert)
    told = subprocess.run(asked, check=True, capture_output=True, text=True).stdout
    return cert, key, told.partition("=")[2].strip()


@pytest.mark.skipif(not shutil.which("openssl"), reason="openssl is not installed")
async def test_a_certificate_that_nobody_trusts_is_pinned_when_its_fingerprint_is_confirmed(
    tmp_path: Path,
) -> None:
    cert, key, fingerprint = certificate(tmp_path)
    (tmp_path / "other").mkdir()
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(cert, key)
    home = tmp_path / "home"
    async with site(tls=context) as there:
        url = f"https://127.0.0.1:{there.port}"
        code, said = await ran("connect", "--login", url, "--home", str(home), said=TOKEN.encode())
        assert (code, "can be confirmed at a terminal" in said) == (1, True)
        await anyio.to_thread.run_sync(_log_in, url, home, fingerprint)
        command = [*COMMAND, "connect", url, "--home", str(home)]
        async with RecordingClient.start(command) as client:
            await client.initialize({})
        # another certificate at the same place gets no token
        context.load_cert_chain(*certificate(tmp_path / "other")[:2])
        async with RecordingClient.start(command) as client:
            await client.logged("it is not the certificate that was confirmed", within=15)
        assert there.lines == 2


def _log_in(url: str, home: Path, fingerprint: str) -> None:
    command = [*COMMAND, "connect", "--login", url, "--home", str(home)]
    env = {"PATH": "/usr/bin:/bin", "TERM": "xterm", "HOME": str(home)}
    with on_a_terminal(command, home.parent, env, limit=20) as terminal:
        assert fingerprint in terminal.until("Is it the same? [yes/no] ")
        terminal.type("yes\n")
        terminal.until("Token (not shown): ")
        terminal.type(f"{TOKEN}\n")
        shown = terminal.until("is kept")
        assert TOKEN not in shown


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("http://home.example:8765", "could be read on the way"),
        ("ws://10.0.0.1", "could be read on the way"),
        ("https://me:acpb_x@home.example", "an address has no user"),
        ("https://home.example/?token=acpb_x", "no token"),
        ("home.example:8765", "give an address"),
        ("https://home.example:eight", "is no address"),
    ],
)
@pytest.mark.hazard("N1.14")
def test_an_address_that_shows_what_is_sent_or_holds_a_token_is_refused(
    text: str, why: str
) -> None:
    with pytest.raises(Unusable, match=why):
        read_address(text)


@pytest.mark.parametrize(
    ("text", "url"),
    [
        ("https://home.example", "wss://home.example/acp"),
        ("wss://home.example:8765/acp", "wss://home.example:8765/acp"),
        ("http://127.0.0.1:8765/", "ws://127.0.0.1:8765/acp"),
        ("http://[::1]:8765/behind/acp", "ws://[::1]:8765/behind/acp"),
    ],
)
def test_an_address_names_a_websocket(text: str, url: str) -> None:
    assert read_address(text).url == url
