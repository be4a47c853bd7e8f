"""What other people's agents and clients really say, in a living session."""

from pathlib import Path
from typing import Any

import pytest

from acp_bridge.core.machine import events as ev
from acp_bridge.core.protocol import REQUEST_PERMISSION, SESSION_PROMPT, TOOL_CALL, TOOL_CALL_UPDATE
from acp_bridge.core.wire.jsonrpc import RpcError
from tests.core.session.journals import recorded
from tests.core.session.living import CANCELLED, DONE, Living, first, living
from tests.core.session.memory import ClientEnd, Json
from tests.core.session.played_agent import PlayedAgent
from tests.core.session.test_from_agent import says, told, writes

pytestmark = pytest.mark.usefixtures("no_errors")

NO_WORD = "[acp-bridge] The agent ended the turn without a word."
CALL: Json = {"toolCallId": "t", "title": "rm x", "kind": "execute"}
ONCE: Json = {"optionId": "yes", "name": "Yes", "kind": "allow_once"}
NO: Json = {"optionId": "no", "name": "No", "kind": "reject_once"}


def chunk(content: Any, **more: Any) -> Json:
    return {"sessionUpdate": "agent_message_chunk", "content": content, **more}


def text(said: str, **more: Any) -> Json:
    return {"type": "text", "text": said, **more}


def card(**told: Any) -> Json:
    return {"sessionUpdate": TOOL_CALL, **CALL, **told}


def goes_on(**told: Any) -> Json:
    return {"sessionUpdate": TOOL_CALL_UPDATE, "toolCallId": "t", **told}


async def ended(here: Living, agent: PlayedAgent, result: Any, *said: Json) -> Any:
    """Run a turn of a mute agent, which only says this and answers so; returns the answer."""
    agent.mute = True
    request_id = here.prompt()
    request = await agent.asked(SESSION_PROMPT)
    says(agent, *said)
    agent.answer(request, result)
    return await here.answered(request_id)


async def asks(here: Living, agent: PlayedAgent, *options: Json, **call: Any) -> Json:
    """Let the agent ask in a turn of its own; returns the turn's request."""
    here.prompt()
    request = await agent.asked(SESSION_PROMPT)
    ask_again(agent, *options, **call)
    return request


def ask_again(agent: PlayedAgent, *options: Json, **call: Any) -> None:
    params = {"sessionId": "0", "toolCall": call or CALL, "options": list(options or (ONCE, NO))}
    agent.says({"id": "p", "method": REQUEST_PERMISSION, "params": params})


def question(here: Living) -> Json:
    (found,) = [m for m in here.got if m.get("method") == REQUEST_PERMISSION]
    return found


def answer(here: Living, asked: Json, result: Any) -> None:
    """Let the client answer; a number is the code of an error."""
    if isinstance(result, int):
        here.client.refuses(asked["id"], result)
    else:
        here.client.answers(asked["id"], result)


# --- the end of a turn ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("result", "reason", "word"),
    [
        (None, "end_turn", ""),
        ({}, "end_turn", ""),
        ({"stopReason": None}, "end_turn", ""),
        ({"stopReason": "unknown"}, "end_turn", "unknown"),
        ({"stopReason": "stop"}, "end_turn", "stop"),
        ({"stopReason": 5}, "end_turn", ""),
        ([], "end_turn", ""),
        ("max_tokens", "max_tokens", "max_tokens"),
        ({"stopReason": "maxTokens"}, "max_tokens", "maxTokens"),
        ({"stopReason": "MAX_TURN_REQUESTS"}, "max_turn_requests", "MAX_TURN_REQUESTS"),
        ({"stop_reason": "refusal"}, "refusal", "refusal"),
        ({"stopReason": {"type": "end-turn"}}, "end_turn", "end-turn"),
        ({"stopReason": "end_turn"}, "end_turn", ""),
        ({"stopReason": "refusal"}, "refusal", ""),
    ],
)
async def test_a_turn_ends_with_a_reason_of_version_1_and_without_a_word_it_is_said(
    tmp_path: Path, result: Any, reason: str, word: str
) -> None:
    async with living(tmp_path, first=first()) as here:
        agent = await here.agent()
        more = f" It gave a reason that ACP does not have: `{word}`." if word else ""
        assert (await ended(here, agent, result))["stopReason"] == reason
        assert here.texts() == [NO_WORD + more]
        assert (await ended(here, agent, result, chunk(text("hi"))))["stopReason"] == reason
        assert (await ended(here, agent, result, card()))["stopReason"] == reason
        assert len(here.texts()) == 2


