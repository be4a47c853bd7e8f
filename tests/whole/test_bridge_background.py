"""What an agent of version 2 runs in the background, as clients of both versions have it."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from acp_bridge.core.bridge import attendance
from acp_bridge.core.protocol import ENDED, Json
from acp_bridge.core.updates.notices import ended_in_background, killed_at_work
from acp_bridge.sharing.listening.run_files import live_bridges
from tests.support.client import RecordingClient
from tests.support.fixture_agents import fixture_command
from tests.support.joined import joined, listening
from tests.support.waiting import until
from tests.whole.bridge_support import World, fails, kill_agent, stopped
from tests.whole.test_bridge_v2_agent import v2_agent
from tests.whole.v2_client import v2_client

pytestmark = pytest.mark.process


@pytest.fixture(autouse=True)
def _plain_ids(monkeypatch: pytest.MonkeyPatch) -> None:
    """The terminals of an agent have its own ids at clients."""
    monkeypatch.setattr("acp_bridge.versions.translated.token_hex", lambda size: "")


CANCEL = "_acp_bridge/cancel_item"
HEARS: Json = {"_meta": {"acp_bridge": {"state": True}}}


@asynccontextmanager
async def another(
    world: World, editor: RecordingClient, **own: bool
) -> AsyncIterator[tuple[RecordingClient, Json]]:
    """One more client of version 1 that has the editor's session, and the answer to its load."""
    async with joined((await listening(world.home)).socket) as client:
        await client.initialize({"_meta": {"acp_bridge": {"state": True, **own}}})
        answer = await client.load_session(editor.session_id, world.cwd)
        yield client, answer


def states(client: RecordingClient) -> list[str]:
    """The states that were said, each with its stop reason and the ids of what it lists."""
    found = []
    for update in client.updates():
        if update["sessionUpdate"] == "state_update":
            listed = [
                x.get("toolCallId") or x.get("terminalId") for x in update.get("background", [])
            ]
            ends = update.get("stopReason")
            found.append(" ".join(filter(None, (update["state"], ends, *map(str, listed)))))
    return found


async def ran(client: RecordingClient, text: str) -> None:
    """Until the turn of a prompt has ended."""
    before = sum(" end_turn" in each for each in states(client))
    client.send_prompt(text)
    await client.until_recorded(
        lambda: sum(" end_turn" in each for each in states(client)) > before
    )


def lists(client: RecordingClient) -> list[list[Json]]:
    """What a client was told to run in the background, each time that it was another list."""
    found: list[list[Json]] = []
    for told in client.recording.requests("_acp_bridge/state"):
        listed = told["params"].get("background")
        if listed is not None and found[-1:] != [listed]:
            found.append(listed)
    return found


async def lists_now(client: RecordingClient, *wanted: Json) -> None:
    await client.until_recorded(lambda: lists(client)[-1:] == [list(wanted)])


def about(client: RecordingClient, **item: str) -> Json:
    return {"sessionId": client.session_id, **item}


# --- a client of version 1 ----------------------------------------------------------------------


async def test_a_client_of_version_1_is_told_what_runs_and_ends_a_piece_of_it(
    world: World,
) -> None:
    async with world.inside(command=v2_agent(), capabilities=HEARS) as client:
        await client.prompt("background b; serve s; linger g")
        call = {"type": "tool_call", "toolCallId": "b", "cancel": True}
        served = {"type": "terminal", "terminalId": "s", "cancel": True}
        fixed = {"type": "terminal", "terminalId": "g"}
        await lists_now(client, call, served, fixed)
        await fails(client, CANCEL, -32602, **about(client, terminalId="g"))
        await fails(client, CANCEL, -32602, **about(client, toolCallId="s"))
        await fails(client, CANCEL, -32602, **about(client, terminalId="s", toolCallId="b"))
        assert await client.request(CANCEL, about(client, toolCallId="b")) == {}
        await lists_now(client, served, fixed)
        assert client.updates()[-1]["status"] == "failed"
        await fails(client, CANCEL, -32602, **about(client, toolCallId="b"))
        assert await client.request(CANCEL, about(client, terminalId="s")) == {}
        await lists_now(client, fixed)
        world.gates.open("g")
        await lists_now(client)
    assert [each["params"]["toolCallId"] for each in world.log.received("tool_call/cancel")] == [
        "b"
    ]


