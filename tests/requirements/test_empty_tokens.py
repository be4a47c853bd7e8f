"""A model's empty tokens show nothing."""

import pytest

from tests.requirements.subjects import BUILT_IN, START, Bench, Subject, each

pytestmark = [pytest.mark.process, pytest.mark.slow]


@each(BUILT_IN)
async def test_an_empty_token_of_a_model_is_no_message(bench: Bench, subject: Subject) -> None:
    """`judge_chunks` looks at every chunk."""
    async with bench.start(subject) as client:
        await client.new_session(bench.cwd)
        assert await client.prompt("empty", within=START) == {"stopReason": "end_turn"}
        assert client.text() == "full"