@pytest.mark.parametrize(
    ("result", "said"),
    [
        ({"stopReason": "error", "message": "overloaded"}, "overloaded"),
        ({"stopReason": "error", "error": {"message": "overloaded"}}, "overloaded"),
        ({"stopReason": "Failed", "error": "overloaded"}, "overloaded"),
        ({"stopReason": "error"}, "the agent ended the turn with an error"),
        ({"stopReason": "error", "code": 1}, "the agent ended the turn with an error"),
    ],
)
async def test_an_error_as_the_reason_is_an_error(tmp_path: Path, result: Any, said: str) -> None:
    async with living(tmp_path, first=first()) as here:
        assert (await ended(here, await here.agent(), result))["message"] == said
        assert here.texts() == []


async def test_a_stop_a_repeated_prompt_and_usage_are_no_words_and_a_stop_needs_none(
    tmp_path: Path,
) -> None:
    async with living(tmp_path, first=first()) as here:
        agent = await here.agent()
        echo = {"sessionUpdate": "user_message_chunk", "content": text("mend")}
        usage: Json = {"sessionUpdate": "usage_update", "used": 1, "size": 2}
        await ended(here, agent, DONE, echo, usage)
        assert here.texts() == [NO_WORD]
        request_id = here.prompt()
        request = await agent.asked(SESSION_PROMPT)
        here.session.feed(ev.Cancel())
        agent.answer(request, {"stopReason": "canceled"})
        assert await here.answered(request_id) == CANCELLED
        assert here.texts() == [NO_WORD]


# --- messages -------------------------------------------------------------------------------------


@pytest.mark.hazard("T2.3", "T2.4")
async def test_an_empty_chunk_is_neither_shown_nor_recorded_unless_it_has_another_member(
    tmp_path: Path,
) -> None:
    async with living(tmp_path, first=first()) as here:
        agent = await here.agent()
        kept = [
            chunk(text("", annotations={"x": 1})),
            chunk(text(""), _meta={"x": 1}),
            chunk(text(""), messageId="new"),
            chunk(text("hi"), messageId="new"),
        ]
        says(agent, chunk(text("")), *kept, chunk(text(""), messageId="new"))
        writes(
            agent,
            {
                "method": "session/update",
                "params": {"sessionId": "0", "update": chunk(text("")), "_meta": {"x": 1}},
            },
        )
        assert here.updates() == [*kept, chunk(text(""))]
        # Chunks of one message are one in the journal.
        assert len(await recorded(here.journal)) == 4


@pytest.mark.parametrize(
    ("content", "texts"),
    [
        ("hi", ["hi"]),
        ({"text": "hi"}, ["hi"]),
        ({"type": "text", "content": "hi"}, ["hi"]),
        ({"type": "text", "text": 5}, ["5"]),
        ([text("a"), "b", None, text("")], ["a", "b"]),
        ({"type": "text", "text": None}, []),
        (None, []),
        (5, []),
        ([], []),
    ],
)
async def test_the_text_of_a_message_is_read_in_whatever_form_it_comes(
    tmp_path: Path, content: Any, texts: list[str]
) -> None:
    async with living(tmp_path, first=first()) as here:
        says(await here.agent(), chunk(content))
        assert here.updates() == [chunk(text(each)) for each in texts]


@pytest.mark.hazard("X1.6")
async def test_of_version_2_s_words_of_an_agent_of_version_1_only_the_texts_are_passed_on(
    tmp_path: Path,
) -> None:
    async with living(tmp_path, first=first()) as here:
        says(
            await here.agent(),
            {"sessionUpdate": "replay_complete"},
            {"sessionUpdate": "state_update", "state": "idle"},
            {"sessionUpdate": "agent_message", "messageId": "m", "content": [text("a"), text("b")]},
            {"sessionUpdate": "terminal_output_chunk", "terminalId": "x", "data": "aGk="},
            {"sessionUpdate": "notice", "title": "c", "severity": "info"},
            {"sessionUpdate": "_acp_bridge_said", "said": {}},
            {"sessionUpdate": "_acp_bridge_x"},
        )
        assert here.updates() == [
            chunk(text("a"), messageId="m"),
            chunk(text("b"), messageId="m"),
            chunk(text("c")),
        ]


