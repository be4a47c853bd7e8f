"""What a model is told of the tools."""

from typing import Any

from agent.tools import AnyTool, Toolbox
from agent.tools.read_file import ReadFile
from agent.tools.standard import standard_tools


def _functions(toolbox: Toolbox) -> dict[str, dict[str, Any]]:
    return {spec["function"]["name"]: spec["function"] for spec in toolbox.specs}


def test_a_model_is_told_of_every_tool() -> None:
    tools = _functions(Toolbox(standard_tools()))
    files = ["read_file", "write_file", "edit_file", "list_files", "search"]
    assert list(tools) == [*files, "shell", "plan"]
    needed = {name: tool["parameters"].get("required", []) for name, tool in tools.items()}
    assert [needed[name] for name in files] == [
        ["path"],
        ["path", "content"],
        ["path", "old", "new"],
        [],
        ["pattern"],
    ]
    for tool in tools.values():
        assert tool["description"]


def test_sessions_share_the_schemas_of_the_tools_that_all_have() -> None:
    one, two = (_functions(Toolbox(standard_tools())) for _ in range(2))
    for name, tool in one.items():
        assert tool["parameters"] is two[name]["parameters"]


def test_tools_of_servers_come_and_go() -> None:
    there: list[AnyTool] = []
    toolbox = Toolbox([], lambda: there)
    assert (toolbox.specs, toolbox.get("read_file")) == ([], None)
    there.append(tool := ReadFile())
    assert list(_functions(toolbox)) == ["read_file"]
    assert toolbox.get("read_file") is tool
    there.clear()
    assert (toolbox.specs, toolbox.get("read_file")) == ([], None)
