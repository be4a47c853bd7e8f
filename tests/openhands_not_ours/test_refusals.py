"""What can't be: said by its reason, once, and without the key."""

import contextlib
import uuid
from collections.abc import AsyncIterator
from pathlib import Path

import anyio
import pytest

from tests.openhands_not_ours.server import KEY, AgentServer, free_port
from tests.openhands_not_ours.stand import PATIENCE, Stand, error_of, numbers
from tests.support.client import RecordingClient
from tests.support.recording import RpcError

pytestmark = pytest.mark.process


@contextlib.asynccontextmanager
async def _initialized(
    stand: Stand, *, key: str = KEY, url: str | None = None, profile: str | None = None
) -> AsyncIterator[RecordingClient]:
    async with stand.started(key=key, url=url, profile=profile) as client:
        await client.initialize(within=PATIENCE)
        yield client


async def _refused(client: RecordingClient, cwd: Path | str, **extra: object) -> RpcError:
    params = {"cwd": str(cwd), "mcpServers": [], **extra}
    error = await error_of(client, "session/new", params)
    assert KEY not in str(error.data)
    return error


def _said(error: RpcError) -> str:
    return f"{error.message} {error.data}"


async def test_a_wrong_key_is_said_and_not_shown(stand: Stand) -> None:
    async with _initialized(stand, key="not-the-right-key") as client:
        said = _said(await _refused(client, stand.cwd))
        assert "not allow" in said or "key" in said
        assert "not-the-right-key" not in said
        assert b"not-the-right-key" not in client.stderr


async def test_a_server_that_is_not_there_is_said_by_its_address(stand: Stand) -> None:
    url = f"http://127.0.0.1:{free_port()}"
    async with stand.started(url=url) as client:
        await client.initialize(within=PATIENCE)
        params = {"cwd": str(stand.cwd), "mcpServers": []}
        request = client.send_request("session/new", params)
        answer = await client.answer_to(request, 2 * PATIENCE)
        assert url.partition("//")[2] in str(answer["error"])


async def test_a_conversation_that_the_server_does_not_know_is_no_new_one(stand: Stand) -> None:
    async with _initialized(stand) as client:
        before = await stand.api.conversations()
        params = {"sessionId": str(uuid.uuid4()), "cwd": str(stand.cwd), "mcpServers": []}
        error = await error_of(client, "session/load", params)
        assert error.code == -32002
        assert await stand.api.conversations() == before


@pytest.mark.parametrize("bridged", [False])
@pytest.mark.parametrize("session", ["not-a-uuid", "../../settings", ""])
async def test_an_id_that_can_be_no_conversation_asks_the_server_for_nothing_else(
    stand: Stand, session: str
) -> None:
    async with _initialized(stand) as client:
        params = {"sessionId": session, "cwd": str(stand.cwd), "mcpServers": []}
        error = await error_of(client, "session/load", params)
        assert error.code in (-32002, -32602)


async def test_a_folder_that_the_server_does_not_have_is_not_made(
    stand: Stand, tmp_path: Path
) -> None:
    async with _initialized(stand) as client:
        nowhere = tmp_path / "nowhere"
        assert nowhere.name in _said(await _refused(client, nowhere))
        assert not nowhere.exists()


async def test_a_profile_that_is_not_there_is_named(stand: Stand) -> None:
    async with _initialized(stand, profile="no-such-profile") as client:
        assert "no-such-profile" in _said(await _refused(client, stand.cwd))


async def test_an_mcp_server_that_the_server_does_not_know_is_refused_by_its_name(
    stand: Stand,
) -> None:
    unknown = {"name": "a-server-of-mine", "command": "/bin/true", "args": [], "env": []}
    async with _initialized(stand) as client:
        error = await _refused(client, stand.cwd, mcpServers=[unknown])
        assert "a-server-of-mine" in _said(error)
        await client.new_session(stand.cwd, PATIENCE)
        assert (await client.prompt("SAY A 2", within=PATIENCE))["stopReason"] == "end_turn"
        assert numbers(client.text(), "A") == [0, 1]


async def test_an_mcp_server_that_the_server_has_itself_is_taken(stand: Stand) -> None:
    known = {"command": "/bin/true", "args": ["known"]}
    await stand.api.ask("POST", "/api/settings/mcp/known", known)
    same = {"name": "known", **known, "env": []}
    async with _initialized(stand) as client:
        await client.new_session(stand.cwd, PATIENCE, mcpServers=[same])
        assert (await client.prompt("SAY A 2", within=PATIENCE))["stopReason"] == "end_turn"
    await stand.api.ask("DELETE", "/api/settings/mcp/known")


async def test_a_server_that_starts_slowly_is_waited_for_and_that_is_shown(
    mortal_stand: Stand, mortal: AgentServer
) -> None:
    stand = mortal_stand
    mortal.kill()
    mortal.start()
    async with stand.started() as client:
        await client.initialize(within=PATIENCE)
        params = {"cwd": str(stand.cwd), "mcpServers": []}
        request = client.send_request("session/new", params)
        with anyio.fail_after(2 * PATIENCE):
            answer = await client.answer_to(request, 2 * PATIENCE)
        client.session_id = answer["result"]["sessionId"]
        assert (await client.prompt("SAY A 2", within=PATIENCE))["stopReason"] == "end_turn"


async def test_started_without_a_server_it_loads_as_soon_as_there_is_one(
    mortal_stand: Stand, mortal: AgentServer
) -> None:
    stand = mortal_stand
    async with stand.client() as client:
        session = client.session_id
        await client.prompt("SAY A 3", within=PATIENCE)
    mortal.kill()
    mortal.start()
    async with stand.started() as client:
        await client.initialize(within=PATIENCE)
        await client.load_session(session, stand.cwd, 2 * PATIENCE)
        assert numbers(client.text(), "A") == [0, 1, 2]


async def test_listed_and_deleted_it_is_gone_on_the_server(stand: Stand) -> None:
    async with stand.client() as client:
        await client.prompt("SAY A 1", within=PATIENCE)
        conversation = await stand.conversation()
        listed = await client.request("session/list", {"cwd": str(stand.cwd)}, PATIENCE)
        assert [row["sessionId"] for row in listed["sessions"]] == [client.session_id]
        await client.request("session/delete", {"sessionId": client.session_id}, PATIENCE)
        assert conversation not in await stand.api.conversations()


async def test_one_that_others_made_is_listed_and_can_be_loaded(stand: Stand) -> None:
    async with stand.client() as client:
        await client.prompt("SAY FOREIGN 2", within=PATIENCE)
        conversation = await stand.conversation()
    stand.home = stand.home / "another"
    async with _initialized(stand) as client:
        listed = await client.request("session/list", {"cwd": str(stand.cwd)}, PATIENCE)
        ids = [row["sessionId"] for row in listed["sessions"]]
        assert conversation in ids
        await client.load_session(conversation, stand.cwd, PATIENCE)
        assert numbers(client.text(), "FOREIGN") == [0, 1]
        await client.prompt("SAY A 2", within=PATIENCE)
        assert numbers(client.text(), "A") == [0, 1]