@pytest.mark.hazard("V6.8")
async def test_marks_like_the_bridge_s_own_are_dropped_wherever_an_agent_puts_them(
    tmp_path: Path,
) -> None:
    async with living(tmp_path, first=first()) as here:
        agent = await here.agent()
        own = {"acp_bridge": {"notice": True}}
        says(agent, chunk(text("a"), _meta={**own, "x": 1}), card(_meta=own))
        assert here.updates() == [chunk(text("a"), _meta={"x": 1}), card()]
        answer = await ended(here, agent, {**DONE, "_meta": own}, chunk(text("b")))
        assert answer == DONE


# --- tool calls -----------------------------------------------------------------------------------


@pytest.mark.hazard("C16.9")
async def test_an_update_for_a_card_that_was_never_opened_opens_it(tmp_path: Path) -> None:
    async with living(tmp_path, first=first()) as here:
        says(await here.agent(), goes_on(content=[]), goes_on(status="completed", title="T"))
        opened = {"title": "t", "status": "pending", "content": []}
        assert here.updates() == [
            {"sessionUpdate": TOOL_CALL, "toolCallId": "t", **opened},
            goes_on(status="completed", title="T"),
        ]


@pytest.mark.hazard("C16.10", "C16.11", "C16.12")
@pytest.mark.parametrize(
    ("again", "new"),
    [
        ({"status": "pending"}, True),
        ({"status": "in_progress"}, True),
        ({"title": "rm y"}, True),
        ({"kind": "read", "status": "completed"}, True),
        ({}, False),
        ({"status": "completed", "rawOutput": 1}, False),
        ({"status": "failed"}, False),
    ],
)
async def test_an_id_used_again_in_a_turn_is_a_new_card_if_it_describes_another_call(
    tmp_path: Path, again: Json, new: bool
) -> None:
    async with living(tmp_path, first=first()) as here:
        says(await here.agent(), card(), goes_on(status="completed"), card(**again))
        last = here.updates()[-1]
        left = {name: each for name, each in again.items() if name != "status"}
        if new:
            assert last == {**card(**again), "toolCallId": "t~2"}
        else:
            assert last == {**card(**left), "sessionUpdate": TOOL_CALL_UPDATE}


@pytest.mark.parametrize(
    ("odd", "status"),
    [
        ("cancelled", "failed"),
        ("error", "failed"),
        ("inProgress", "in_progress"),
        ("RUNNING", "in_progress"),
        ("success", "completed"),
        ("queued", "pending"),
        ("nobody's", None),
        (5, None),
    ],
)
async def test_a_status_that_version_1_does_not_have_becomes_one_that_it_has(
    tmp_path: Path, odd: Any, status: str | None
) -> None:
    async with living(tmp_path, first=first()) as here:
        says(await here.agent(), card(), goes_on(status=odd, rawOutput=1))
        assert here.updates()[1] == goes_on(rawOutput=1, **({"status": status} if status else {}))


async def test_what_a_card_shows_is_read_in_whatever_form_it_comes(tmp_path: Path) -> None:
    async with living(tmp_path, first=first()) as here:
        odd = {
            "status": None,
            "kind": 5,
            "content": "hi",
            "locations": ["/x", {"path": "/y"}],
        }
        says(await here.agent(), card(**odd), goes_on(content=[text("a"), None]))
        says(await here.agent(), {**goes_on(), "toolCallId": 7}, {**goes_on(), "toolCallId": None})
        plain = {name: each for name, each in card().items() if name != "kind"}
        hi, a = ({"type": "content", "content": text(each)} for each in ("hi", "a"))
        opened, more, seven = here.updates()
        assert opened == {**plain, "content": [hi], "locations": [{"path": "/x"}, {"path": "/y"}]}
        assert more == goes_on(content=[a])
        assert seven["toolCallId"] == "7"


async def test_the_entries_of_a_plan_have_a_status_and_a_priority_of_version_1(
    tmp_path: Path,
) -> None:
    async with living(tmp_path, first=first()) as here:
        good = {"content": "a", "status": "completed", "priority": "low"}
        odd = [good, {"content": "b", "status": "done"}, "c", None, {"content": "d", "status": "x"}]
        says(await here.agent(), {"sessionUpdate": "plan", "entries": odd})
        (plan,) = here.updates()
        told = [(each["content"], each["status"], each["priority"]) for each in plan["entries"]]
        assert told == [
            ("a", "completed", "low"),
            ("b", "completed", "medium"),
            ("c", "pending", "medium"),
            ("d", "pending", "medium"),
        ]


# --- permissions ----------------------------------------------------------------------------------


