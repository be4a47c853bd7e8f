"""The documents agree with the program: settings, links, snippets, names of files."""

import json
import re
import shlex
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from acp_bridge.core.agents.known_agents import KnownAgent, known_agents
from acp_bridge.core.protocol import LiveState
from acp_bridge.terminal import cli
from acp_bridge.terminal.cli import openhands
from acp_bridge.terminal.cli.exits import Exit
from acp_bridge.terminal.cli.serving_parser import DEFAULTS, FILE_LEVEL, SLEEP, STDERR_LEVEL
from acp_bridge.terminal.setup import command as setup
from agent.providers.known_providers import PROVIDERS, Provider
from tests.core.machine import table

ROOT = Path(__file__).parent.parent
DOCUMENTS = [
    ROOT / name for name in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md", "SECURITY.md")
] + sorted((ROOT / "docs").glob("*.md"))
README, SETTINGS = (ROOT / "README.md", ROOT / "docs" / "settings.md")
TERMINAL = ROOT / "docs" / "commands.md"
#: The programs with options of their own.
PROGRAMS = (
    *(("acp_bridge",), ("acp_bridge", "demo"), ("acp_bridge", "trust")),
    *(("agent",), ("agent.openhands",)),
)
OPTION = re.compile(r"(?<![\w-])--[a-z][a-z-]+")
VARIABLE = re.compile(r"\bACP_BRIDGE_[A-Z_]+\b")
#: Markdown's [text](target), without web addresses.
LINK = re.compile(r"\]\((?!https?:)([^)\s]+)\)")
FENCE = re.compile(r"^```(\w*)\n(.*?)^```", re.MULTILINE | re.DOTALL)


def text(path: Path) -> str:
    return path.read_text("utf-8")


def named(path: Path) -> str:
    """The id of a parametrized test: the path in the repository."""
    return str(path.relative_to(ROOT))


def code() -> str:
    return "\n".join(text(p) for f in ("acp_bridge", "agent") for p in (ROOT / f).rglob("*.py"))


def options() -> set[str]:
    """The options that the programs' own help names."""
    found: set[str] = set()
    for words in PROGRAMS:
        command = [sys.executable, "-m", *words, "--help"]
        run = subprocess.run(
            command, cwd=ROOT, capture_output=True, text=True, timeout=30, check=True
        )
        found |= {"--help", *OPTION.findall(run.stdout)}
    return found


def entries(path: Path) -> str:
    """The first two columns of a document's tables: options and environment variables."""
    rows = [line.split(" | ") for line in text(path).splitlines() if line.startswith("|")]
    return "\n".join(" ".join(row[:2]) for row in rows)


@pytest.mark.process
def test_the_settings_name_every_option_and_no_other() -> None:
    assert set(OPTION.findall(entries(SETTINGS))) == options()


def test_no_document_installs_an_extra_from_the_index_where_the_package_is_not() -> None:
    named = re.compile(r"(?:pip|pipx|uv|uv tool) install[^\n`]*acp-stdio-bridge\[")
    for path in (ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))):
        found = [line for line in path.read_text("utf-8").splitlines() if named.search(line)]
        # in an environment that has it, pip fetches only what the extra adds
        assert [each for each in found if "~/acp-bridge/bin/pip" not in each] == [], path.name
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    installing = (ROOT / "docs" / "installing.md").read_text("utf-8")
    for extra in extras["optional-dependencies"].keys() - {"test", "dev"}:
        assert f"| `{extra}` |" in installing