async def test_a_second_call_of_the_same_id_is_listed_and_ended_under_the_id_that_clients_know(
    world: World,
) -> None:
    async with world.inside(command=v2_agent(), capabilities=HEARS) as client:
        await client.prompt("tool b")
        await kill_agent(world, client)
        await client.prompt("background b", within=20)
        await lists_now(client, {"type": "tool_call", "toolCallId": "b~2", "cancel": True})
        await fails(client, CANCEL, -32602, **about(client, toolCallId="b"))
        assert await client.request(CANCEL, about(client, toolCallId="b~2")) == {}
        await lists_now(client)
        assert world.log.received("tool_call/cancel")[-1]["params"]["toolCallId"] == "b"


async def test_an_observer_ends_nothing_and_a_load_is_answered_with_the_list(
    world: World,
) -> None:
    async with world.inside(command=v2_agent()) as client:
        own = client.recording.answers(0)[0]["result"]["agentCapabilities"]["_meta"]["acp_bridge"]
        assert CANCEL in own["methods"]
        await client.prompt("background b")
        async with another(world, client, observer=True) as (watcher, answer):
            listed = [{"type": "tool_call", "toolCallId": "b", "cancel": True}]
            assert answer["_meta"]["acp_bridge"]["state"]["background"] == listed
            await fails(watcher, CANCEL, -32600, **about(client, toolCallId="b"))
        assert await client.request(CANCEL, about(client, toolCallId="b")) == {}


async def test_nothing_is_told_of_an_agent_of_version_1(world: World) -> None:
    async with world.inside(capabilities=HEARS) as client:
        await client.prompt("say hello")
        told = client.recording.requests("_acp_bridge/state")
        assert told
        assert not [each for each in told if "background" in each["params"]]
        await fails(client, CANCEL, -32602, **about(client, toolCallId="b"))
        own = client.recording.answers(0)[0]["result"]["agentCapabilities"]["_meta"]["acp_bridge"]
        assert CANCEL not in own["methods"]


async def test_no_state_has_a_list_of_an_agent_of_version_1(world: World) -> None:
    async with v2_client(world, command=fixture_command()) as client:
        client.send_prompt("say hello")
        told = client.updates
        await client.until_recorded(lambda: any(each.get("stopReason") for each in told()))
        said = [each for each in told() if each["sessionUpdate"] == "state_update"]
        assert not [each for each in said if "background" in each]


# --- a client of version 2 ----------------------------------------------------------------------


async def test_each_state_that_a_client_of_version_2_is_told_has_the_whole_list(
    world: World,
) -> None:
    async with v2_client(world) as client:
        await ran(client, "say one")
        await ran(client, "background b; serve s")
        first = ["running", "running", "idle end_turn"]
        assert states(client) == [
            *first,
            "running",
            "running b",
            "running b s",
            "idle end_turn b s",
        ]
        told = [each for each in client.updates() if each["sessionUpdate"] == "state_update"]
        assert all("background" in each for each in told[1:])
        assert await client.request("tool_call/cancel", about(client, toolCallId="b")) == {}
        await client.until_recorded(lambda: states(client)[-1] == "idle s")
        assert await client.request("terminal/cancel", about(client, terminalId="s")) == {}
        await client.until_recorded(lambda: states(client)[-1] == "idle")
        await fails(client, "terminal/cancel", -32602, **about(client, terminalId="s"))


async def test_a_call_says_that_it_can_be_cancelled_before_it_is_listed_and_when_it_can_not(
    world: World,
) -> None:
    async with v2_client(world) as client:
        await ran(client, "background b")
        told = client.updates()
        able = [each.get("capabilities") for each in told].index({"cancel": {}})
        assert told[able]["toolCallId"] == "b"
        first = next(n for n, each in enumerate(told) if each.get("background"))
        assert able < first
        await ran(client, "fix b")
        fixed = [each for each in client.updates() if each.get("toolCallId") == "b"][-1]
        assert fixed["capabilities"] is None
        await fails(client, "tool_call/cancel", -32602, **about(client, toolCallId="b"))
        params = {"cwd": str(world.cwd), "replayFrom": {"type": "start"}}
        mark = client.mark()
        await client.request("session/resume", about(client) | params)
        kinds = [each["sessionUpdate"] for each in client.updates(since=mark)]
        assert kinds[-2:] == ["replay_complete", "state_update"]
        assert states(client)[-1] == "idle b"