@pytest.mark.hazard("C16.9")
async def test_the_card_of_a_call_that_only_a_permission_names_is_opened_before_the_question(
    tmp_path: Path,
) -> None:
    async with living(tmp_path, first=first()) as here:
        await asks(here, await here.agent())
        opened, asked = here.got[-2:]
        assert opened["params"]["update"] == {**card(), "status": "pending"}
        assert asked["method"] == REQUEST_PERMISSION
        answer(here, asked, {"outcome": {"outcome": "selected", "optionId": "yes"}})
        assert here.got[-1]["params"]["_meta"]["acp_bridge"]["decided"]["decision"] == "allow"


@pytest.mark.hazard("C16.7", "C16.8", "V3")
@pytest.mark.parametrize("result", [RpcError.received(-32603, "x"), {"stopReason": "error"}])
async def test_a_turn_that_fails_withdraws_its_question_and_its_card_has_failed(
    tmp_path: Path, result: Any
) -> None:
    agent, other = first(), ClientEnd()
    async with living(tmp_path, first=agent) as here:
        here.session.transcript.attach(other.client)
        request = await asks(here, agent)
        agent.answer(request, result)
        assert told(agent) == [{"outcome": {"outcome": "cancelled"}}]
        for end in (here.client, other):
            got = end.sent.messages
            (asked,) = [m for m in got if m.get("method") == REQUEST_PERMISSION]
            (back,) = [m for m in got if m.get("method") == "$/cancel_request"]
            assert back["params"] == {"requestId": asked["id"]}
            end.answers(asked["id"], selects("yes"))  # too late
        assert len(told(agent)) == 1
        assert [each.get("status") for each in here.updates() if "toolCallId" in each][
            -1
        ] == "failed"
        replayed = [each["update"] for each in await recorded(here.journal)]
        assert goes_on(status="failed") in replayed


async def test_a_turn_that_fails_leaves_a_request_open_that_asks_no_person(tmp_path: Path) -> None:
    async with living(tmp_path, first=first()) as here:
        agent = await here.agent()
        asked = here.prompt()
        request = await agent.asked(SESSION_PROMPT)
        agent.says({"id": "p", "method": "_x/y", "params": {}})
        (open_,) = [each for each in here.got if each.get("method") == "_x/y"]
        agent.answer(request, RpcError(-32603, "no"))
        await here.answered(asked)
        assert told(agent) == []
        answer(here, open_, {"z": 1})
        assert told(agent) == [{"z": 1}]


@pytest.mark.parametrize("request_id", ["p", 7])
async def test_an_agent_that_cancels_its_own_question_is_answered_at_once(
    tmp_path: Path, request_id: Any
) -> None:
    async with living(tmp_path, first=first()) as here:
        agent = await here.agent()
        await asks(here, agent)
        agent.says({"method": "$/cancel_request", "params": {"requestId": "p"}})
        assert told(agent) == [-32800]
        assert here.got[-2]["method"] == "$/cancel_request"
        answer(here, question(here), {"outcome": {"outcome": "selected", "optionId": "yes"}})
        assert told(agent) == [-32800]


@pytest.mark.hazard("X1.5", "C18")
async def test_kinds_of_options_that_version_1_does_not_have_are_left_out(tmp_path: Path) -> None:
    fifth = {"optionId": "ever", "name": "For ever", "kind": "allow_persistent"}
    odd: list[Any] = [{**ONCE, "optionId": 5}, {"optionId": "n", "kind": "reject_once"}]
    async with living(tmp_path, first=first()) as here:
        agent = await here.agent()
        await asks(here, agent, fifth, ONCE, NO, *odd, None)  # type: ignore[arg-type]
        named = {"optionId": "n", "name": "n", "kind": "reject_once"}
        assert question(here)["params"]["options"] == [ONCE, NO, named]
        answer(here, question(here), selects("yes"))
        ask_again(agent, fifth)
        assert told(agent)[-1] == {"outcome": {"outcome": "cancelled"}}
        assert "no client here knows" in here.texts()[-1]


@pytest.mark.hazard("C18")
async def test_options_that_allow_and_reject_under_one_id_are_left_out(tmp_path: Path) -> None:
    always = {"optionId": "yes", "name": "Always", "kind": "allow_always"}
    async with living(tmp_path, first=first()) as here:
        agent = await here.agent()
        await asks(here, agent, ONCE, always, NO, {**NO, "optionId": "no", "name": "Never"})
        options = question(here)["params"]["options"]
        assert [each["optionId"] for each in options] == ["yes", "yes", "no", "no"]
        answer(here, question(here), selects("no"))
        ask_again(agent, ONCE, {**NO, "optionId": "yes"})
        assert told(agent)[-1] == {"outcome": {"outcome": "cancelled"}}
        assert "no client here knows" in here.texts()[-1]


