from pathlib import Path

import anyio
import pytest

from acp_bridge.journal import HeldElsewhere
from acp_bridge.journal.postgres.files import opened
from acp_bridge.settings import DatabaseUrl
from tests.journal.sayings import chunk, lines


async def test_smoke(database: DatabaseUrl, tmp_path: Path) -> None:
    with anyio.fail_after(30):
        async with anyio.create_task_group() as tasks:
            async with (
                opened(database, tmp_path / "a", 60, tasks, lambda at: None) as a,
                opened(database, tmp_path / "b", 60, tasks, lambda at: None) as b,
            ):
                s = await a.create("s", cwd="/x", agent="me")
                s.accept("p1", {"prompt": [{"type": "text", "text": "hi \x00 there"}]})
                await s.sync()
                s.start_turn(1)
                for i in range(1000):
                    s.record(1, lines(chunk(f"w{i} ", "m")))
                s.end_prompt(1, {"stopReason": "end_turn"}, None)
                await s.sync()
                ended = s.prompt(1)
                assert ended is not None
                assert ended.outcome
                await a.touch("s", title="T")
                with pytest.raises(HeldElsewhere):
                    await b.open("s")
                listed, _ = await b.list()
                assert [info.title for info in listed] == ["T"]
                await s.close()
                t = await b.open("s")
                assert t.prompts() == s_prompts if (s_prompts := t.prompts()) else False
                n = 0
                async for page in t.replay():
                    n += len(page)
                assert n
                await b.delete("s", known=True)
                assert (await a.list())[0] == []
                await a.close()
                await b.close()
            tasks.cancel_scope.cancel()
