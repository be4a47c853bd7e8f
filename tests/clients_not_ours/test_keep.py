"""Clients that are not ours on `acp-bridge --keep`: they end in every way, and nothing is lost.

What the SDKs' clients do stands in sdk_kept.mjs and sdk_kept.py.
"""

import json
import os
import shlex
import signal
import tempfile
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from acp_bridge.core.journal import PromptState
from acp_bridge.core.journal.reading import waiting_prompts
from acp_bridge.core.protocol import own_meta
from tests.clients_not_ours.conftest import Tape
from tests.clients_not_ours.kept import LAST, RUNNING, WAITING, Kept, check_text, run
from tests.clients_not_ours.test_acpx import Acpx
from tests.support.fixture_agents import fixture_command
from tests.support.gates import Gates
from tests.support.processes import all_gone, children, command_line, descendants, gone, marked

pytestmark = pytest.mark.process

TYPESCRIPT, PYTHON = "sdk_kept.mjs", "sdk_kept.py"
#: Ends the process of a client, and what it has started, by the client's pid.
Kill = Callable[[int], None]
#: how the client ends what it has started. The Python SDK gives it no group of its own.
BY_CLIENT = ["group", "tree", "SIGTERM", "stdin", "close, SIGKILL", "close and SIGKILL"]


@pytest.fixture
async def kept(
    modules: Path,
    folder: Path,
    client_env: dict[str, str],
    gates: Gates,
    mark: str,
    tmp_path: Path,
) -> AsyncIterator[Kept]:
    """When the test is over no process of it lives."""
    yield Kept(tmp_path / "home", folder, client_env, gates, modules, mark)
    await all_gone(mark, within=5)


async def has_left(kept: Kept, tape: Tape, session: str, script: str) -> None:
    """The client is gone: what it left goes on, and one that comes back has it all."""
    await kept.until(session, state="running", waiting=1)
    (bridge,) = await kept.bridges()
    kept.gates.open("left")
    await kept.until(session, state="permission", waiting=1, clients=0)
    again = {"session": session, "until": "b-one0 1 2 ", "last": LAST}
    command = tape.command(*fixture_command())
    async with kept.client(script, "returns", command=command, **again) as client:
        seen = await client.told()
        assert await client.process.wait() == 0
    check_text(seen["text"])
    assert seen["asked"] == [RUNNING, WAITING]
    assert WAITING in seen["notices"][0]
    assert bridge in await kept.bridges()
    await kept.end()


@pytest.mark.hazard("V7.1", "V7.2", "V7.3")
@pytest.mark.parametrize(
    ("script", "way"),
    [(TYPESCRIPT, way) for way in BY_CLIENT] + [(PYTHON, way) for way in BY_CLIENT[1:]],
)
async def test_however_a_client_ends_its_bridge_turn_and_queue_go_on_and_it_sees_the_end(
    kept: Kept, tape: Tape, script: str, way: str
) -> None:
    own_group = way == "group"
    given = {"command": kept.bridge(), "prompts": [RUNNING, WAITING], "detached": own_group}
    async with kept.client(script, "leaves", **given) as client:
        session = (await client.told())["session"]
        await kept.gates.reached("left", within=30)
        await kept.until(session, waiting=1)
        await client.tell(way)
        await client.told()
        assert await client.process.wait() == 0
    await has_left(kept, tape, session, TYPESCRIPT)


def by_group(pid: int) -> None:
    os.killpg(pid, signal.SIGKILL)


def by_tree(pid: int) -> None:
    for each in [*reversed(descendants(pid)), pid]:
        os.kill(each, signal.SIGKILL)


def from_the_top(pid: int) -> None:
    for each in [pid, *descendants(pid)]:
        os.kill(each, signal.SIGKILL)


def alone(pid: int) -> None:
    os.kill(pid, signal.SIGKILL)


