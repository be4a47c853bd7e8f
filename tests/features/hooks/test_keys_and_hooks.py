"""A prompt that is sent again under its key, and hooks."""

from pathlib import Path
from typing import Any

import pytest

from acp_bridge.core.wire.jsonrpc import RpcError
from tests.core.bridge.keyed import session
from tests.core.bridge.test_prompt_keys_later import _answer
from tests.core.sessions.agent import Agent


@pytest.mark.hazard("X2", "Q11")
@pytest.mark.parametrize("restart", [False, True])
async def test_the_answer_of_then_is_the_one_that_followed_what_hooks_had_to_say(
    tmp_path: Path, *, restart: bool
) -> None:
    (tmp_path / "hooks.toml").write_text("[[Stop]]\ncommand = 'echo more >&2; exit 2'\n")
    agent, ends = Agent(), ["end_turn", "max_tokens"]

    async def answer(process: Any, params: Any) -> Any:
        return {"stopReason": ends.pop(0)} if len(ends) > 1 else RpcError(-32603, "away")

    agent.script["session/prompt"] = answer
    async with session(tmp_path, agent) as here:
        here.gate.open()
        told = await _answer(here, here.send("work", "a"))
        assert told["code"] == -32603
        if not restart:
            assert await _answer(here, here.send("work", "a")) == told
    if restart:
        async with session(tmp_path, load=here.id) as here:
            assert await _answer(here, here.send("work", "a")) == told
            assert here.prompted == []
