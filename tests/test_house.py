"""The house rules that a reader relies on, held by reading the source.

Imports go one way, the serve path stays light, what is sans-IO knows no I/O, files stay small,
and nothing committed names what only exists on one machine.
"""

import ast
import gc
import re
import subprocess
import sys
from collections.abc import Iterator
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

from tests.support.sources import ROOT, committed, functions, imports, modules, ours, tree

#: Top to bottom: a module imports from its own floor and from those below, never from above.
#: A floor names rooms; the longest name that fits a module counts.
FLOORS: list[set[str]] = [
    {"__main__"},
    {"terminal"},
    {"remote.connect"},
    {"remote"},
    {"terminal.view"},
    {"terminal.cli"},
    {"serving"},
    {"features.notify"},
    {"sharing"},
    {"features", "features.hooks.in_session"},
    {"sharing.bridge_client"},
    {"features.rules"},
    {"features.hooks", "sharing.listening"},
    {"postgres"},
    {"trace"},
    {"versions"},
    {"core.bridge"},
    {"core.sessions"},
    {"core.session"},
    {"core.clients"},
    {"core.agents", "core.journal"},
    {"core.updates"},
    {"core.ends"},
    {"core.agents.activity"},
    {"core.machine"},
    {"core.keys", "core.settings"},
    {"core.runtime"},
    {"core.errors"},
    {"core.wire"},
    {"core.history"},
    {"core.protocol"},
    {"acp_bridge", "core"},
]

#: The same inside a session: what is in none of these rooms may be imported by all of them.
SESSION_FLOORS = (
    {"session"},
    {"effects", "from_agent", "session_context"},
    {"clients"},
    {"recovery"},
    {"prompts", "feature"},
    {"process"},
    {"requests"},
    {"transcript"},
)

#: Bytes, events and effects: no await, no clock, no process, no file.
SANS_IO = (
    *("features.spending.spent", "features.quotas.proposal"),
    "core.bridge.attendance",
    "core.machine",
    "core.machine.effects",
    "core.machine.events",
    "core.machine.journal_word",
    "core.machine.processes",
    "core.machine.prompt_queue",
    "core.machine.states",
    "core.machine.turns",
    "core.journal.merge",
    "core.journal.place",
    *("features.notify.config", "features.notify.news"),
    *("core.updates.messages", "core.updates.odd_answers", "core.updates.odd_updates"),
    *("core.agents.agent_params", "core.wire.spread"),
    "remote.serve.door",
    "features.hooks.config",
    "features.hooks.definitions",
    "features.hooks.made_names",
    "features.hooks.verdict",
    "features.rules.calls",
    "features.rules.config",
    "features.rules.definitions",
    "features.rules.harmless",
    "features.rules.known_commands",
    "features.rules.posix",
    "features.rules.programs",
    "features.rules.shell",
    "features.rules.lines",
    "core.updates.agent_trouble",
    "features.spending.notices",
    "core.updates.children",
    "core.updates.folded",
    "core.updates.late_replay",
    "terminal.shared.key_forms",
    "core.updates.notices",
    "features.repository.notices",
    "features.rules.notices",
    "core.updates.open_cards",
    *("core.history", "core.protocol"),
    "terminal.setup.jsonc",
    *(
        "remote.connect.dialects",
        "remote.connect.dialogs",
        "remote.connect.kept",
        "remote.connect.machine",
        "remote.connect.rules",
    ),
    *(
        "remote.connect.router",
        "remote.connect.folders",
        "remote.connect.sessions",
        "remote.connect.shown",
        "remote.connect.way_out",
    ),
    "trace.events",
    "trace.exchanges",
    "core.updates.updates",
    "core.agents.activity",
    "versions.agent_end",
    "versions.agent_handshake",
    "versions.agent_turn",
    "versions.as_said",
    "versions.background_to_v2",
    "versions.blocks_to_v1",
    "versions.cards_to_v1",
    "versions.children_to_v1",
    "versions.children_to_v2",
    "versions.diff_to_v1",
    "versions.messages_to_v1",
    "versions.options_to_v1",
    "core.journal.pieces",
    "versions.question_to_v1",
    "versions.terminals_to_v1",
    "versions.update_to_v1",
    "versions.v2",
    "core.updates.wording",
    "terminal.chat.bottom",
    "terminal.chat.local_commands",
    "terminal.chat.own_prompts",
    "terminal.chat.questions",
    "terminal.chat.queue_shown",
    "terminal.view.look",
    "terminal.view.markdown",
    "terminal.view.transcript",
    "remote.page.codes",
    "remote.page.parts",
    "remote.page.shown",
    "remote.page.taps",
    "core.updates.tool_calls",
    "terminal.view.block_text",
    "terminal.view.blocks",
    "terminal.view.command_ends",
    "terminal.view.diff",
    "terminal.view.element",
    "terminal.view.from_updates",
    "terminal.view.html",
    "terminal.view.markup",
    "terminal.view.paragraphs",
    "terminal.view.pieces",
    "terminal.view.queue_rows",
    "terminal.view.settings_shown",
    "terminal.view.standing",
    "core.wire.jsonrpc",
)
IO = {"anyio", "asyncio", "time", "threading", "socket", "sqlite3", "subprocess", "os", "pathlib"}

