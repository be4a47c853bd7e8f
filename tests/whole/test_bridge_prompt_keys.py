"""A prompt is sent again under its key after `kill -9` of its bridge, and through another one."""

import random
import signal
from collections import Counter
from typing import Any

import anyio
import pytest

from tests.support.client import RecordingClient
from tests.support.processes import all_gone
from tests.whole.bridge_support import TELL_ACCEPTED, World, accepted, stopped

pytestmark = [pytest.mark.process, pytest.mark.hazard("X2")]


def send(client: RecordingClient, text: str, session_id: str | None = None) -> Any:
    """Send a prompt whose key is its text."""
    return client.send_prompt(text, session_id, _meta={"acp_bridge": {"promptKey": text}})


@pytest.mark.hazard("Q5.2", "Q6", "R12", "K1")
async def test_after_a_kill_what_is_sent_again_is_answered_left_over_or_interrupted(
    world: World,
) -> None:
    done, runs, waits = "say done", "say one; gate g; say never", "say waits"
    async with world.bridge(capabilities=TELL_ACCEPTED, exits=-signal.SIGKILL) as client:
        session = client.session_id
        ended = await client.answer_to(send(client, done))
        send(client, runs)
        await world.gates.reached("g")
        await accepted(client, send(client, waits))
        client.terminate(signal.SIGKILL)
    await all_gone(world.mark)
    async with world.inside(capabilities=TELL_ACCEPTED, session=False) as client:
        await client.load_session(session, world.cwd)
        again = await client.answer_to(send(client, done))
        assert again["result"] == ended["result"]
        error = (await client.answer_to(send(client, runs)))["error"]
        assert (error["code"], "interrupted" in error["message"]) == (-32603, True)
        held = send(client, waits)
        await client.until_text("This prompt was sent before, and is left over as number 3")
        await accepted(client, held)
        assert await client.prompt("say after") == {"stopReason": "end_turn"}
        assert client.recording.answers(held) == []
        assert await client.prompt("/queue run") == {"stopReason": "end_turn"}
        assert await stopped(client, held) == "end_turn"
    assert world.log.prompts() == [done, runs, "say after", waits]


@pytest.mark.hazard("Q5.1", "K1")
@pytest.mark.parametrize("seed", range(2))
async def test_killed_at_any_moment_no_prompt_runs_twice_and_none_is_lost(
    world: World, seed: int
) -> None:
    rng = random.Random(seed)
    texts = [f"say p{number}" for number in range(12)]
    session = ""
    for kill in (True, True, False):
        how = -signal.SIGKILL if kill else 0
        async with world.bridge(session=not session, exits=how) as client:
            if session:
                await client.load_session(session, world.cwd)
                send(client, texts[0])  # the first attempt of a load is as any other
            session = session or client.session_id
            asked = [send(client, text, session) for text in texts]
            if kill:
                for _ in range(rng.randrange(400)):
                    await anyio.lowlevel.checkpoint()
                client.terminate(signal.SIGKILL)
                continue
            client.session_id = session
            await client.prompt("/queue run")
            for each in asked:
                answer = await client.answer_to(each)
                cut = "interrupted" in answer.get("error", {}).get("message", "")
                assert cut or answer["result"] == {"stopReason": "end_turn"}
        await all_gone(world.mark)
    rows = await world.journal(session)
    words = [row.params["prompt"][0]["text"] for row in rows]
    assert sorted(words) == sorted(texts)
    times = Counter(world.log.prompts())
    lost = [row for row in rows if row.outcome == {"interrupted": True}]
    assert set(times.values()) <= {1}
    assert len(times) >= len(texts) - len(lost)


@pytest.mark.hazard("V8")
async def test_through_another_bridge_a_key_does_what_it_does_directly_also_after_its_end(
    world: World,
) -> None:
    done, runs, waits, new = "say done", "say one; gate g; say never", "say waits", "say new"
    async with world.inside(session=False, capabilities=TELL_ACCEPTED) as other:
        async with world.bridge(exits=-signal.SIGKILL) as holder:
            session = holder.session_id
            assert await stopped(holder, send(holder, done)) == "end_turn"
            await other.load_session(session, world.cwd)
            assert await stopped(other, send(other, done)) == "end_turn"
            asked = [send(holder, runs), send(other, runs)]
            await world.gates.reached("g")
            waiting = [send(holder, waits), send(other, waits)]
            await accepted(other, waiting[1])
            other.notify("$/cancel_request", {"requestId": waiting[1]})
            assert await stopped(other, waiting[1]) == -32800
            assert holder.recording.answers(waiting[0]) == []
            other_words = other.send_prompt("say x", _meta={"acp_bridge": {"promptKey": waits}})
            assert await stopped(other, other_words) == -32602
            holder.terminate(signal.SIGKILL)
            assert await stopped(other, asked[1]) == -32603
        # What is sent at once waits until the session is open here.
        asked = [send(other, text) for text in (done, runs, waits, new)]
        assert await stopped(other, asked[0]) == "end_turn"
        assert await stopped(other, asked[1]) == -32603
        assert await stopped(other, asked[3]) == "end_turn"
        assert other.recording.answers(asked[2]) == []
        assert await other.prompt("/queue run") == {"stopReason": "end_turn"}
        assert await stopped(other, asked[2]) == "end_turn"
    assert world.log.prompts() == [done, runs, new, waits]