@pytest.mark.hazard("C16")
async def test_a_call_that_runs_in_the_background_has_failed_when_its_session_is_closed(
    world: World,
) -> None:
    async with v2_client(world) as client:
        await ran(client, "background b")
        await client.request("session/close", {"sessionId": client.session_id})
        (ended,) = [each for each in client.updates() if each.get("status") in ENDED]
        assert (ended["toolCallId"], ended["status"]) == ("b", "failed")


async def test_a_client_of_each_version_has_the_same_list_and_either_ends_what_is_in_it(
    world: World,
) -> None:
    async with v2_client(world) as client:
        await ran(client, "background b; serve s")
        async with another(world, client) as (other, _):
            assert await other.request(CANCEL, about(client, toolCallId="b")) == {}
            await client.until_recorded(lambda: states(client)[-1] == "idle s")
            await client.request("terminal/cancel", about(client, terminalId="s"))
            await lists_now(other)
            await client.until_recorded(lambda: states(client)[-1] == "idle")


async def test_a_client_of_version_2_of_another_bridge_has_the_list_and_ends_what_is_in_it(
    world: World,
) -> None:
    async with world.inside(command=v2_agent(), capabilities=HEARS) as holder:
        await holder.prompt("background b")
        await listening(world.home)
        async with v2_client(world, session=False) as client:
            client.session_id = holder.session_id
            await client.request("session/resume", about(client, cwd=str(world.cwd)))
            assert states(client) == ["idle b"]
            assert await client.request("tool_call/cancel", about(client, toolCallId="b")) == {}
            await client.until_recorded(lambda: states(client)[-1] == "idle")
            await lists_now(holder)


# --- the end of the process ---------------------------------------------------------------------


async def test_what_ran_in_the_background_is_named_when_its_process_has_ended(
    world: World,
) -> None:
    async with world.inside(command=v2_agent(), capabilities=HEARS) as client:
        await client.prompt("background b; linger g")
        await kill_agent(world, client)
        await client.until_text(ended_in_background(["b", "sleep"]))
        await lists_now(client)
        said = [m["params"] for m in client.recording.incoming() if "params" in m]
        closed = [n for n, each in enumerate(said) if each.get("update", {}).get("toolCallId")]
        emptied = [n for n, each in enumerate(said) if each.get("background") == []]
        assert closed[-1] < emptied[-1]
        await client.prompt("say again", within=20)
        assert lists(client)[-1] == []


@pytest.mark.hazard("C25.13")
async def test_a_kill_that_a_stop_leads_to_names_what_ran_in_the_background(
    world: World,
) -> None:
    async with world.inside(
        command=v2_agent("--deaf"), capabilities=HEARS, drain_timeout=0.5, stop_delay=0.0
    ) as client:
        await client.prompt("linger g; busy h")
        await world.gates.reached("h")
        await client.until_recorded(lambda: told_states(client)[-1] == "working")
        client.cancel()
        await client.until_text(killed_at_work(["sleep"]))
        await lists_now(client)
        assert client.text().count("sleep") == 1


# --- work of the agent's own --------------------------------------------------------------------


def told_states(client: RecordingClient) -> list[str]:
    """The states that a client of version 1 was told, each change once."""
    found: list[str] = [""]
    for told in client.recording.requests("_acp_bridge/state"):
        if told["params"]["state"] != found[-1]:
            found.append(told["params"]["state"])
    return found


@pytest.mark.hazard("C25.4")
async def test_an_agent_that_says_it_is_running_without_a_prompt_works_until_it_is_idle(
    world: World,
) -> None:
    async with (
        v2_client(world, work_silence=60) as client,
        another(world, client) as (other, _),
    ):
        await ran(client, "say one; busy g")
        await client.until_recorded(lambda: states(client)[-1] == "running")
        await other.until_recorded(lambda: told_states(other)[-1] == "working")
        world.gates.open("g")
        await client.until_recorded(lambda: states(client)[-1] == "idle")
        await other.until_recorded(lambda: told_states(other)[-1] == "idle")


