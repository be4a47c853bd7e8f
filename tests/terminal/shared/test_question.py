"""`approve` and `deny`: an answer is for the question that was shown, and for no other."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import anyio
import pytest

from acp_bridge.core.protocol import Json
from acp_bridge.core.wire.jsonrpc import Ok
from acp_bridge.sharing.bridge_client.connection import Connection
from acp_bridge.sharing.bridge_client.tasks import beside
from acp_bridge.terminal.shared.question import (
    NotAnswered,
    Question,
    option_for,
    shown,
    summary_of,
)
from tests.sharing.bridge_client.fake_bridge import FakeBridge, connection_to

OPTIONS = [
    {"optionId": "a", "name": "Always", "kind": "allow_always"},
    {"optionId": "y", "name": "Yes\x1b", "kind": "allow_once"},
    {"optionId": "n", "name": "No", "kind": "reject_once"},
]


def permission(title: str = "rm x") -> Json:
    card = {"toolCallId": "t", "title": title, "kind": "execute"}
    return {"sessionId": "s", "toolCall": card, "options": OPTIONS}


#: the request that attaches to the session.
JOIN: tuple[str, Json] = ("_acp_bridge/attach", {"sessionId": "s", "history": "pending"})


@asynccontextmanager
async def asked(*titles: str) -> AsyncIterator[tuple[FakeBridge, Connection, Question, list[int]]]:
    """A question that is shown: the bridge, the ids of its requests, and who answers."""
    ids: list[int] = []

    def attach(params: Json) -> Json:
        assert params == {"sessionId": "s", "history": "pending"}
        ids.extend(bridge.ask("session/request_permission", permission(each)) for each in titles)
        return {}

    live: Json = {"sessions": []}
    bridge = FakeBridge(**{"_acp_bridge/attach": attach, "_acp_bridge/live": live})
    question = Question()
    with anyio.fail_after(5):
        async with connection_to(bridge, question) as connection:
            assert (await question.ask(connection, JOIN))["toolCall"]["title"] == titles[0]
            yield bridge, connection, question, ids


async def yes() -> Json:
    return OPTIONS[1]


async def test_what_is_shown_is_answered() -> None:
    async with asked("rm x") as (bridge, connection, question, _):
        assert await question.answer(connection, yes) == OPTIONS[1]
        assert bridge.answered == [Ok({"outcome": {"outcome": "selected", "optionId": "y"}})]


async def test_of_several_questions_only_the_one_that_is_shown_is_answered() -> None:
    async with asked("first", "second") as (bridge, connection, question, _):
        await question.answer(connection, yes)
        assert len(bridge.answered) == 1
        assert [request.open for request in question.requests] == [False, True]


async def test_a_question_that_was_settled_before_it_could_be_shown_is_passed_over() -> None:
    ids: list[int] = []

    def attach(params: Json) -> Json:
        ids.extend(bridge.ask("session/request_permission", permission(n)) for n in ("1", "2"))
        bridge.peer.cancel(ids[0])
        return {}

    live: Json = {"sessions": []}
    bridge = FakeBridge(**{"_acp_bridge/attach": attach, "_acp_bridge/live": live})
    with anyio.fail_after(5):
        async with connection_to(bridge, question := Question()) as connection:
            assert (await question.ask(connection, JOIN))["toolCall"]["title"] == "2"
            await question.answer(connection, yes)
            assert [request.open for request in question.requests] == [False, False]
            assert isinstance(bridge.answered[-1], Ok)


async def test_a_question_that_is_settled_elsewhere_while_it_is_shown_is_not_answered() -> None:
    async with asked("rm x") as (bridge, connection, question, ids):

        async def slow() -> Json:
            bridge.peer.cancel(ids[0])
            bridge.ask("session/request_permission", permission("another"))
            await anyio.sleep_forever()
            raise AssertionError

        with pytest.raises(NotAnswered, match="settled elsewhere"):
            await question.answer(connection, slow)
        assert [request.open for request in question.requests] == [False, True]
        assert not [answer for answer in bridge.answered if isinstance(answer, Ok)]


@pytest.mark.hazard("V9.8")
async def test_a_question_that_the_agent_changes_while_it_is_shown_is_not_answered() -> None:
    async with asked("List files") as (bridge, connection, question, ids):

        async def too_late() -> Json:
            bridge.peer.notify("$/cancel_request", {"requestId": ids[0]})
            bridge.ask("session/request_permission", permission("List files"))
            await anyio.sleep_forever()
            raise AssertionError

        with pytest.raises(NotAnswered, match="or the agent has changed it: nothing was answered"):
            await question.answer(connection, too_late)
        assert not [answer for answer in bridge.answered if isinstance(answer, Ok)]
    own = bridge.calls[0].params["clientCapabilities"]["_meta"]["acp_bridge"]
    assert own["wholeCalls"] is True


async def test_an_answer_that_comes_too_late_is_said_to_be_none() -> None:
    async with asked("rm x") as (bridge, connection, question, ids):

        def live(params: Json) -> Json:
            # It was on its way when the answer was given.
            bridge.peer.notify("$/cancel_request", {"requestId": ids[0]})
            return {"sessions": []}

        bridge.answers["_acp_bridge/live"] = live
        with pytest.raises(NotAnswered, match="settled elsewhere"):
            await question.answer(connection, yes)


async def test_a_bridge_that_ends_meanwhile_has_settled_it() -> None:
    async with asked("rm x") as (bridge, connection, question, _):

        async def slow() -> Json:
            bridge.close()
            await anyio.sleep_forever()
            raise AssertionError

        with pytest.raises(NotAnswered, match="settled elsewhere"):
            await question.answer(connection, slow)


async def test_no_answer_leaves_the_question_open() -> None:
    async with asked("rm x") as (bridge, connection, question, _):

        async def no() -> Json:
            raise NotAnswered("no")

        with pytest.raises(NotAnswered, match="no"):
            await question.answer(connection, no)
        assert question.requests[0].open
        assert bridge.answered == []


async def test_a_session_that_ends_before_it_asks_is_told() -> None:
    bridge, question = FakeBridge(), Question()

    async def end() -> None:
        call = await bridge.asked("_acp_bridge/attach")
        bridge.peer.answer(call.id, {})
        bridge.close()

    with anyio.fail_after(5):
        async with connection_to(bridge, question) as connection, beside() as tasks:
            tasks.start_soon(end)
            with pytest.raises(NotAnswered, match="no permission is asked"):
                await question.ask(connection, JOIN)


async def test_other_questions_are_left_to_others() -> None:
    async with asked("rm x") as (bridge, _, question, _):
        bridge.ask("elicitation/create", {"sessionId": "s"})
        await bridge.until(lambda: bridge.answered)
        answer: Any = bridge.answered[0]
        assert answer.error.code == -32601
        assert len(question.requests) == 1


@pytest.mark.parametrize(
    ("allow", "given", "chosen"),
    [
        (True, None, "y"),
        (False, None, "n"),
        (True, "a", "a"),
        (True, "allow_always", "a"),
        (True, "Always", "a"),
        (False, "No", "n"),
    ],
)
def test_an_option_is_chosen_by_id_kind_or_name(
    allow: bool, given: str | None, chosen: str
) -> None:
    assert option_for(permission(), allow=allow, given=given)["optionId"] == chosen


@pytest.mark.parametrize(
    ("allow", "given"), [(True, "n"), (True, "reject_once"), (False, "y"), (True, "x"), (True, "")]
)
def test_an_option_that_is_not_offered_or_says_the_opposite_is_refused(
    allow: bool, given: str
) -> None:
    with pytest.raises(NotAnswered, match="offered: "):
        option_for(permission(), allow=allow, given=given)


def test_without_an_option_for_once_nothing_is_chosen() -> None:
    always = {"options": OPTIONS[:1]}
    with pytest.raises(NotAnswered, match="offered: a"):
        option_for(always, allow=True, given=None)
    with pytest.raises(NotAnswered, match="no option that denies"):
        option_for(always, allow=False, given=None)


@pytest.mark.hazard("V9.3")
def test_a_long_command_and_many_paths_are_shown_whole_and_before_anything_else() -> None:
    command = "\n".join(f"echo {n}\x1b" for n in range(2000))
    params = permission("List files")
    places = [{"path": f"/p/{n}"} for n in range(300)]
    content = [{"type": "content", "content": {"type": "text", "text": "harmless"}}]
    params["toolCall"] |= {"rawInput": {"command": command}, "locations": places}
    text = shown({**params, "toolCall": {**params["toolCall"], "content": content}})
    for n in range(2000):
        assert f"  echo {n}\\x1b\n" in text
    assert "paths (300):" in text
    assert all(f"  /p/{n}\n" in text for n in range(300))
    assert text.index("echo 0") < text.index("/p/0") < text.index("harmless")


def test_what_is_asked_is_shown_whole_and_harmless() -> None:
    params = permission("rm \x1b[2J -rf")
    diff = {"type": "diff", "path": "a\x07", "oldText": "x", "newText": "\x1bz"}
    params["toolCall"]["content"] = [diff]
    text = shown(params)
    assert "`rm \\x1b[2J -rf` (execute)" in text
    assert "+\\x1bz" in text
    assert text.endswith("  --option n: No (reject_once)")
    assert not set("\x1b\x07") & set(text)
    assert summary_of({}) == "a tool call without a title (nothing but this title is known)"