async def test_a_question_without_options_has_an_empty_list_and_one_without_an_id_is_none(
    tmp_path: Path,
) -> None:
    async with living(tmp_path, first=first()) as here:
        agent = await here.agent()
        here.prompt()
        await agent.asked(SESSION_PROMPT)
        agent.says({"method": REQUEST_PERMISSION, "params": {"sessionId": "0", "toolCall": CALL}})
        assert [m for m in here.got if m.get("method") == REQUEST_PERMISSION] == []
        params = {"sessionId": "0", "toolCall": CALL}
        agent.says({"id": "p", "method": REQUEST_PERMISSION, "params": params})
        assert question(here)["params"]["options"] == []


def selects(option: str, **more: Any) -> Json:
    return {"outcome": {"outcome": "selected", "optionId": option}, **more}


@pytest.mark.hazard("C18.3")
@pytest.mark.parametrize(
    "flat",
    [
        {"outcome": "selected", "optionId": "yes"},
        {"optionId": "yes"},
        {"outcome": {"optionId": "yes"}},
        {"outcome": {"type": "selected", "optionId": "yes"}},
        {"outcome": {"selected": {"optionId": "yes"}}},
        {"outcome": "Selected", "option_id": "yes"},
        {"selected": "yes"},
        {"optionId": "yes", "selected": True, "cancelled": False, "error": None},
        selects("yes", optionId="yes"),
    ],
)
async def test_a_flat_answer_that_names_one_offered_option_chooses_it(
    tmp_path: Path, flat: Json
) -> None:
    async with living(tmp_path, first=first()) as here:
        agent = await here.agent()
        await asks(here, agent)
        answer(here, question(here), flat)
        (given,) = told(agent)
        assert given["outcome"] == selects("yes")["outcome"]
        decided = here.got[-1]["params"]["_meta"]["acp_bridge"]["decided"]
        assert decided == {"decision": "allow", "by": "client", "option": "allow_once"}


@pytest.mark.hazard("C18.3", "V3.4")
@pytest.mark.parametrize(
    "odd",
    [
        {},
        None,
        [],
        "yes",
        {"outcome": "yes"},
        {"outcome": "cancelled", "optionId": "yes"},
        {"outcome": {"outcome": "cancelled"}, "optionId": "yes"},
        {"outcome": {"outcome": "cancelled", "optionId": "yes"}},
        {"outcome": "rejected", "optionId": "yes"},
        {"outcome": "selected", "optionId": "other"},
        {"outcome": "selected", "optionId": ["yes"]},
        {"outcome": "selected", "optionId": "yes", "option_id": "no"},
        {"outcome": "selected", "optionId": "yes", "cancelled": True},
        {"optionId": "yes", "selected": False},
        {"optionId": "yes", "decision": "deny"},
        {"outcome": {"selected": {"optionId": "yes"}, "reason": "no"}},
        {"optionId": "YES"},
        selects("yes", optionId="no"),
        selects("yes", error="denied"),
        {"outcome": {"outcome": "selected", "optionId": "yes", "cancelled": True}},
        selects("yes", isCancelled=True),
        selects("yes", approved=False),
        selects("yes", kind="reject_once"),
        {"outcome": {"outcome": "selected", "optionId": "yes", "action": "Cancel"}},
        {"outcome": {"outcome": "cancelled", "option_id": "yes", "x": 1}, "selected": "yes"},
        -32602,
        -32601,
    ],
)
async def test_an_answer_that_is_not_understood_allows_nothing_and_is_told(
    tmp_path: Path, odd: Any
) -> None:
    async with living(tmp_path, first=first()) as here:
        agent = await here.agent()
        await asks(here, agent)
        answer(here, question(here), odd)
        (given,) = told(agent)
        cancels = isinstance(odd, dict) and "cancelled" in str(odd.get("outcome"))
        cancels = cancels and odd["outcome"] != {**selects("yes")["outcome"], "cancelled": True}
        if isinstance(odd, int):
            assert given == odd
        else:
            said = given["outcome"]
            assert "yes" not in str(given)  # an agent may look at the option alone
            assert said["outcome"] == "cancelled" or said == selects("no")["outcome"]
            assert cancels or said in ({"outcome": "cancelled"}, selects("no")["outcome"])
        if not cancels:
            assert [each for each in here.texts() if "nothing was allowed" in each]
