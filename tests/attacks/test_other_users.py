"""What another user of the machine can do, who is not root."""

import os
import subprocess
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from tests.attacks.field import SECONDS, Field
from tests.built_in.support import KEY, Provider
from tests.support.person import person
from tests.support.rights import STRANGER, as_stranger, for_commoner, without_rights

pytestmark = [pytest.mark.process, pytest.mark.slow]

#: tries to look into each path, to read it and to write to it, and names what it got.
TOUCHING = r"""
for path in sys.argv[1:]:
    for flags in (os.O_RDONLY, os.O_WRONLY):
        try:
            os.close(os.open(path, flags | os.O_NONBLOCK))
            print(flags, path)
        except OSError:
            pass
"""
CONNECTING = r"""
talk = socket.socket(socket.AF_UNIX)
try:
    talk.connect(sys.argv[1])
    try:
        talk.send(b'{"jsonrpc": "2.0", "id": 1, "method": "_acp_bridge/live", "params": {}}\n')
    except BrokenPipeError:
        pass  # it was quicker: what it has said stands in the socket
    print(talk.recv(65536).decode())
except OSError as error:
    print(error.strerror)
"""


def stranger(code: str, *words: str) -> str:
    """What code prints that another user runs."""
    if os.geteuid():
        pytest.skip("only root can become a third user")
    done = subprocess.run(
        as_stranger(code, *words), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=True
    )
    return done.stdout.decode().strip()


def opened(*folders: Path) -> None:
    """Let others into folders."""
    for folder in folders:
        folder.chmod(0o777)


@pytest.fixture
async def provider() -> AsyncIterator[Provider]:
    async with Provider() as provider:
        yield provider


@pytest.fixture
def no_umask() -> Iterator[None]:
    before = os.umask(0)
    yield
    os.umask(before)


@pytest.mark.hazard("S1")
@pytest.mark.usefixtures("no_umask")
async def test_another_user_can_neither_look_into_the_data_folder_nor_read_a_file_of_it(
    field: Field,
) -> None:
    """Not even where somebody has opened the folder since."""
    field.folder.chmod(0o755)
    async with person(["key", "MISTRAL_API_KEY"], field.folder, field.env, without_rights()) as it:
        await it.sees("MISTRAL_API_KEY")
        it.type(f"{KEY}\r")
        assert await it.process.wait() == 0
    async with field.scripted([]) as client:
        await client.new_session(field.project)
        await client.prompt("Hello", within=SECONDS)
        files = [each for each in field.home.rglob("*") if not each.is_dir()]
        folders = [field.home, *(each for each in field.home.rglob("*") if each.is_dir())]
        names = {each.name for each in files}
        assert {"keys.env", "index.db", "bridge.log"} < names
        assert {".db", ".jsonl", ".lock", ".json", ".sock"} <= {each.suffix for each in files}
        assert stranger(TOUCHING, *map(str, [*folders, *files])) == ""
        opened(*folders)
        assert stranger(TOUCHING, *map(str, files)) == ""


@pytest.mark.hazard("S4", "V6.1", "V6.5")
async def test_another_user_can_not_connect_even_where_somebody_has_opened_socket_and_folder(
    field: Field,
) -> None:
    field.folder.chmod(0o755)
    async with field.bridge() as client:
        there = Path((await field.listening(client)).socket)
        assert stranger(CONNECTING, str(there)) == "Permission denied"
        opened(field.home, there.parent, there)
        assert "only the user of this acp-bridge may connect" in stranger(CONNECTING, str(there))


@pytest.mark.hazard("S2")
@pytest.mark.parametrize("whose", ["anybody's", "a stranger's"])
async def test_keys_that_another_user_can_have_written_are_not_used(
    field: Field, provider: Provider, whose: str
) -> None:
    field.home.mkdir(mode=0o700)
    keys = field.home / "keys.env"
    keys.write_text(f"OPENAI_API_KEY={KEY}\nOPENAI_BASE_URL={provider.openai_url}\n")
    for_commoner(keys)
    for_commoner(field.home)
    command = ["run", "hello", "--model", "openai/gpt-4o"]
    if whose == "anybody's":
        keys.chmod(0o666)
    elif os.geteuid():
        pytest.skip("only root can give a file to a third user")
    else:
        keys.chmod(0o644)
        os.chown(keys, STRANGER, STRANGER)
    code, said = await field.command(*command)
    assert (code, provider.requests) == (9, []), said
    assert (await field.command("key", "MISTRAL_API_KEY"))[0] != 0


@pytest.mark.hazard("S3")
async def test_the_doctor_says_if_others_may_look_into_the_data_folder(field: Field) -> None:
    async with field.bridge():
        pass
    field.home.chmod(0o755)
    said = " ".join((await field.command("doctor"))[1].split())
    assert "(mode 755)" in said
    assert "others may" in said
