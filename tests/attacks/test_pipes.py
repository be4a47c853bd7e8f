"""What an agent can do with pipes in place of files: who opens or reads one may wait for ever."""

import pytest

from tests.attacks.field import SECONDS, Field
from tests.built_in.support import Provider
from tests.support.model_replies import Text

pytestmark = [pytest.mark.process, pytest.mark.slow]

#: puts a pipe in the place of a file, and keeps it open and locked.
PIPING = r"""
import fcntl, os, sys, time
(path,) = sys.argv[1:]
if os.path.exists(path):
    os.unlink(path)
os.mkfifo(path, 0o600)
pipe = os.open(path, os.O_RDWR)
fcntl.flock(pipe, fcntl.LOCK_EX)
if os.fork() == 0:
    os.closerange(0, 3)
    time.sleep(1000)
"""


@pytest.mark.hazard("P6", "P2")
async def test_a_pipe_in_place_of_a_lock_file_holds_up_one_load_and_no_bridge(
    field: Field,
) -> None:
    async with field.bridge() as client:
        lock = field.home / "sessions" / f"{client.session_id}.lock"
        await field.attack(client, PIPING, str(lock))
        async with field.bridge() as other:
            load = {"sessionId": client.session_id, "cwd": str(field.folder), "mcpServers": []}
            loading = other.send_request("session/load", load)
            await other.new_session(field.folder)
            await other.prompt("take this")
            assert "error" in await other.answer_to(loading, within=SECONDS)


@pytest.mark.hazard("P6")
async def test_a_pipe_in_place_of_the_file_of_keys_holds_up_no_session(field: Field) -> None:
    async with field.bridge() as client, Provider() as provider:
        await field.attack(client, PIPING, str(field.home / "keys.env"))
        async with field.built_in(provider) as other:
            await other.new_session(field.project)
            provider.say(Text("Hello."))
            await other.prompt("hello", within=SECONDS)
            assert "Hello." in other.text()
