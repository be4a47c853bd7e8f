"""What other people's clients really send, in a whole bridge."""

from pathlib import Path

from tests.core.sessions.agent import until
from tests.core.sessions.bench import bench
from tests.core.sessions.world import CWD


async def test_members_beside_those_of_json_rpc_are_not_passed_on(tmp_path: Path) -> None:
    async with bench(tmp_path) as it:
        it.agent.script["_own/method"] = {}
        beside = {"type": "request", "channel": {"x": 1}, "result": None, "error": None}
        setup = {"cwd": CWD, "mcpServers": {}}
        it.editor.says({"id": "n", "method": "session/new", "params": setup, **beside})
        it.editor.says({"id": "x", "method": "_own/method", "params": {"type": "kept"}, **beside})
        await until(lambda: it.agent.params("session/new") and it.agent.params("_own/method"))
        process = next(each for each in it.agent.processes if each.params("session/new"))
        assert {name for each in process.received for name in each} <= {
            *("jsonrpc", "id", "method", "params", "result", "error"),
        }
        assert not any("result" in each for each in process.received if "method" in each)
        assert process.params("session/new") == [{"cwd": CWD, "mcpServers": []}]