@pytest.mark.hazard("V7.1")
@pytest.mark.parametrize(
    ("script", "kill"),
    [(TYPESCRIPT, kill) for kill in (by_group, by_tree, from_the_top, alone)] + [(PYTHON, alone)],
)
async def test_a_client_that_is_killed_with_what_it_has_started_loses_nothing(
    kept: Kept, tape: Tape, script: str, kill: Kill
) -> None:
    given = {"command": kept.bridge(), "prompts": [RUNNING, WAITING]}
    async with kept.client(script, "leaves", **given) as client:
        session = (await client.told())["session"]
        await kept.gates.reached("left", within=30)
        await kept.until(session, waiting=1)
        below = children(client.process.pid)
        kill(client.process.pid)
        await client.process.wait()
        for pid in below:
            await gone(pid, within=5)
    await has_left(kept, tape, session, script)


@pytest.mark.hazard("V7", "P1")
async def test_an_agent_that_loops_and_hears_no_stop_ends_in_time_and_leaves_nothing(
    kept: Kept, mark: str
) -> None:
    prompts = ["grandchild; gate left; stream 100000000", WAITING]
    command = kept.bridge("2s", "ignores-cancel")
    async with kept.client(TYPESCRIPT, "leaves", command=command, prompts=prompts) as client:
        session = (await client.told())["session"]
        await kept.gates.reached("left", within=30)
        await kept.until(session, waiting=1)
        by_group(client.process.pid)
    kept.gates.open("left")
    await kept.ended(within=15)
    await all_gone(mark, within=5)
    (held,) = waiting_prompts(kept.home, session)
    assert (held.state, held.params["prompt"][0]["text"]) == (PromptState.LEFT_OVER, WAITING)


# --- acpx ----------------------------------------------------------------------------------------


def owner(kept: Kept) -> int:
    """acpx's process in the background, which has started a bridge."""
    found = [pid for pid in marked(kept.mark) if "__queue-owner" in command_line(pid)]
    (pid,) = [pid for pid in found if children(pid)]
    return pid


def terminated_below(pid: int) -> None:
    for each in children(pid):
        os.kill(each, signal.SIGTERM)


def transcript(kept: Kept, session: str) -> str:
    """What the agent has said in the session."""
    lines = run(["show", "--json", session], kept.env, kept.folder).splitlines()
    told = [json.loads(line) for line in lines]
    updates = [each["update"] for each in told if not own_meta(each).get("notice")]
    said = [each for each in updates if each["sessionUpdate"] == "agent_message_chunk"]
    return "".join(each["content"]["text"] for each in said)


@pytest.mark.hazard("V7")
@pytest.mark.parametrize("end", [by_group, terminated_below])
async def test_acpx_is_killed_and_resumes_and_what_was_asked_meanwhile_is_answered(
    kept: Kept, tmp_path: Path, end: Kill
) -> None:
    with tempfile.TemporaryDirectory(prefix="acpx-", ignore_cleanup_errors=True) as home:
        words = kept.script("node_modules/acpx/dist/cli.js")
        options = ("--agent", shlex.join(kept.bridge()), "--format", "json", "--approve-all")
        acpx = Acpx([*words, *options], {**kept.env, "HOME": home}, kept.folder)
        session = (await acpx.run("sessions", "new")).lines[0]["acpxSessionId"]
        await acpx.run("prompt", "--no-wait", RUNNING)
        await kept.gates.reached("left", within=30)
        run(["send", session, WAITING], kept.env, kept.folder)
        await kept.until(session, state="running", waiting=1)
        started = children(client := owner(kept))
        end(client)
        for pid in started:
            await gone(pid, within=5)
        kept.gates.open("left")
        await kept.until(session, state="permission", waiting=1, clients=0)
        async with acpx.streaming("prompt", LAST) as prompt:
            await kept.until(session, state="running", waiting=1)
            run(["cancel", session], kept.env, kept.folder)
        assert prompt.stop_reason == "end_turn"
        assert "session/resume" in prompt.methods
        assert "A turn runs in this session" in prompt.text
        assert "[permission allow]a-threeb-one0 " in prompt.text
        check_text(transcript(kept, session))
        await acpx.run("sessions", "close")
        await kept.end()