#: What the front never needs. (`import acp` costs 0.7 s, `import litellm` 3 s.)
HEAVY = {
    *("acp", "litellm", "pydantic", "pydantic_core", "rich", "prompt_toolkit", "click", "typer"),
    *("agent", "openai", "argparse", "shtab", "websockets"),
}
#: What people run in a terminal: serving knows nothing of it.
COMMANDS = tuple(
    f"acp_bridge.terminal.{room}"
    for room in ("commands", "shared", "chat", "doctor", "setup", "demo", "key", "view")
)
#: What few bridges need, each when it does.
ON_USE = (
    "acp_bridge.trace",
    "acp_bridge.remote",
    "acp_bridge.core.journal.search",
    "acp_bridge.features.notify",
    "acp_bridge.features.quotas.proposal",
)

#: The modules that a bridge and the built-in agent import before they answer `initialize`.
STARTS = {
    "acp_bridge": (
        *("acp_bridge.__main__", "acp_bridge.terminal.cli.stdio", "acp_bridge.serving"),
        "acp_bridge.sharing.listening.listener",
    ),
    "agent": (
        *("agent.__main__", "agent.serve.connection", "agent.serve.sdk_transport"),
        *("agent.providers.all_models", "agent.providers.provider_model"),
        "agent.scripted.scripted_model",
    ),
}
#: The dataclasses among them, and why. All other records there are a `Struct`: Python compiles the
#: methods of each dataclass, which took a third of the start.
BY_FIELDS, BASE = "is written by its fields", "has an abstract base"
DATACLASSES = {
    "acp_bridge.core.agents.holder.Holder": BY_FIELDS,
    "acp_bridge.core.journal.records.SessionInfo": BY_FIELDS,
    "acp_bridge.core.session.clients.open_request.OpenRequest": BASE,
    "acp_bridge.core.session.clients.permissions._Deciding": BASE,
    "acp_bridge.core.session.clients.questions._Question": BASE,
    "acp_bridge.core.session.clients.to_client._AtOneClient": BASE,
    "acp_bridge.core.session.session_context.SessionContext": "makes fields from others",
    "acp_bridge.sharing.listening.run_files.LiveBridge": BY_FIELDS,
    "agent.mcp_servers.pages.Page": "is compared without its cursor",
    "agent.tools.paths.Place": "is compared without the number of its names",
}

FILE_LINES, FUNCTION_LINES = 600, 40
#: What may be longer, how long, and why it is one thought. An entry that is not needed any more
#: fails too.
LONG_FILES: dict[str, tuple[int, str]] = {
    "acp_bridge/core/machine/turns.py": (
        712,
        "what becomes of a prompt, from its reading to its answer, whatever ends its turn",
    ),
    "acp_bridge/core/session/prompts/prompts.py": (
        668,
        "the prompts that have no outcome yet: who has sent each, and what the journal has of it",
    ),
}
LONG_FUNCTIONS: dict[str, tuple[int, str]] = {
    "acp_bridge/core/session/effects.py:perform": (
        80,
        "one match, from each effect to who knows how",
    ),
    "acp_bridge/core/session/session.py:__init__": (171, "what each part is given, by name"),
}


@pytest.fixture(scope="module", autouse=True)
def all_trees() -> Iterator[None]:
    """Look for no garbage: in so many objects as the trees are that takes most of the time."""
    gc.disable()
    yield
    tree.cache_clear()
    gc.enable()


