"""What agents, hooks and the parent of agents have of the bridge's environment."""

import os
from pathlib import Path

import anyio
import pytest

from acp_bridge.core.agents.environment import HANDED_ON
from acp_bridge.core.agents.parent import AgentParent
from acp_bridge.features.hooks.definitions import Hook, HookEvent
from acp_bridge.features.hooks.environment import environment
from acp_bridge.features.hooks.run import run
from tests.core.agents.guard_support import read_all, started
from tests.support.waiting import until

pytestmark = [pytest.mark.process, pytest.mark.hazard("K7")]

DATABASE = {"PGPASSWORD": "hunter2", "PGPASSFILE": "/x", "PGSERVICEFILE": "/y", "PGHOST": "db"}
OTHER = {"AN_API_KEY": "sk-0123456789", "EDITOR": "vi", "MY_PGHOST": "db2"}


@pytest.fixture(params=["a database", "a folder"])
def journal(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """What the journal of this process is; the variables are there in both cases."""
    for name, value in (DATABASE | OTHER).items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(HANDED_ON, "withheld", ())
    if request.param == "a database":
        HANDED_ON.withhold_database()
    param: str = request.param
    return param


def has(shown: bytes, variables: dict[str, str]) -> set[str]:
    """Those of the variables that an environment has, as `env` shows it."""
    lines = shown.decode().splitlines()
    return {name for name, value in variables.items() if f"{name}={value}" in lines}


def expected(journal: str) -> set[str]:
    return set() if journal == "a database" else set(DATABASE)


@pytest.mark.hazard("K7.7")
async def test_an_agent_has_no_variable_of_the_journals_database(journal: str) -> None:
    async with started(["env"]) as (process, _):
        shown = await read_all(process.stdout_fd)
    assert has(shown, OTHER) == set(OTHER)
    assert has(shown, DATABASE) == expected(journal)


@pytest.mark.hazard("K7.7")
async def test_no_hook_has_one(journal: str, tmp_path: Path) -> None:
    hook = Hook(HookEvent.TURN_END, ("env",), timeout=60)
    with anyio.fail_after(5):
        ran = await run(hook, b"{}", "/", environment(os.environ, "/"))
    shown = ran.stdout.encode()
    assert has(shown, OTHER) == {"EDITOR", "MY_PGHOST"}  # a hook has no keys at all
    assert has(shown, DATABASE) == expected(journal) - {"PGPASSWORD", "PGPASSFILE"}


async def test_what_agents_are_forked_from_has_none(journal: str, tmp_path: Path) -> None:
    shown = tmp_path / "shown"
    parent = AgentParent(["sh", "-c", f"env >{shown}.new; mv {shown}.new {shown}"])
    with anyio.fail_after(10):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(parent.run)
            async with parent.start_of_agent(patient=False):
                pass
            await until(shown.exists)
            tasks.cancel_scope.cancel()
    # It takes keys from a socket, if there are any: so the environment has none.
    assert has(shown.read_bytes(), OTHER) == {"EDITOR", "MY_PGHOST"}
    assert has(shown.read_bytes(), DATABASE) == expected(journal) - {"PGPASSWORD", "PGPASSFILE"}


BOOTLOADER = "/home/u/.vscode/extensions/ms-vscode.js-debug/src/bootloader.js"


@pytest.mark.parametrize(
    ("given", "left"),
    [
        (f"--require {BOOTLOADER}  --inspect-publish-uid=http", None),
        (f' --require "{BOOTLOADER}" --inspect-publish-uid=http ', None),
        ('--max-old-space-size=4096 --require "/a b/js-debug/x\\"y.js" -r ./my.js', "KEEP"),
        (f"--require={BOOTLOADER} --max-old-space-size=4096 -r ./my.js", "KEEP"),
        (f"-r {BOOTLOADER} --max-old-space-size=4096   -r ./my.js", "KEEP3"),
        ("--require ./my.js --inspect-publish-uid=http", "SAME"),
        ('--require "./my own.js"  --title="a  b"', "SAME"),
        ("", "SAME"),
    ],
)
def test_only_the_words_that_load_the_editor_s_debugger_are_taken_out_of_node_s_options(
    given: str, left: str | None
) -> None:
    kept = {
        "KEEP": "--max-old-space-size=4096 -r ./my.js",
        "KEEP3": "--max-old-space-size=4096   -r ./my.js",
        "SAME": given,
    }
    env = {"NODE_OPTIONS": given, "GIT_ASKPASS": "/x/askpass.sh"}
    expected = {**env, "NODE_OPTIONS": kept[left]} if left else {"GIT_ASKPASS": "/x/askpass.sh"}
    assert HANDED_ON.of(env) == expected


async def test_an_agent_has_no_variable_of_the_editor_s_own_runtime(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    editor_s = {
        "ELECTRON_RUN_AS_NODE": "1",
        "ELECTRON_NO_ATTACH_CONSOLE": "1",
        "VSCODE_INSPECTOR_OPTIONS": "{}",
        "NODE_OPTIONS": f"--require {BOOTLOADER}",
    }
    own = {"GIT_ASKPASS": "/x", "VSCODE_GIT_IPC_HANDLE": "/y", "ELECTRON_X": "1"}
    for name, value in (editor_s | own).items():
        monkeypatch.setenv(name, value)
    async with started(["env"]) as (process, _):
        shown = await read_all(process.stdout_fd)
    assert has(shown, editor_s | own) == set(own)
    assert b"NODE_OPTIONS" not in shown
