"""Once `cancelled` was said a session is silent until its client speaks (invariants C6, C23)."""

import pytest

from tests.requirements.subjects import BRIDGED, START, SUBJECTS, Bench, Subject, each, unasked
from tests.support.client import RecordingClient
from tests.whole.bridge_support import stopped

pytestmark = [pytest.mark.process, pytest.mark.slow]


async def leak(bench: Bench, subject: Subject, client: RecordingClient) -> None:
    """Let an agent say what it has kept back."""
    bench.gates.open_for_good("held")
    if subject.leak:
        bench.gates.open(f"leak-{subject.leak}")
        if subject.restarts:  # and it may be killed before it knows that it has said it
            await client.logged("agent.unclean")
        else:
            await bench.gates.reached(f"leaked-{subject.leak}")


@pytest.mark.hazard("C6.1", "C23.1")
@each(SUBJECTS)
async def test_nothing_at_all_follows_cancelled_or_the_answer_to_a_load(
    bench: Bench, subject: Subject
) -> None:
    async with bench.start(subject) as client:
        await client.new_session(bench.cwd)
        assert await client.prompt("say before", within=START) == {"stopReason": "end_turn"}
        prompt = await bench.held(client)
        client.cancel()
        assert await stopped(client, prompt) == "cancelled"
        mark = client.mark()
        await leak(bench, subject, client)
        assert await unasked(client, mark, reopened=int(subject.restarts)) == []
        assert await client.prompt("say after", within=START) == {"stopReason": "end_turn"}
        assert "late" not in client.text()
        assert "leaked" not in str(client.updates())
        if subject not in BRIDGED:
            return
        prompt = await bench.held(client, "again")
        client.cancel()
        assert await stopped(client, prompt) == "cancelled"
        bench.gates.open_for_good("again")
        restarted = int(subject.restarts and not subject.leak)
        await unasked(client, 0, reopened=2 * restarted)
        # The session is open here.
        await client.load_session(client.session_id, bench.cwd)
        warm = client.mark()
        assert await unasked(client, warm) == []
        session = client.session_id
    async with bench.start(subject) as client:
        # Another process had it.
        await client.load_session(session, bench.cwd)
        cold = client.mark()
        assert "before" in client.text(session)
        assert await unasked(client, cold, reopened=1) == []