def floor(module: str) -> int:
    room = module.removeprefix("acp_bridge.")
    while room:
        for number, rooms in enumerate(FLOORS):
            if room in rooms:
                return number
        room = room.rpartition(".")[0]
    raise AssertionError(f"{module} stands on no floor: give it one in FLOORS")


def test_the_front_imports_nothing_of_the_agent() -> None:
    for module, path in modules("acp_bridge").items():
        found = {name.partition(".")[0] for name in imports(tree(path), lazy=True)}
        assert not found & {"agent", "litellm"}, module


def test_the_agent_imports_of_the_front_only_what_both_need() -> None:
    # a guard's reports, the streams behind it, what it leaves
    parts = ("guard", "guard_reports", "birth", "orphans")
    guard = tuple(f"acp_bridge.core.agents.{part}." for part in parts)
    for module, path in modules("agent").items():
        for name in imports(tree(path), lazy=True):
            if name.partition(".")[0] == "acp_bridge":
                shared = (
                    "acp_bridge.core.wire.",
                    "acp_bridge.core.protocol.",
                    "acp_bridge.core.records.",
                    "acp_bridge.core.settings.default_home",
                    "acp_bridge.__version__",
                )
                words = "acp_bridge.features.rules.known_commands."  # a table
                is_guard = f"{name}.".startswith(guard)
                assert name.startswith((*shared, words)) or is_guard, f"{module} imports {name}"


def test_the_guard_which_both_sides_start_imports_nothing_of_either() -> None:
    names = imports(tree(ROOT / "acp_bridge/core/agents/guard.py"), lazy=True)
    assert not {name.partition(".")[0] for name in names} & {"acp_bridge", "agent"}


def imports_by_name(node: ast.AST) -> Iterator[str]:
    """What `import_module` is given below a node."""
    for call in ast.walk(node):
        if isinstance(call, ast.Call) and "import_module" in (
            getattr(call.func, "id", ""),
            getattr(call.func, "attr", ""),
        ):
            (name,) = call.args
            if isinstance(name, ast.JoinedStr):
                name = name.values[0]
            assert isinstance(name, ast.Constant), f"line {call.lineno}: nobody knows which"
            yield str(name.value)


def test_litellm_is_imported_by_one_module_alone() -> None:
    found = {
        module
        for package in ("acp_bridge", "agent")
        for module, path in modules(package).items()
        for name in (*imports(tree(path), lazy=True), *imports_by_name(tree(path)))
        if name.partition(".")[0] == "litellm"
    }
    assert [module.rpartition(".")[2] for module in found] == ["library"]


def test_imports_of_the_front_go_down_the_floors() -> None:
    known = modules("acp_bridge")
    for module, path in known.items():
        for below in ours(imports(tree(path), lazy=True), known):
            assert floor(module) <= floor(below), f"{module} imports {below}, which is above it"


def test_core_imports_nothing_outside_of_core() -> None:
    """The law of the house. Not for types either, and not inside a function."""
    known = modules("acp_bridge")
    outside = {
        (module, below)
        for module, path in known.items()
        if module.startswith("acp_bridge.core.")
        for below in ours(imports(tree(path), lazy=True, types=True), known) - {"acp_bridge"}
        if not below.startswith("acp_bridge.core")
    }
    assert outside == set()


def test_the_tests_of_core_run_on_core_alone() -> None:
    outside = set[tuple[str, str]]()
    for path in (ROOT / "tests" / "core").rglob("*.py"):
        for name in imports(tree(path), lazy=True, types=True):
            top, _, rest = name.partition(".")
            room = rest.partition(".")[0]
            if (top == "acp_bridge" and room not in ("core", "", "__version__")) or (
                top == "tests" and room not in ("core", "support", "")
            ):
                outside.add((str(path.relative_to(ROOT)), name))
    assert outside == set()


def test_the_rows_of_the_architecture_stand_in_the_order_of_the_floors() -> None:
    text = (ROOT / "docs/architecture.md").read_text("utf-8")
    table = text.partition("## Rooms\n")[2].partition("\n### ")[0]
    rows = re.findall(r"^\| `acp_bridge/([^`]+)`", table, re.MULTILINE)
    floors = [floor(row.rstrip("/").removesuffix(".py").replace("/", ".")) for row in rows]
    assert floors
    assert floors == sorted(floors)


