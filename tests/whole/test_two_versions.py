"""Bridges of two versions on one machine: after an update, those that are kept live on for hours.

The older one comes out of the history of this repository, so a clone without it skips these tests.
"""

import json
import signal
import subprocess
import zipfile
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path

import pytest

from tests.whole.bridge_support import ROOT, TELL_ACCEPTED, World, shown, stopped
from tests.whole.test_bridge_left_over import leave_waiting
from tests.whole.test_bridge_passages import cards
from tests.whole.test_bridge_socket import CONNECTING, listening
from tests.whole.tiny_agent import tiny_agent

pytestmark = pytest.mark.process

#: the last commit before the bridge was built anew.
OLD_COMMIT = "0b4751762ff8cf9163d3f8750d73b114fcffe3ea"
#: what it calls itself here, so that the two can't be taken for each other.
OLD_VERSION = "0.0.1"


#: what the processes of a version need in their environment.
Version = dict[str, str]
NEW: Version = {}


@pytest.fixture(scope="module")
def old(tmp_path_factory: pytest.TempPathFactory) -> Version:
    """The older acp-bridge, from the history of this repository."""
    command = ["git", "archive", "--format=zip", OLD_COMMIT, "acp_bridge", "agent"]
    try:
        done = subprocess.run(command, cwd=ROOT, capture_output=True, check=False)
    except OSError as exc:
        pytest.skip(f"the older acp-bridge can't be had: {exc}")
    if done.returncode != 0:
        why = done.stderr.decode(errors="replace").strip().partition("\n")[0]
        pytest.skip(f"this folder has no history with {OLD_COMMIT[:7]} in it: {why}")
    folder = tmp_path_factory.mktemp("old")
    zipfile.ZipFile(BytesIO(done.stdout)).extractall(folder)
    (folder / "acp_bridge" / "__init__.py").write_text(f'__version__ = "{OLD_VERSION}"\n')
    # Without the second one Python would look into the working directory first.
    return {"PYTHONPATH": str(folder), "PYTHONSAFEPATH": "1"}


@dataclass(frozen=True)
class Pair:
    """Who has the session, and the version of the other bridge or of the command."""

    holder: Version
    other: Version


@pytest.fixture(params=["of the old one", "of the new one"])
def pair(request: pytest.FixtureRequest, old: Version) -> Pair:
    return Pair(old, NEW) if request.param == "of the old one" else Pair(NEW, old)


async def test_the_commands_of_this_one_see_feed_answer_stop_and_close_a_session_of_the_old_one(
    world: World, old: Version
) -> None:
    async with world.bridge(capabilities={}, env=old) as editor:
        editor.side.permission = "never"
        first = editor.send_prompt("permission; gate middle; say never")
        await editor.until_request("session/request_permission")
        session = editor.session_id
        code, out, _ = await world.command("send", session[:6], "say queued")
        assert (code, out.split()[:4]) == (0, ["In", "the", "queue", "of"])
        code, out, _ = await world.command("ps", "--json")
        listed = json.loads(out)
        assert (listed["sessionId"], listed["state"], listed["waiting"]) == (
            session,
            "permission",
            1,
        )
        assert (await world.command("approve", session, "--option", "allow"))[0] == 0
        await world.gates.reached("middle")
        assert (await world.command("cancel", session))[0] == 0
        assert await stopped(editor, first) == "cancelled"
        await editor.until_text("queued")
        assert (await world.command("close", session))[0] == 0
        code, out, _ = await world.command("send", session, "say held")
        assert (code, "is not live: recorded, and " in out) == (0, True)
    async with world.bridge(session=False, env=old) as editor:
        loaded = await editor.load_session(session, world.cwd)
        (held,) = loaded["_meta"]["acp_bridge"]["held"]
        assert held[0]["text"] == "say held"


@pytest.mark.hazard("V8.11")
async def test_a_session_of_one_goes_through_the_other_which_takes_it_over_when_its_own_is_killed(
    world: World, pair: Pair
) -> None:
    async with world.bridge(session=False, env=pair.other) as other:
        async with world.bridge(env=pair.holder, exits=-signal.SIGKILL) as holder:
            session = holder.session_id
            await holder.prompt("say before")
            await other.load_session(session, world.cwd)
            assert "before" in other.text(session)
            assert await stopped(other, other.send_prompt("permission; say there")) == "end_turn"
            await holder.until_text("there")
            deaf = other.send_prompt("gate stop; say never")
            await world.gates.reached("stop")
            other.cancel()
            assert await stopped(other, deaf) == "cancelled"
            running = other.send_prompt("say words; tool t; gate g")
            await world.gates.reached("g")
            await other.until_recorded(lambda: cards(other, session))
            holder.terminate(signal.SIGKILL)
            assert await stopped(other, running) == -32603
        assert await stopped(other, other.send_prompt("say after")) == "end_turn"
        assert other.text(session).count("Interrupted") == 1
        assert [card["status"] for card in cards(other, session)][1:] == ["failed"]
        assert len({turn["pid"] for turn in world.log.turns()}) == 2


@pytest.mark.hazard("K1", "R12")
async def test_what_the_one_has_recorded_is_loaded_by_the_other_and_then_by_the_first_again(
    world: World, pair: Pair
) -> None:
    async with world.bridge(
        env=pair.holder, capabilities=TELL_ACCEPTED, exits=-signal.SIGKILL
    ) as client:
        before = await leave_waiting(world, client, "three", "four")
        session = client.session_id
        client.terminate(signal.SIGKILL)
    async with world.bridge(session=False, env=pair.other) as client:
        loaded = await client.load_session(session, world.cwd)
        held = [prompt[0]["text"] for prompt in loaded["_meta"]["acp_bridge"]["held"]]
        assert held == ["say three; gate h", "say four; gate h"]
        told = shown(client)
        assert [u for u in told if u in before] == before
        assert client.text().count("Interrupted") == 1
        for number in (1, 3):  # that of the place in the list, and that of the prompt
            await client.prompt(f"/queue drop {number}")
        await client.prompt("say five")
    async with world.bridge(session=False, env=pair.holder) as client:
        loaded = await client.load_session(session, world.cwd)
        held = [prompt[0]["text"] for prompt in loaded["_meta"]["acp_bridge"]["held"]]
        assert held == ["say four; gate h"]
        assert [u for u in shown(client) if u in before] == before
        assert client.text().count("Interrupted") == 1
        assert "five" in client.text()
        listed = await client.request("session/list", {})
        assert [each["sessionId"] for each in listed["sessions"]] == [session]


@pytest.mark.hazard("V6.1")
async def test_what_an_agent_of_the_old_one_starts_can_not_join_this_one(
    world: World, old: Version, tmp_path: Path
) -> None:
    command = tiny_agent(tmp_path, CONNECTING)
    async with (
        world.bridge() as other,
        world.bridge(env=old, command=command) as client,
    ):
        bridge = await listening(world, other)
        assert bridge.version != OLD_VERSION
        assert (await listening(world, client)).version == OLD_VERSION
        answer = await client.request("_x/connect", {"path": bridge.socket})
        assert "agents and what they start" in answer["said"]
        assert answer["said"].count("\n") == 1