@pytest.mark.parametrize("name", sorted(cli.COMMANDS.keys() - {"demo", "trust"}))
def test_each_command_is_described_with_its_options_and_an_example(
    name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.run([name, "--help"]) == 0
    help = capsys.readouterr().out
    _, _, section = text(TERMINAL).partition(f"\n## `acp-bridge {name}`\n")
    section = section.partition("\n## ")[0]
    assert set(OPTION.findall(section)) == set(OPTION.findall(help))
    assert f"acp-bridge {name}" in "".join(body for _, body in FENCE.findall(section))
    assert f"usage: acp-bridge {name} " in help
    assert "\nexit code: " in help


def test_the_exit_codes_are_all_described() -> None:
    listed = re.findall(r"^\| (\d+) \|", text(TERMINAL), re.MULTILINE)
    assert [int(code) for code in listed] == [code.value for code in Exit]


def test_the_settings_and_the_readme_name_the_defaults_that_count() -> None:
    drain = f"{DEFAULTS.drain_timeout:g}; {openhands.DRAIN:g} with `--openhands`"
    sleep = f"{DEFAULTS.sleep_after / 60:g}; the built-in agent's {SLEEP:g}"
    named = {
        "agent-protocol": f"`{DEFAULTS.agent_protocol}`",
        "delivery": f"`{DEFAULTS.delivery}`",
        "on-cancel": f"`{DEFAULTS.on_cancel}`",
        "drain-timeout": drain,
        "reload-after-cancel": f"`{DEFAULTS.reload_after_cancel}`",
        "budget": "none",
        "resume-at-reset": "`on`" if DEFAULTS.resume_at_reset else "`off`",
        "cancel-silent-after": f"{DEFAULTS.cancel_silent_after:g}",
        "request-timeout": f"{DEFAULTS.request_timeout:g}",
        "sleep-after": sleep,
        "spare": "`on`" if DEFAULTS.spare else "`off`",
        "no-listen": "`on`" if DEFAULTS.listen else "`off`",
        "keep": f"{DEFAULTS.keep:g}",
        "log-level": f"`{FILE_LEVEL}` in a file; `{STDERR_LEVEL}` on stderr",
    }
    rows = re.findall(r"^\| `--([a-z-]+).*?` \| [^|]*\| ([^|]*) \|", text(SETTINGS), re.M)
    assert {name: default for name, default in rows if name in named} == named
    seconds = ["no", "one", "two", "three", "four", "five"][int(DEFAULTS.drain_timeout)]
    assert f"ignores it for {seconds} seconds" in text(README)


def test_the_settings_name_every_environment_variable_and_no_other() -> None:
    assert set(VARIABLE.findall(entries(SETTINGS))) == set(VARIABLE.findall(code()))


def test_the_settings_name_every_variable_that_the_code_reads() -> None:
    read = set(re.findall(r"""environ(?:\.get\(|\[)["'](\w+)["']""", code()))
    handed_on = {"LC_CTYPE"}  # Python sets it for itself: the agent gets it as it was
    assert [name for name in read - handed_on if name not in entries(SETTINGS)] == []


@pytest.mark.parametrize("provider", PROVIDERS.values(), ids=list(PROVIDERS))
def test_the_settings_have_the_variables_of_this_provider(provider: Provider) -> None:
    keys, base_urls = (
        ", ".join(f"`{name}`" for name in names) for names in (provider.keys, provider.base_urls)
    )
    row = f"| {provider.name} | `{provider.id}/` | {keys or 'none needed'} | {base_urls} |"
    assert row in text(SETTINGS).splitlines()


def test_the_settings_name_no_provider_that_the_code_does_not_have() -> None:
    listed = re.findall(r"^\| [^|]+ \| `([a-z_]+)/` \|", text(SETTINGS), re.MULTILINE)
    assert listed == list(PROVIDERS)


@pytest.mark.parametrize("path", DOCUMENTS, ids=named)
def test_every_link_to_a_file_leads_somewhere(path: Path) -> None:
    targets = [target.partition("#") for target in LINK.findall(text(path))]
    assert [file for file, _, _ in targets if file and not (path.parent / file).exists()] == []


def anchors(path: Path) -> set[str]:
    """The anchors of a document's headings, as GitHub makes them."""
    heads = re.findall(r"^#+ (.+)$", FENCE.sub("", text(path)), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", head.lower()).replace(" ", "-") for head in heads}


@pytest.mark.parametrize("path", DOCUMENTS, ids=named)
def test_every_link_to_a_heading_leads_to_one(path: Path) -> None:
    targets = [target.partition("#") for target in LINK.findall(text(path))]
    assert [
        f"{file}#{anchor}"
        for file, _, anchor in targets
        if anchor and anchor not in anchors(path.parent / file if file else path)
    ] == []


def test_the_readme_is_read_in_a_few_minutes() -> None:
    assert 700 <= len(text(README).split()) <= 1000


def test_the_architecture_is_read_in_a_quarter_of_an_hour() -> None:
    assert len(text(ROOT / "docs" / "architecture.md").split()) <= 2500


def snippets(language: str) -> list[str]:
    return [
        body for path in DOCUMENTS for kind, body in FENCE.findall(text(path)) if kind == language
    ]


def test_the_editors_snippets_start_a_command_that_is_installed() -> None:
    project = tomllib.loads(text(ROOT / "pyproject.toml"))["project"]
    commands: set[str] = set()
    for body in map(json.loads, snippets("json")):
        commands |= {server["command"] for server in body.get("agent_servers", {}).values()}
        commands |= {shlex.split(each["command"])[0] for each in body.get("agents", {}).values()}
    for body in snippets("lua") + snippets("elisp"):
        commands |= set(re.findall(r'(?:default = \{ |:command |command = )"([^"]+)"', body))
    commands = {Path(command).name for command in commands}
    assert commands
    assert commands <= project["scripts"].keys()


@pytest.mark.process
@pytest.mark.parametrize("name", ["README.md", "docs/editors.md", "docs/agents.md"])
def test_the_snippets_use_options_that_there_are(name: str) -> None:
    own = [line.partition(" -- ")[0] for line in text(ROOT / name).splitlines()]
    assert set(OPTION.findall("\n".join(own))) <= options() | set(
        OPTION.findall(setup.parser().format_help())
    )


@pytest.mark.parametrize("path", DOCUMENTS, ids=named)
def test_every_file_that_is_named_exists(path: Path) -> None:
    places = r"`((?:acp_bridge|agent|tests|fixtures|docs|\.ci)/[\w./-]*)`"
    missing = [name for name in re.findall(places, text(path)) if not (ROOT / name).exists()]
    assert missing == []


@pytest.mark.parametrize("package", ["acp_bridge", "agent"])
def test_the_architecture_says_what_every_folder_and_module_holds(package: str) -> None:
    rows = re.findall(r"^\| (`.*?) \|", text(ROOT / "docs" / "architecture.md"), re.MULTILINE)
    described = set(re.findall(rf"`({package}/[\w./]+?)/?`", "\n".join(rows)))
    top = ROOT / package
    for module in top.rglob("*.py"):
        path = module.relative_to(ROOT)
        if module.name != "__init__.py":
            assert described & {str(path), *map(str, path.parents)}, path
    assert all((ROOT / path).exists() for path in described)


def test_the_reading_order_names_fifty_files_of_the_core_once_each() -> None:
    named = re.findall(r"^\d+\. `([^`]+)`", text(ROOT / "docs" / "reading.md"), re.MULTILINE)
    assert len(named) == len(set(named)) == 50
    assert all((ROOT / "acp_bridge/core" / name).is_file() for name in named)


def row_of(agent: KnownAgent) -> str:
    how = f"<{agent.install}>" if "://" in agent.install else f"`{agent.install}`"
    command = f"`acp-bridge{' -- ' + agent.typed if agent.command else ''}`"
    tried = f"{agent.tried}, {agent.date}" if agent.tried else "not tried"
    return f"| {agent.name} | {how} | {command} | {tried if agent.command else 'every version'} |"


def test_the_table_of_known_agents_is_that_of_the_file_and_of_the_versions_that_are_tried() -> None:
    written = text(ROOT / "docs" / "agents.md")
    assert "\n".join(map(row_of, known_agents())) in written
    pinned = json.loads(text(ROOT / "tests" / "agents_not_ours" / "package.json"))["dependencies"]
    for agent in known_agents():
        package = agent.install.split()[-1]
        assert agent.install.startswith("uv ") or agent.tried == pinned.get(package), package


def test_the_table_of_states_is_that_of_the_machine() -> None:
    lines = text(table.DOCUMENT).splitlines()
    assert lines[table.place(text(table.DOCUMENT))] == table.page(), "run `make states`"


def test_the_table_of_states_that_clients_are_told_has_each_once() -> None:
    _, _, after = text(ROOT / "docs/extension.md").rpartition("| state | what it means |")
    rows = [row.split(" | ")[0] for row in after.partition("\n\n")[0].splitlines()]
    said = [word for row in rows for word in re.findall(r"`([a-z]+)`", row)]
    assert sorted(said) == sorted(LiveState)
