"""Once `cancelled` was said a session is silent until its client speaks (invariants C6, C23)."""

import pytest

from tests.process.bridge_support import stopped
from tests.requirements.subjects import START, SUBJECTS, Bench, Subject, each, fence, unasked

pytestmark = [pytest.mark.process, pytest.mark.slow]


async def leak(bench: Bench, subject: Subject) -> None:
    """Let an agent say what it has kept back; one that leaks is killed for the first thing."""
    bench.gates.open_for_good("held")
    if subject.leak:
        bench.gates.open(f"leak-{subject.leak}")
        await bench.gates.reached(f"leaked-{subject.leak}")


@each(SUBJECTS)
async def test_nothing_at_all_follows_cancelled(bench: Bench, subject: Subject) -> None:
    async with bench.start(subject) as client:
        await client.new_session(bench.cwd)
        assert await client.prompt("say before", within=START) == {"stopReason": "end_turn"}
        prompt = await bench.held(client)
        client.cancel()
        assert await stopped(client, prompt) == "cancelled"
        mark = client.mark()
        await leak(bench, subject)
        assert client.updates(since=mark) == []
        await fence(client)
        assert unasked(client, mark) == []
        assert await client.prompt("say after", within=START) == {"stopReason": "end_turn"}
        assert "late" not in client.text()
        assert "leaked" not in str(client.updates())


@each(SUBJECTS)
async def test_nothing_of_a_session_follows_the_answer_to_a_load(
    bench: Bench, subject: Subject
) -> None:
    """Warm: the session is open here. Cold: another process had it."""
    async with bench.start(subject) as client:
        await client.new_session(bench.cwd)
        assert await client.prompt("say before", within=START) == {"stopReason": "end_turn"}
        prompt = await bench.held(client)
        client.cancel()
        assert await stopped(client, prompt) == "cancelled"
        bench.gates.open_for_good("held")
        await fence(client)
        session = client.session_id
        await client.load_session(session, bench.cwd)
        warm = client.mark()
        await fence(client)
        assert unasked(client, warm) == []
    async with bench.start(subject) as client:
        await client.load_session(session, bench.cwd)
        cold = client.mark()
        assert "before" in client.text(session)
        await fence(client)
        assert unasked(client, cold) == []