def test_what_serves_clients_from_elsewhere_is_imported_by_commands_alone() -> None:
    for module, path in modules("acp_bridge").items():
        names = set(imports(tree(path), lazy=True))
        room = module.removeprefix("acp_bridge.").partition(".")[0]
        if room != "remote":
            assert not {name.partition(".")[0] for name in names} & {"websockets"}, module
        if room not in ("remote", "terminal"):
            assert not {name for name in names if name.startswith("acp_bridge.remote")}, module


def session_floor(module: str) -> int:
    room = module.removeprefix("acp_bridge.core.session.").partition(".")[0]
    found = (number for number, rooms in enumerate(SESSION_FLOORS) if room in rooms)
    return next(found, len(SESSION_FLOORS))


def test_imports_inside_a_session_go_down_its_floors() -> None:
    known = modules("acp_bridge/core/session")
    for module, path in known.items():
        for below in ours(imports(tree(path), lazy=True), known) - {"acp_bridge.core.session"}:
            assert session_floor(module) <= session_floor(below), f"{module} imports {below}"


@pytest.mark.parametrize("package", ["acp_bridge", "agent"])
def test_no_two_modules_import_each_other(package: str) -> None:
    """Not for types either. An import inside a function is no circle: it waits for the call."""
    known = modules(package)
    graph = {
        module: ours(imports(tree(path), lazy=False, types=True), known) - {module}
        for module, path in known.items()
    }
    TopologicalSorter(graph).prepare()


@pytest.mark.parametrize("name", SANS_IO)
def test_what_is_sans_io_neither_awaits_nor_knows_a_clock_or_a_process(name: str) -> None:
    source = tree(modules("acp_bridge")[f"acp_bridge.{name}"])
    waits = (ast.AsyncFunctionDef, ast.Await, ast.AsyncFor, ast.AsyncWith)
    assert not [node for node in ast.walk(source) if isinstance(node, waits)]
    assert not {found.partition(".")[0] for found in imports(source, lazy=True)} & IO


def test_no_module_on_the_serve_path_names_a_heavy_one() -> None:
    known = modules("acp_bridge")
    todo, path = ["acp_bridge.__main__", "acp_bridge.serving"], set[str]()
    while todo:
        module = todo.pop()
        if module in path:
            continue
        path.add(module)
        names = set(imports(tree(known[module]), lazy=False))
        assert not {name.partition(".")[0] for name in names} & HEAVY, module
        assert not {name for name in names if name.startswith(COMMANDS)}, module
        todo += ours(iter(names), known)


def imported_by_the_start(package: str) -> set[str]:
    """The modules of a package that its start imports, those inside functions left out."""
    known = modules(package)
    todo, found = [*STARTS[package]], set[str]()
    while todo:
        module = todo.pop()
        if module and module not in found:
            found.add(module)
            names = imports(tree(known[module]), lazy=False)
            todo += {module.rpartition(".")[0], *ours(names, known)}
    return found


@pytest.mark.parametrize("package", STARTS)
def test_a_record_that_the_start_imports_is_a_struct_or_the_list_says_why_not(package: str) -> None:
    known = modules(package)
    found = {
        f"{module}.{node.name}"
        for module in imported_by_the_start(package)
        for node in ast.walk(tree(known[module]))
        if isinstance(node, ast.ClassDef)
        and any("dataclass" in ast.unparse(each) for each in node.decorator_list)
    }
    assert found == {name for name in DATACLASSES if name.startswith(f"{package}.")}


def test_records_are_copied_with_changes_by_one_function() -> None:
    """Type checking takes each kind for the other, whose own function then raises."""
    own = {"dataclasses.replace", "msgspec.structs", "msgspec.structs.replace", "copy.replace"}
    for package in ("acp_bridge", "agent"):
        for module, path in modules(package).items():
            names = imports(tree(path), lazy=True)
            calls = "dataclasses.replace(" in path.read_text("utf-8")
            ours_alone = module == "acp_bridge.core.records"
            assert ours_alone or not (calls or own & set(names)), module


def test_html_is_made_of_texts_by_the_builder_and_by_the_reader_of_markdown_alone() -> None:
    made = {
        module
        for module, path in modules("acp_bridge").items()
        for node in ast.walk(tree(path))
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "Markup" and node.args
    }
    assert made == {"acp_bridge.terminal.view.element", "acp_bridge.terminal.view.markup"}


def loaded_by(*names: str) -> list[str]:
    """The modules that an interpreter has when it has imported these."""
    code = f"import sys, {', '.join(names)}; print(*sys.modules)"
    run = subprocess.run(
        [sys.executable, "-c", code],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=30,
        check=True,
    )
    return run.stdout.split()


