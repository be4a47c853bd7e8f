"""A client of the protocol's next version, and one that says as little as it may."""

import pytest

from tests.requirements.subjects import BUILT_IN, START, Bench, Subject, each
from tests.support.recording import Message

pytestmark = [pytest.mark.process, pytest.mark.slow]


@each(BUILT_IN[:2])
async def test_a_client_of_version_2_is_answered_with_1_and_can_work(
    bench: Bench, subject: Subject
) -> None:
    async with bench.start(subject, initialized=False) as client:
        answer = await client.request("initialize", {"protocolVersion": 2}, within=START)
        assert answer["protocolVersion"] == 1
        opened = await client.request("session/new", {"cwd": str(bench.cwd)}, within=START)
        client.session_id = opened["sessionId"]
        assert await client.prompt("say one", within=START) == {"stopReason": "end_turn"}
        assert "one" in client.text()
        # It can neither read nor write nor show a terminal, and said so by saying nothing.
        asked = {m["method"] for m in client.recording.incoming() if "id" in m and "method" in m}
        assert asked == set()


@each(BUILT_IN[:2])
async def test_each_request_of_a_batch_is_refused_and_the_rest_goes_on(
    bench: Bench, subject: Subject
) -> None:
    async with bench.start(subject) as client:
        batch: list[Message] = [
            {"jsonrpc": "2.0", "id": "a", "method": "session/list", "params": {}},
            {"jsonrpc": "2.0", "id": "b", "method": "session/list", "params": {}},
        ]
        seen = client.mark()
        client.send(batch)
        await client.until(lambda message: message.get("id") == "b", since=seen)
        refused = [each for each in client.recording.incoming(seen) if "error" in each]
        told = [(each["id"], each["error"]["code"]) for each in refused]
        assert told == [("a", -32600), ("b", -32600)]
        await client.new_session(bench.cwd)
        assert await client.prompt("say one", within=START) == {"stopReason": "end_turn"}
        answered = [m.get("id") for m in client.recording.incoming(seen) if "method" not in m]
        assert [each for each in answered if each in ("a", "b", None)] == ["a", "b"]
