"""A link tells whoever owns it of the end of its process, once, whoever ended it."""

from functools import partial
from typing import Any

import anyio
import pytest

from acp_bridge.core.agents.link import Link
from acp_bridge.core.agents.process import Exit
from acp_bridge.core.runtime import waits
from acp_bridge.core.wire.jsonrpc import DEFAULT_LIMIT, Answer, Err, RpcError, encode
from tests.core.agents.scripted_process import Listener, ScriptedProcess, linked
from tests.support.waiting import until

GONE = ("gone", Exit(7, None))
NONE: dict[str, Any] = {"protocolVersion": None, "agentCapabilities": {}}


async def test_the_owner_is_told_once_of_the_exit_and_once_of_the_dead_tree(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    owner = Listener()
    async with linked(monkeypatch, owner) as (link, process):
        assert link.started
        process.die()
        await link.dead.wait()
        assert await link.kill()
    assert owner.told == [GONE, "dead"]


async def test_whoever_kills_the_tree_the_owner_is_told_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    owner = Listener()
    async with linked(monkeypatch, owner) as (link, process):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(link.kill)
            tasks.start_soon(link.kill)
            await until(lambda: owner.told)
            process.die()
        await link.dead.wait()
    assert owner.told == [GONE, "dead"]


@pytest.mark.hazard("P3", "Q12.1")
async def test_an_owner_that_adopts_a_process_that_has_ended_is_told_at_once_and_of_its_tree_later(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    first, second = Listener(), Listener()
    async with linked(monkeypatch, first, parked=True) as (link, process):
        process.exit()
        await until(lambda: link.gone)
        link.adopt(second)
        assert second.told == [GONE]
        process.die()
        await link.dead.wait()
    assert second.told == [GONE, "dead"]
    assert first.told == [GONE]


@pytest.mark.hazard("P3", "Q12.1")
async def test_an_owner_that_adopts_a_process_whose_tree_is_dead_is_told_both(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    first, second = Listener(), Listener()
    async with linked(monkeypatch, first, parked=True) as (link, process):
        update = {"sessionId": "s", "update": {"sessionUpdate": "plan"}}
        process.says({"method": "session/update", "params": update})
        link.agent_session_id = "s"
        process.die()
        await link.dead.wait()
        link.adopt(second)
    assert second.told == [("update", update["update"]), GONE, "dead"]


async def test_an_owner_that_has_the_process_already_is_not_told_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    owner = Listener()
    async with linked(monkeypatch, owner) as (link, process):
        process.die()
        await link.dead.wait()
        link.adopt(owner)
    assert owner.told == [GONE, "dead"]


@pytest.mark.hazard("P12")
async def test_a_tree_that_outlives_the_kill_is_called_dead_when_it_is(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    first, second = Listener(), Listener()
    async with linked(monkeypatch, first) as (link, process):
        process.immortal = True
        assert not await link.kill()
        process.exit()
        await until(lambda: link.gone)
        link.adopt(second)
        assert not await link.kill()
        assert (first.told, second.told) == ([GONE], [GONE])
        process.die()
        await until(lambda: link.dead.is_set())
    assert second.told == [GONE, "dead"]


async def test_an_open_request_keeps_its_origin_and_gets_an_error_when_the_process_ends(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    origin, answers = object(), list[Any]()
    async with linked(monkeypatch, Listener()) as (link, process):
        request_id = link.request_for(origin, "session/prompt", {}, answers.append)
        link.request_for(None, "session/list", {}, answers.append)
        assert dict(link.on_behalf) == {request_id: origin}
        process.says({"id": request_id, "result": 5})
        await until(lambda: answers)
        assert dict(link.on_behalf) == {}
        process.die()
        await link.dead.wait()
        link.request_for(origin, "session/prompt", {}, answers.append)
        assert dict(link.on_behalf) == {}
        with pytest.raises(RpcError, match=r"has ended \(exit code 7\)"):
            await link.ask_for(origin, "session/prompt", {})
    assert [type(answer).__name__ for answer in answers] == ["Ok", "Err", "Err"]


@pytest.mark.hazard("P16")
async def test_an_answer_that_is_too_long_is_said_to_be_the_agents_and_how_long_it_may_be(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    answers: list[Answer] = []
    async with linked(monkeypatch, Listener()) as (link, process):
        request_id = link.request_for(None, "session/list", {}, answers.append)
        link.peer.feed(b'{"id":%d,"result":"%s"}\n' % (request_id, b"x" * DEFAULT_LIMIT))
        process.die()
    said = "the agent's answer can't be read: the line is longer than 67108864 bytes"
    assert answers == [Err(RpcError(-32603, said))]


@pytest.mark.hazard("P15")
async def test_answers_of_any_size_are_no_flood_while_the_session_has_no_name(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    owner, big = Listener(), "x" * 2_000_000
    async with linked(monkeypatch, owner, parked=True) as (link, process):
        for number in range(10):
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(link.ask, "session/list", {})
                answer = {"id": number + 2, "result": {"sessions": [big]}}
                await anyio.to_thread.run_sync(process.says, answer, abandon_on_cancel=True)
        assert owner.told == []


@pytest.mark.hazard("C7", "P15")
async def test_a_new_owner_is_told_though_the_one_before_waits_for_its_client(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Waits(Listener):
        """Has no room, ever."""

        async def room(self, link: Link) -> None:
            await anyio.sleep_forever()

    async with linked(monkeypatch, Waits()) as (link, process):
        link.agent_session_id = "s"
        owner = Listener()
        link.adopt(owner)
        for number in range(2):
            update = {"sessionId": "s", "update": {"number": number}}
            process.says({"method": "session/update", "params": update})
        await until(lambda: len(owner.told) == 2)
        assert owner.told == [("update", {"number": 0}), ("update", {"number": 1})]


@pytest.mark.hazard("V6.9")
@pytest.mark.parametrize("ours", [True, False])
async def test_only_an_agent_of_this_project_marks_notices_and_calls_and_sets_no_other_mark(
    monkeypatch: pytest.MonkeyPatch, ours: bool
) -> None:
    class Keeper(Listener):
        def on_update(self, link: Link, params: Any) -> None:
            self.told.append(params.get("_meta"))

    owner = Keeper()
    marks = [
        {"notice": True, "decided": {"decision": "allow"}, "assumed": True, "feedback": True},
        {"ran": False, "cursor": "c"},
        {"notice": "yes", "ran": 0},
    ]
    async with linked(monkeypatch, owner, ours=ours) as (link, process):
        link.agent_session_id = "s"
        for own in marks:
            update = {"sessionUpdate": "agent_message_chunk"}
            params = {"sessionId": "s", "update": update, "_meta": {"acp_bridge": own, "x": 1}}
            process.says({"method": "session/update", "params": params})
        await until(lambda: len(owner.told) == 3)
        told = list(owner.told)
        process.die()
    kept: list[Any] = [{"notice": True}, {"ran": False}, None] if ours else [None] * 3
    assert told == [{"x": 1, **({"acp_bridge": each} if each else {})} for each in kept]


@pytest.mark.hazard("X1")
@pytest.mark.parametrize("told", [{"protocolVersion": 1.0}, {"protocolVersion": "1"}, {}, NONE])
async def test_a_version_in_another_form_or_none_is_version_1(
    monkeypatch: pytest.MonkeyPatch, told: dict[str, Any]
) -> None:
    answers = partial(ScriptedProcess.says)
    monkeypatch.setattr(
        ScriptedProcess,
        "says",
        lambda process, message: answers(process, {**message, "result": {**told, "x": 1}}),
    )
    async with linked(monkeypatch, Listener()) as (link, _):
        assert repr(link.initialized["protocolVersion"]) == "1"
        assert link.initialized["x"] == 1


async def test_a_message_that_nobody_ends_is_waited_for_no_longer_than_a_while(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(waits, "REST_OF_MESSAGE", 0.01)
    answers = list[Any]()
    async with linked(monkeypatch, Listener()) as (link, process):
        request_id = link.request_for(None, "session/prompt", {}, answers.append)
        process.writes(b'{"jsonrpc":"2.0","id":%d,"result":{\n' % request_id)
        await until(lambda: answers)
        assert isinstance(answers[0], Err)


@pytest.mark.hazard("P8")
async def test_an_update_without_a_session_s_id_waits_for_the_session_of_a_parked_process(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    first, second = Listener(), Listener()
    async with linked(monkeypatch, first, parked=True) as (link, process):
        process.says({"method": "session/update", "params": {"update": {"sessionUpdate": "plan"}}})
        process.says({"method": "_x/seen"})
        await until(lambda: first.told)
        assert first.told == [("notification", "_x/seen")]
        link.agent_session_id = "s"
        link.adopt(second)
        assert second.told == [("update", {"sessionUpdate": "plan"})]


def words(text: str, session_id: str) -> dict[str, Any]:
    update = {"sessionUpdate": "agent_message_chunk", "content": {"type": "text", "text": text}}
    params = {"sessionId": session_id, "update": update}
    return {"jsonrpc": "2.0", "method": "session/update", "params": params}


def texts(owner: Listener) -> list[str]:
    """Return the texts of the updates that an owner was told of."""
    return [each[1]["content"]["text"] for each in owner.told if each[0] == "update"]


@pytest.mark.hazard("P8")
async def test_runs_of_words_wait_for_the_session_of_a_parked_process(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    first, second = Listener(), Listener()
    async with linked(monkeypatch, first, parked=True) as (link, _):
        for text in ("one", "two", "three"):
            link.peer.feed(encode(words(text, "s")))
        link.agent_session_id = "s"
        link.peer.feed(encode(words("four", "s")))
        assert texts(first) == []
        link.adopt(second)
        link.peer.feed(encode(words("five", "s")))
        assert texts(second) == ["one", "two", "three", "four", "five"]


@pytest.mark.hazard("P8")
async def test_runs_of_words_wait_for_whichever_of_two_sessions_is_named_so(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    owners = Listener(), Listener()
    async with linked(monkeypatch, owners[0], parked=True) as (link, _):
        links = link, Link(link.connection, owners[1], "agent", parked=True)
        for text in ("one", "two", "three"):
            link.peer.feed(encode(words(text, "second")))
        for each, owner, name in zip(links, owners, ("first", "second"), strict=True):
            each.agent_session_id = name
            each.adopt(owner)
        assert [texts(owner) for owner in owners] == [[], ["one", "two", "three"]]


async def test_runs_of_words_of_another_session_are_dropped(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    owner = Listener()
    async with linked(monkeypatch, owner) as (link, _):
        link.agent_session_id = "s"
        for session_id in ("s", "other", "s"):
            for text in ("one", "two"):
                link.peer.feed(encode(words(f"{text} of {session_id}", session_id)))
        assert texts(owner) == ["one of s", "two of s"] * 2
