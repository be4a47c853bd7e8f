"""A client names itself, and comes back under its name on another connection."""

from pathlib import Path
from typing import Any

import pytest

from acp_bridge.core.clients.rights import May, Rights
from tests.core.bridge.keyed import session
from tests.core.sessions.agent import Agent, Json, until
from tests.core.sessions.bench import HELLO, Bench, Served, bench

NAME = "a-client_0123456789"
CAME_BACK = "the client has come back on another connection"
ENDS = pytest.mark.parametrize("ends", ["unnoticed", "noticed"])


def named(**own: Any) -> Json:
    return {"_meta": {"acp_bridge": {"client": NAME, "state": True, "queue": True, **own}}}


async def attached(it: Bench, session_id: str, **own: Any) -> Served:
    """A client with the name that has the session, and was shown nothing of it."""
    client = await it.joined_with(named(**own))
    await client.ask("_acp_bridge/attach", {"sessionId": session_id, "history": "pending"})
    return client


async def leaves(client: Served, ends: str) -> None:
    """The client's connection ends, if that is noticed before it comes back."""
    if ends == "noticed":
        client.leaves()
        await client.parted.wait()


async def states(client: Served) -> Json:
    told: Json = (await client.got("_acp_bridge/state"))[-1]["params"]
    return told


# --- the name ------------------------------------------------------------------------------------


@pytest.mark.hazard("N2")
async def test_the_agent_is_not_told_the_name(tmp_path: Path) -> None:
    async with bench(tmp_path, initialized=False) as it:
        await it.editor.ask("initialize", {**HELLO, "clientCapabilities": named()})
        await it.new()
        for told in it.agent.params("initialize"):
            assert NAME not in str(told)
            assert told["clientCapabilities"]["_meta"]["acp_bridge"]["state"] is True


# --- who comes back ------------------------------------------------------------------------------


@pytest.mark.hazard("N2.7", "N2.8", "V4")
async def test_the_earlier_connection_ends_at_once_and_gets_nothing_more(tmp_path: Path) -> None:
    async with session(tmp_path) as here:
        old = await attached(here.it, here.id, accepted=True)
        await here.runs("work", "k", old)
        here.send("more", "more", old)
        await old.handled()
        new = await attached(here.it, here.id)
        await old.parted.wait()
        before = len(old.messages)
        assert old.messages[-1]["params"] == {"reason": CAME_BACK}
        here.gate.open()
        await until(lambda: "echo more" in [each.strip() for each in new.texts(here.id)])
        await here.it.settled()
        assert len(old.messages) == before


@pytest.mark.hazard("N2.7")
async def test_the_earlier_connection_has_no_session_when_the_next_one_is_answered(
    tmp_path: Path,
) -> None:
    async with session(tmp_path) as here:
        await attached(here.it, here.id)
        shown = here.it.bridge._sessions.live[here.id].transcript
        assert len(shown.views) == 2
        new, had = Served(), []
        write = new.way.write
        new.way.write = lambda data: (had.append(len(shown.views)), write(data))[1]  # type: ignore
        here.it.context.tasks.start_soon(here.it._join, new)
        await new.ask("initialize", {**HELLO, "clientCapabilities": named()})
        assert had == [1]


@pytest.mark.hazard("N2.4")
@ENDS
async def test_its_prompts_are_its_own(tmp_path: Path, ends: str) -> None:
    async with session(tmp_path) as here:
        old = await attached(here.it, here.id)
        await here.runs("work", "k", old)
        here.send("more", "more", old)
        await old.handled()
        await leaves(old, ends)
        new = await attached(here.it, here.id)
        assert (await states(new))["turn"]["mine"] is True
        (told,) = (await new.got("_acp_bridge/queue"))[-1]["params"]["prompts"]
        assert (told["text"], told["mine"]) == ("more", True)
        here.gate.open()


