"""How a server ends the feed of a conversation, for good or for now, and a server that is full."""

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from tests.openhands_not_ours.conftest import make_stand
from tests.openhands_not_ours.model import ModelServer
from tests.openhands_not_ours.proxy import Proxy, Refusal
from tests.openhands_not_ours.server import AgentServer
from tests.openhands_not_ours.stand import PATIENCE, Stand, error_of, numbers, stop_reason
from tests.support.client import RecordingClient

pytestmark = pytest.mark.process
FOR_GOOD = [
    Refusal(status=401),
    Refusal(status=403),
    Refusal(status=404),
    Refusal(code=4001, reason="Authentication failed"),
    Refusal(code=4004, reason="Conversation not found"),
    Refusal(code=1013, reason="credential_binding_activation_required"),
]
FOR_NOW = [
    Refusal(status=500),
    Refusal(status=503),
    Refusal(code=1011, reason="keepalive ping timeout"),
    Refusal(code=1012, reason="service restart"),
    Refusal(code=1013, reason="Too many connections for this conversation"),
]


async def _refused_prompt(client: RecordingClient, text: str) -> str:
    block = {"type": "text", "text": text}
    params = {"sessionId": client.session_id, "prompt": [block]}
    error = await error_of(client, "session/prompt", params)
    return f"{error.message} {error.data}"


@pytest.mark.parametrize("refusal", FOR_GOOD, ids=str)
async def test_what_is_not_allowed_or_gone_ends_the_turn_with_its_reason(
    stand: Stand, proxy: Proxy, refusal: Refusal
) -> None:
    async with stand.client(url=proxy.url) as client:
        running = client.send_prompt("SAY X 9 GATE ends AT 3")
        await client.until_text("X2", within=PATIENCE)
        proxy.refuse_sockets(refusal)
        await proxy.cut_all()
        answer = await client.answer_to(running, PATIENCE)
        assert stop_reason(answer).startswith("error")
        asked = proxy.count("socket")
        words = str(answer["error"]["data"])
        assert any(
            word in words for word in ("allow", "credential", "no longer", "not have", "gone")
        )
        await _refused_prompt(client, "SAY A 1")
        assert proxy.count("socket") <= asked + 2, "it must not try again and again"
        stand.model.open("ends")


@pytest.mark.parametrize("refusal", FOR_NOW, ids=str)
async def test_what_is_full_or_not_up_is_tried_again(
    stand: Stand, proxy: Proxy, refusal: Refusal
) -> None:
    async with stand.client(url=proxy.url) as client:
        running = client.send_prompt("SAY X 6 GATE again AT 3")
        await client.until_text("X2", within=PATIENCE)
        proxy.refuse_sockets(refusal)
        before = proxy.count("socket")
        await proxy.cut_all()
        await proxy.passed("socket", before + 2, PATIENCE)
        proxy.refuse_sockets(None)
        stand.model.open("again")
        assert stop_reason(await client.answer_to(running, PATIENCE)) == "end_turn"
        assert numbers(client.text(), "X") == list(range(6))


@pytest.fixture(scope="module")
def full_server(
    a_model: ModelServer, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[AgentServer]:
    """Runs one conversation at a time."""
    folder = tmp_path_factory.mktemp("full-server")
    more = {"OH_MAX_CONCURRENT_RUNS": "1"}
    with AgentServer(folder, a_model.url, more_env=more) as server:
        yield server


@pytest.fixture
async def full_stand(
    full_server: AgentServer,
    model: ModelServer,
    bridged: bool,
    tmp_path: Path,
    folder: Path,
    mark: str,
) -> AsyncIterator[Stand]:
    async for stand in make_stand(full_server, model, bridged, tmp_path, folder, mark):
        yield stand


async def test_a_message_that_a_full_server_has_saved_runs_once_when_there_is_room(
    full_stand: Stand,
) -> None:
    stand = full_stand
    async with stand.client() as client:
        first, one = client.session_id, await stand.conversation()
        second = await client.new_session(stand.cwd, PATIENCE)
        (two,) = set(await stand.api.conversations()) - stand.before - {one}
        running = client.send_prompt("SAY X 6 GATE room AT 3", first)
        await client.until_text("X2", within=PATIENCE)
        waiting = client.send_prompt("SAY B 3", second)
        await stand.api.until_messages(two, ["SAY B 3"])
        assert not client.recording.answers(waiting)
        stand.model.open("room")
        assert stop_reason(await client.answer_to(running, PATIENCE)) == "end_turn"
        assert stop_reason(await client.answer_to(waiting, PATIENCE)) == "end_turn"
        assert await stand.api.messages(two) == ["SAY B 3"]
        assert numbers(client.text(second), "B") == [0, 1, 2]
