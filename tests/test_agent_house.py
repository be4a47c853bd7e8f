"""The house rules of the built-in agent, held by reading its source.

Its rooms stand on floors and import downwards only, and only `agent.errors` names error codes.
"""

import ast
from collections.abc import Iterator
from graphlib import TopologicalSorter
from pathlib import Path

from tests.support.sources import imports, modules, ours, tree

#: Top to bottom. A room imports from itself and from the floors below, also for types and inside
#: functions, never from its own floor's other rooms.
FLOORS: list[set[str]] = [
    {"fork_parent"},
    {"__main__", "model_report", "carry"},
    {"openhands"},
    {"serve"},
    {"session"},
    {"turn"},
    {"mcp_servers"},
    {"tools"},
    {"conversation"},
    {"providers"},
    {"scripted"},
    {"errors", "content"},
    {"key_help"},
    {"client", "guarded_process", "loose", "model", "secrets", "settings", "wire_form"},
]

#: The range in which JSON-RPC and ACP have their error codes.
CODES = range(-32899, -31999)


def room(module: str) -> str:
    return module.removeprefix("agent.").partition(".")[0]


def floor(name: str) -> int:
    found = [number for number, rooms in enumerate(FLOORS) if name in rooms]
    assert len(found) == 1, f"{name} stands on {len(found)} floors: give it one in FLOORS"
    return found[0]


def agent_imports() -> Iterator[tuple[str, str]]:
    """Yields each module of the agent with each module of it that it imports, types included."""
    known = modules("agent")
    for module, path in known.items():
        for found in ours(imports(tree(path), lazy=True), known):
            yield module, found


def test_every_room_of_the_agent_has_a_floor() -> None:
    rooms = {room(module) for module in modules("agent")} - {"agent"}
    assert rooms == set().union(*FLOORS)


def test_imports_of_the_agent_go_down_the_floors() -> None:
    for module, below in agent_imports():
        if room(module) != room(below):
            assert floor(room(module)) < floor(room(below)), f"{module} imports {below}"


def test_no_modules_of_the_agent_stand_in_a_circle_not_even_for_types() -> None:
    graph: dict[str, set[str]] = {}
    for module, below in agent_imports():
        graph.setdefault(module, set()).add(below)
    TopologicalSorter(graph).prepare()


def codes(path: Path) -> list[int]:
    """Returns the lines of a file on which a number is an error code."""
    negative = (node for node in ast.walk(tree(path)) if isinstance(node, ast.UnaryOp))
    return [
        node.lineno
        for node in negative
        if isinstance(node.op, ast.USub)
        and isinstance(node.operand, ast.Constant)
        and isinstance(node.operand.value, int)
        and -node.operand.value in CODES
    ]


def test_no_module_of_the_agent_has_an_error_code_as_a_number() -> None:
    assert {module: codes(path) for module, path in modules("agent").items() if codes(path)} == {}


def test_only_one_module_of_the_agent_makes_errors_for_the_wire() -> None:
    making = {
        module
        for module, path in modules("agent").items()
        for node in ast.walk(tree(path))
        if isinstance(node, ast.Call) and ast.unparse(node.func).startswith("RequestError")
    }
    assert making == {"agent.errors"}


def test_only_one_function_of_the_agent_makes_notices() -> None:
    with_name = {
        module
        for module, path in modules("agent").items()
        for node in ast.walk(tree(path))
        if isinstance(node, ast.Constant) and "[acp-bridge]" in str(node.value)
    }
    assert with_name == {"agent.conversation.replay"}