@pytest.mark.hazard("N2.5")
@ENDS
@pytest.mark.parametrize("attaches", [True, False])
async def test_its_stop_ends_its_own_oldest_prompt_also_before_it_has_the_session_again(
    tmp_path: Path, ends: str, attaches: bool
) -> None:
    async with session(tmp_path, drain_timeout=60) as here:
        await here.runs("of the editor", "e")
        old = await attached(here.it, here.id)
        here.send("work", "k", old)
        here.send("more", "l", old)
        await old.handled()
        await leaves(old, ends)
        new = await here.it.joined_with(named())
        if attaches:
            await new.ask("_acp_bridge/attach", {"sessionId": here.id})
        new.notify("session/cancel", {"sessionId": here.id})
        await new.handled()
        here.gate.open()
        await until(lambda: "more" in here.prompted)
        assert here.prompted == ["of the editor", "more"]


@pytest.mark.hazard("N2.5", "V4.8")
async def test_a_stop_of_another_does_not_end_the_prompt_of_one_that_has_come_back(
    tmp_path: Path,
) -> None:
    async with session(tmp_path) as here:
        old = await attached(here.it, here.id)
        await here.runs("work", "k", old)
        new = await attached(here.it, here.id)
        here.editor.notify("session/cancel", {"sessionId": here.id})
        await here.it.settled()
        here.gate.open()
        await until(lambda: "last" in (new.asked("_acp_bridge/state")[-1]["params"]))
        assert (await states(new))["last"]["stopReason"] == "end_turn"


@pytest.mark.hazard("N2.6", "X2")
@ENDS
async def test_its_prompt_sent_again_is_answered_and_shown_to_it_by_nobody(
    tmp_path: Path, ends: str
) -> None:
    async with session(tmp_path) as here:
        old = await attached(here.it, here.id)
        await here.runs("work", "k", old)
        here.send("more", "more", old)
        await old.handled()
        await leaves(old, ends)
        new = await attached(here.it, here.id)
        asked = here.send("work", "k", new)
        await new.handled()
        here.gate.open()
        assert await new.stop_reason(asked) == "end_turn"
        assert await new.stop_reason(here.send("more", "more", new)) == "end_turn"
        assert here.prompted == ["work", "more"]
        assert await here.shown_by(new, "more") == 0
        assert await here.shown_by(here.editor, "more") == 1


@pytest.mark.hazard("N2", "V1")
async def test_one_that_is_shown_the_session_anew_is_shown_its_words_when_they_run(
    tmp_path: Path,
) -> None:
    async with session(tmp_path) as here:
        await here.runs("before", "b")
        old = await attached(here.it, here.id)
        here.send("work", "k", old)
        await old.handled()
        new = await here.it.joined_with(named())
        await new.ask("_acp_bridge/attach", {"sessionId": here.id})
        here.gate.open()
        await until(lambda: "echo work" in [each.strip() for each in new.texts(here.id)])
        assert await here.shown_by(new, "work") == 1


@pytest.mark.hazard("N2.13", "V4")
async def test_forty_comings_back_leave_a_few_requests_behind(tmp_path: Path) -> None:
    async with session(tmp_path) as here:
        await here.runs("work", "k")
        for count in range(40):
            own = {"client": f"{count:020}" if count % 2 else NAME}
            client = await here.it.attached(here.id, **own)
            here.send("work", "k", client)
            await client.handled()
            if count % 2:
                await leaves(client, "noticed")
        prompts = here.it.bridge._sessions.live[here.id].prompts
        (prompt,) = prompts._open.values()
        await here.it.settled()
        there = [each for each in prompt.asked if not each.client.gone]
        assert len(prompt.asked) - len(there) < 10
        assert len(prompt.senders) <= len(prompt.asked)
        here.gate.open()


@pytest.mark.hazard("N2.12")
async def test_another_name_and_the_name_of_the_client_on_stdin_are_a_strangers(
    tmp_path: Path,
) -> None:
    agent = Agent()
    gate = agent.stops_at("session/prompt")
    async with bench(tmp_path, agent, initialized=False) as it:
        await it.editor.ask("initialize", {**HELLO, "clientCapabilities": named()})
        session_id = await it.new()
        it.editor.prompt(session_id, "work")
        await until(lambda: gate.reached)
        for name in (NAME, NAME + "x"):
            stranger = await attached(it, session_id, client=name)
            assert (await states(stranger))["turn"]["mine"] is False
            stranger.notify("session/cancel", {"sessionId": session_id})
            await stranger.handled()
        assert it.editor.asked("_acp_bridge/let_go") == []
        gate.open()
        await until(lambda: it.editor.asked("_acp_bridge/state")[-1]["params"].get("last"))
        assert (await states(it.editor))["last"]["stopReason"] == "end_turn"