@pytest.mark.process
def test_before_the_agent_is_started_little_is_loaded() -> None:
    """What is loaded after it costs nothing that is felt: the agent starts meanwhile."""
    room = "acp_bridge.core"
    loaded = loaded_by(
        *("acp_bridge.__main__", "acp_bridge.terminal.cli"),
        *(f"{room}.agents.birth", f"{room}.wire.claim", f"{room}.runtime.open_files"),
    )
    assert f"{room}.settings" in loaded
    later = {"anyio", "asyncio", "dataclasses", "hashlib", "msgspec", "pydantic_core", "sqlite3"}
    assert not {name.partition(".")[0] for name in loaded} & later


@pytest.mark.process
def test_the_serve_path_loads_nothing_heavy() -> None:
    loaded = loaded_by("acp_bridge.__main__", "acp_bridge.serving")
    assert "acp_bridge.core.agents.link" in loaded
    assert not {name.partition(".")[0] for name in loaded} & HEAVY
    assert not {name for name in loaded if name.startswith((*COMMANDS, *ON_USE))}


def test_nothing_committed_names_what_lies_outside_the_repository() -> None:
    outside = re.compile(
        "|".join(
            [
                r"\.\./" + r"shared\b",
                r"(?<![\w.])/work" + "/",
                r"\.libr" + r"ary\b",
                r"pypi\." + r"org|pythonhosted\." + "org",
                r"registry\." + r"npmjs|registry\." + "yarnpkg",
                r"\bHAZ" + r"ARDS\b",
                r"\bDES" + r"IGN\b",
            ]
        )
    )
    found = [
        f"{path.relative_to(ROOT)}:{number}: {line.strip()}"
        for path in committed()
        if outside.search(text := path.read_text("utf-8", "replace"))
        for number, line in enumerate(text.splitlines(), 1)
        if outside.search(line)
    ]
    assert not found


def written() -> dict[str, Path]:
    found = modules("acp_bridge") | modules("agent") | modules("tests")
    return {str(path.relative_to(ROOT)): path for path in found.values()}


def test_files_are_short_or_the_list_says_why_not() -> None:
    lines = {name: len(path.read_text("utf-8").splitlines()) for name, path in written().items()}
    assert not too_long(lines, FILE_LINES, LONG_FILES)


def test_functions_are_short_or_the_list_says_why_not() -> None:
    lines = {
        f"{name}:{function.name}": code_lines(function)
        for name, path in written().items()
        for function in functions(tree(path))
    }
    assert not too_long(lines, FUNCTION_LINES, LONG_FUNCTIONS)


def code_lines(function: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    """The lines of a function without its decorators and its docstring."""
    first = function.body[0]
    text = first if ast.get_docstring(function, clean=False) is not None else None
    end, begin = function.end_lineno or 0, function.lineno
    return end - begin + 1 - ((text.end_lineno or 0) - text.lineno + 1 if text else 0)


def too_long(lines: dict[str, int], limit: int, allowed: dict[str, tuple[int, str]]) -> list[str]:
    """What is over the limit that holds for it, and what is allowed to be long and is short."""
    over = [
        f"{name}: {count} lines"
        for name, count in lines.items()
        if count > allowed.get(name, (limit, ""))[0]
    ]
    return over + [f"{name}: no exception needed" for name in allowed if lines[name] <= limit]


@pytest.mark.parametrize(
    "file",
    ["README.md", "CONTRIBUTING.md", "docs/agents.md", "docs/benchmarks.md", ".ci/run"],
)
def test_every_make_target_that_is_named_exists(file: str) -> None:
    makefile = (ROOT / "Makefile").read_text("utf-8")
    targets = set(re.findall(r"^([a-z-]+):", makefile, re.MULTILINE))
    named = set(
        re.findall(r"(?:`|^ +|step \d+ )make ([a-z-]+)", (ROOT / file).read_text("utf-8"), re.M)
    )
    assert named
    assert named <= targets


def test_every_make_target_that_does_something_needs_the_environment() -> None:
    makefile = (ROOT / "Makefile").read_text("utf-8")
    uses = re.findall(r"^([a-z-]+):(.*)\n((?:\t.*\n)+)", makefile, re.MULTILINE)
    assert not [name for name, needs, body in uses if "$(PY)" in body and ".ready" not in needs]