async def test_a_call_that_such_work_leaves_in_the_background_does_not_go_on_as_work(
    world: World,
) -> None:
    async with world.inside(
        command=v2_agent(), capabilities=HEARS, work_silence=60, stop_delay=0
    ) as client:
        await client.prompt("busy g b")
        await client.until_recorded(lambda: told_states(client)[-1] == "working")
        world.gates.open("g")
        await lists_now(client, {"type": "tool_call", "toolCallId": "b", "cancel": True})
        await client.until_recorded(lambda: told_states(client)[-1] == "idle")


@pytest.mark.hazard("C25.10")
async def test_a_stop_of_such_work_lasts_until_the_agent_is_idle(world: World) -> None:
    async with world.inside(
        command=v2_agent(), capabilities=HEARS, drain_timeout=60, stop_delay=0
    ) as client:
        await client.prompt("busy g")
        await client.until_recorded(lambda: told_states(client)[-1] == "working")
        client.cancel()
        await until(lambda: world.log.received("session/cancel"))
        waiting = client.send_prompt("say next")
        assert not client.recording.answers(waiting)
        world.gates.open("g")
        assert await stopped(client, waiting) == "end_turn"
        assert len(world.log.pids()) == 2


async def test_an_agent_that_says_it_is_running_does_not_sleep_after_a_stop_either(
    world: World,
) -> None:
    async with world.inside(command=v2_agent(), sleep_after=0.05, drain_timeout=60) as client:
        await client.prompt("say one")
        await kill_agent(world, client)
        prompt = client.send_prompt("busy g; gate h")
        await world.gates.reached("h")
        client.cancel()
        await until(lambda: world.log.received("session/cancel"))
        world.gates.open("h")
        assert await stopped(client, prompt) == "cancelled"
        await client.logged("what='work in the background'", 2)
        assert b"session.asleep" not in client.stderr
        world.gates.open("g")
        await client.logged("session.asleep")


# --- a bridge without a client ------------------------------------------------------------------


@pytest.mark.hazard("V7")
async def test_a_kept_bridge_goes_on_while_something_runs_in_the_background(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(attendance, "LINGER", 0.0)
    async with world.inside(command=v2_agent(), keep=3600.0) as client:
        await client.prompt("linger g")
        await world.gates.reached("g")
        client.close_stdin()
        await client.logged("bridge.kept")
        async with another(world, client) as (other, _):
            (row,) = (await other.request("_acp_bridge/live", {}))["sessions"]
            assert row["background"] == [{"type": "terminal", "terminalId": "g"}]
            assert row["state"] == "idle"
        world.gates.open("g")
        await until(lambda: not live_bridges(world.home))


# --- a Stop -------------------------------------------------------------------------------------


def ended(client: RecordingClient) -> list[str]:
    """The tool calls of which a client was told that they have ended."""
    told = [each for each in client.updates() if each.get("status") in ("failed", "cancelled")]
    return [each["toolCallId"] for each in told]


async def test_a_stop_of_a_client_of_version_2_leaves_what_runs_in_the_background(
    world: World,
) -> None:
    async with v2_client(world) as client:
        client.send_prompt("tool t; background b; serve s; gate g")
        await world.gates.reached("g")
        client.cancel()
        world.gates.open("g")
        await client.until_recorded(lambda: states(client)[-1:] == ["idle cancelled b s"])
        assert ended(client) == []
        await ran(client, "say one")  # of the same process
        assert await client.request("tool_call/cancel", about(client, toolCallId="b")) == {}
        await client.until_recorded(lambda: states(client)[-1] == "idle s")
        assert ended(client) == ["b"]
    assert len(world.log.received("initialize")) == 1
    assert world.log.received("terminal/cancel") == []


@pytest.mark.parametrize("words", ["", "; gate g"])
async def test_a_stop_of_a_client_of_version_1_ends_it_while_a_turn_runs_and_after_that(
    world: World, words: str
) -> None:
    async with v2_client(world) as client, another(world, client) as (other, _):
        client.send_prompt(f"background b; serve s{words}")
        if words:
            await world.gates.reached("g")
            await other.request("_acp_bridge/cancel", {"sessionId": client.session_id})
            world.gates.open("g")
        else:
            await client.until_recorded(lambda: states(client)[-1:] == ["idle end_turn b s"])
            other.cancel()
        await lists_now(other)
        assert ended(client) == ["b"]
    assert len(world.log.received("tool_call/cancel")) == 1
    assert len(world.log.received("terminal/cancel")) == 1