@pytest.mark.hazard("N2.12")
async def test_a_name_under_another_login_is_a_strangers(tmp_path: Path) -> None:
    async with session(tmp_path) as here:
        clients = []
        for login in ("one", "another", "one"):
            client = Served()
            rights = Rights(May.ALL, login, (str(tmp_path),), login)
            here.it.context.tasks.start_soon(
                here.it.bridge.join_remote, client.read, client.way, rights
            )
            await client.ask("initialize", {**HELLO, "clientCapabilities": named()})
            await client.ask("_acp_bridge/attach", {"sessionId": here.id, "history": "pending"})
            clients.append(client)
            if len(clients) == 1:
                await here.runs("work", "k", client)
        first, stranger, back = clients
        assert (await states(stranger))["turn"]["mine"] is False
        assert (await states(back))["turn"]["mine"] is True
        assert stranger.asked("_acp_bridge/let_go") == []
        assert first.asked("_acp_bridge/let_go")
        here.gate.open()


# --- sessions of one that is away ----------------------------------------------------------------


@pytest.mark.hazard("N2", "V4")
async def test_the_close_of_another_leaves_the_session_to_the_prompt_of_one_that_is_away(
    tmp_path: Path,
) -> None:
    async with session(tmp_path) as here:
        old = await attached(here.it, here.id)
        await here.runs("work", "k", old)
        await leaves(old, "noticed")
        assert await here.editor.ask("session/close", {"sessionId": here.id}) == {}
        new = await attached(here.it, here.id)
        asked = here.send("work", "k", new)
        await new.handled()
        here.gate.open()
        assert await new.stop_reason(asked) == "end_turn"
        assert await new.ask("session/close", {"sessionId": here.id}) == {}
        assert here.it.bridge._sessions.live == {}


@pytest.mark.hazard("N2", "R4")
async def test_a_load_by_another_moves_no_session_of_one_that_is_away_and_its_own_is_its_own(
    tmp_path: Path,
) -> None:
    async with session(tmp_path) as here:
        old = await attached(here.it, here.id)
        await here.runs("work", "k", old)
        await leaves(old, "noticed")
        await here.editor.ask("session/close", {"sessionId": here.id})
        other = {"sessionId": here.id, "cwd": "/", "mcpServers": []}
        told = await here.editor.ask("session/load", other)
        assert told["_meta"]["acp_bridge"]["attached"]["cwd"] == str(tmp_path)
        await here.editor.ask("session/close", {"sessionId": here.id})
        new = await here.it.joined_with(named())
        assert (await new.refused("session/load", other)).code == -32602
        here.gate.open()


@pytest.mark.hazard("N2.13")
async def test_a_session_that_was_closed_ends_with_the_prompts_of_one_that_stays_away(
    tmp_path: Path,
) -> None:
    async with session(tmp_path) as here:
        old = await attached(here.it, here.id)
        await here.runs("work", "k", old)
        await leaves(old, "noticed")
        await here.editor.ask("session/close", {"sessionId": here.id})
        live = here.it.bridge._sessions.live[here.id]
        assert not live.closing
        here.gate.open()
        await live.closed.wait()


@pytest.mark.hazard("N2")
async def test_the_close_of_who_has_come_back_is_its_own(tmp_path: Path) -> None:
    async with session(tmp_path) as here:
        old = await attached(here.it, here.id)
        await here.editor.ask("session/close", {"sessionId": here.id})
        await here.runs("work", "k", old)
        new = await attached(here.it, here.id)
        asked = here.send("work", "k", new)
        await new.handled()
        assert await new.ask("session/close", {"sessionId": here.id}) == {}
        assert await new.stop_reason(asked) == "cancelled"
        here.gate.open()
