"""A chat that comes back on another connection, to bridges that tests play."""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest

from acp_bridge.core.protocol import Json
from acp_bridge.core.wire.jsonrpc import Ok, RpcError
from acp_bridge.sharing.bridge_client.connection import Connection
from acp_bridge.sharing.bridge_client.listener import Listener
from acp_bridge.terminal.chat import opening
from acp_bridge.terminal.chat.main import Plan, _Running
from tests.sharing.bridge_client.fake_bridge import FakeBridge, connection_to
from tests.support.waiting import until
from tests.terminal.shared.test_conversation import SESSION, answer, texts

pytestmark = pytest.mark.hazard("N2")

AGAIN = "the connection has ended: connecting again"
ALLOW = {"optionId": "once", "name": "Allow", "kind": "allow_once"}


def bridge(cursor: str | None = None, **answers: Any) -> FakeBridge:
    """A bridge whose replay ends at this cursor."""
    own = {"_meta": {"acp_bridge": {"cursor": cursor}}} if cursor else {}
    return FakeBridge(**{"_acp_bridge/attach": own, **answers})


class Chat:
    """A chat that attaches to one bridge after the other."""

    def __init__(self, folder: Path, bridges: tuple[FakeBridge | OSError, ...]) -> None:
        self._bridges = iter(bridges)
        self.plan = Plan(
            self._connect,
            opening.attach(SESSION),
            folder,
            folder,
            folder,
            str,
            str,
            own_bridge=False,
            come_again=lambda cursor: opening.attach(SESSION, cursor),
        )
        self.running = _Running(self.plan)
        self.talk = self.running.conversation

    @asynccontextmanager
    async def _connect(
        self, listener: Listener, *, tell: Callable[[str], None]
    ) -> AsyncIterator[Connection]:
        follows = next(self._bridges)
        if isinstance(follows, OSError):
            raise follows
        async with connection_to(follows, listener) as connection:
            yield connection

    async def run(self) -> None:
        async with self._connect(self.talk, tell=self.running.log) as connection:
            await self.running._open(connection)
            await self.running._watch(connection)
            self.running._sessions._send.close()
            self.running._sessions._asked.close()


@asynccontextmanager
async def chat(folder: Path, *bridges: FakeBridge | OSError) -> AsyncIterator[Chat]:
    """A chat that runs until the bridges are over."""
    there = Chat(folder, (*bridges, ConnectionRefusedError()))
    with anyio.fail_after(5):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(there.run)
            yield there
            for each in bridges:
                if isinstance(each, FakeBridge):
                    await each.asked("initialize")
                    each.close()


def able(each: FakeBridge) -> Json:
    own: Json = each.calls[0].params["clientCapabilities"]["_meta"]["acp_bridge"]
    return own


async def attached(each: FakeBridge) -> Json:
    """The `_meta.acp_bridge` of the request with which a chat attaches."""
    params = (await each.asked("_acp_bridge/attach")).params
    own: Json = params.get("_meta", {}).get("acp_bridge", {})
    return own


@pytest.mark.hazard("N2.2")
async def test_it_has_one_name_on_all_connections_and_goes_on_at_its_cursor(tmp_path: Path) -> None:
    first, second, third = bridge("c1"), bridge("c2"), bridge("c3")
    async with chat(tmp_path, first, second, third) as there:
        assert await attached(first) == {}
        await until(lambda: there.talk.session_id)
        first.peer.notify("_acp_bridge/let_go", {"reason": "attach again"})
        first.close()
        assert await attached(second) == {"after": "c1"}
        second.peer.notify("session/update", {**said("hel"), **own(cursor="c2")})
        await until(lambda: there.talk.back.cursor == "c2")
        second.close()
        assert await attached(third) == {"after": "c2"}
        third.peer.notify("session/update", said("lo"))
        assert len({able(each)["client"] for each in (first, second, third)}) == 1
        assert able(third)["cursors"] is True
    shown = texts(there.talk)[1:]
    assert shown[:2] == [AGAIN, AGAIN]
    assert "hello" in shown
    assert "attach again" not in shown


async def test_what_is_read_right_behind_the_answer_counts(tmp_path: Path) -> None:
    first, second = bridge(**{"_acp_bridge/attach": None}), bridge("c3")
    async with chat(tmp_path, first, second) as there:
        asked = await first.asked("_acp_bridge/attach")
        lines: list[bytes] = []
        first.peer.send_through(lines.append)
        first.peer.answer(asked.id, own(cursor="c1"))
        first.peer.notify("session/update", {**said("x"), **own(cursor="c2")})
        first._outgoing.write(b"".join(lines))
        await until(lambda: there.talk.session_id)
        first.close()
        assert await attached(second) == {"after": "c2"}


def said(text: str) -> Json:
    content = {"type": "text", "text": text}
    update = {"sessionUpdate": "agent_message_chunk", "content": content, "messageId": "m"}
    return {"sessionId": SESSION, "update": update}


def own(**members: Any) -> Json:
    return {"_meta": {"acp_bridge": members}}


@pytest.mark.hazard("N2.15")
async def test_where_the_bridge_tells_no_cursor_or_refuses_it_the_session_is_shown_anew(
    tmp_path: Path,
) -> None:
    def refuses(params: Json) -> Json | RpcError:
        after = params.get("_meta", {}).get("acp_bridge", {}).get("after")
        return RpcError.received(-32602, "no", {"reason": "cursor"}) if after else {}

    first, second, third = bridge(), bridge("c"), FakeBridge(**{"_acp_bridge/attach": refuses})
    async with chat(tmp_path, first, second, third) as there:
        await until(lambda: there.talk.session_id)
        first.peer.notify("session/update", said("whole"))
        await until(lambda: there.talk.transcript.tail())
        first.close()
        assert await attached(second) == {}
        await until(lambda: there.talk.back.cursor)
        second.close()
        await third.until(lambda: len(third.calls) == 3)
        third.peer.notify("session/update", said("whole"))
        await until(lambda: there.talk._connection)
    shown = texts(there.talk)
    assert shown.count("the session is shown anew") == 2
    assert shown.count("whole") == 2


async def test_connections_that_end_without_a_word_are_tried_five_times(tmp_path: Path) -> None:
    bridges = [bridge() for _ in range(6)]
    async with chat(tmp_path, *bridges) as there:
        for each in bridges:
            await attached(each)
            each.close()
    shown = texts(there.talk)
    assert (shown.count(AGAIN), shown[-1]) == (5, "the bridge has ended")


async def test_a_bridge_that_is_gone_is_not_waited_for_and_a_busy_one_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("acp_bridge.terminal.chat.main._PAUSE", 0)
    first, second = bridge("c"), bridge("c")
    async with chat(tmp_path, first, BlockingIOError(), second) as there:
        await attached(first)
        first.close()
        await attached(second)
    assert texts(there.talk)[-1] == "the bridge has ended"


@pytest.mark.hazard("N2.16")
async def test_a_prompt_is_sent_again_under_its_key_and_a_command_is_not(tmp_path: Path) -> None:
    first, second = bridge("c"), bridge("c")
    async with chat(tmp_path, first, second) as there:
        await until(lambda: there.talk.session_id)
        for text in ("/queue pause", "taken", "work"):
            there.talk.enter(text)
        there.talk.enter("joins", steers=True)
        await first.until(lambda: len(first.calls) == 6)
        there.talk.prompts.unanswered[1].taken_back = True
        first.close()
        await second.until(lambda: second.notified and len(second.calls) == 5)
        again = second.calls[2:]
        before = {each.params["prompt"][0]["text"]: each.params for each in first.calls[2:]}
        assert [each.params for each in again] == list(before.values())[1:]
        assert all(each.params["_meta"]["acp_bridge"]["promptKey"] for each in again)
        assert "_meta" not in before["/queue pause"]
        assert second.notified == [("$/cancel_request", {"requestId": again[0].id})]
        second.peer.answer(again[1].id, {"stopReason": "end_turn"})
        await until(lambda: len(there.talk.prompts.unanswered) == 2)
    shown = texts(there.talk)
    assert "perhaps not done: /queue pause" in shown
    assert (shown.count("work"), shown.count("joins")) == (1, 1)


async def test_words_of_its_own_are_shown_once_whether_it_or_the_bridge_shows_them(
    tmp_path: Path,
) -> None:
    first, second = bridge("c"), bridge("c")
    async with chat(tmp_path, first, second) as there:
        await until(lambda: there.talk.session_id)
        for text in ("one", "two", "three"):
            there.talk.enter(text)
        await first.until(lambda: len(first.calls) == 5)
        told = {"sessionId": SESSION, "requestId": first.calls[2].id, "promptId": "1"}
        first.peer.notify("_acp_bridge/accepted", told)
        await until(lambda: there.talk.prompts.unanswered[0].prompt_id)
        first.close()
        await attached(second)
        for number, text in enumerate(("one", "two", "three"), start=1):
            update = said(text)
            update["update"] |= {"sessionUpdate": "user_message_chunk", "messageId": text}
            second.peer.notify("session/update", {**update, **own(promptId=str(number))})
        await second.until(lambda: len(second.calls) == 5)
        for each in second.calls[2:]:
            second.peer.answer(each.id, {"stopReason": "end_turn"})
        await until(lambda: not there.talk.prompts.unanswered)
    shown = texts(there.talk)
    assert [shown.count(each) for each in ("one", "two", "three")] == [1, 1, 1]


@pytest.mark.parametrize("anew", [False, True])
async def test_the_words_of_an_answered_prompt_are_not_shown_again_but_in_a_session_shown_anew(
    tmp_path: Path, anew: bool
) -> None:
    first, second = bridge(), bridge("c")
    async with chat(tmp_path, first, second) as there:
        await until(lambda: there.talk.session_id)
        there.talk.enter("one")
        there.talk.enter("two")
        await first.until(lambda: len(first.calls) == 4)
        for number, call in enumerate(first.calls[2:], start=1):
            told = {"sessionId": SESSION, "requestId": call.id, "promptId": str(number)}
            first.peer.notify("_acp_bridge/accepted", told)
        first.peer.answer(first.calls[2].id, {"stopReason": "end_turn"})
        await until(lambda: there.talk.prompts.begun and there.talk.prompts.begun.text == "two")
        if not anew:
            first.peer.notify("session/update", {**said("x"), **own(cursor="c")})
            await until(lambda: there.talk.back.cursor)
        first.close()
        await attached(second)
        for number, text in enumerate(("one", "two"), start=1):
            update = said(text)
            update["update"] |= {"sessionUpdate": "user_message_chunk", "messageId": text}
            second.peer.notify("session/update", {**update, **own(promptId=str(number))})
        await second.until(lambda: len(second.calls) == 3)
        second.peer.answer(second.calls[2].id, {"stopReason": "end_turn"})
        await until(lambda: not there.talk.prompts.unanswered)
    shown = texts(there.talk)
    assert [shown.count(each) for each in ("one", "two")] == [1 + anew, 1 + anew]


async def test_a_question_that_is_asked_again_is_printed_once_and_answered_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def asks(each: FakeBridge, question: str) -> None:
        call = {"toolCallId": "t", "title": "Edit x"}
        params = {"sessionId": SESSION, "toolCall": call, "options": [ALLOW]}
        each.ask("session/request_permission", {**params, **own(question=question)})

    first, second = bridge("c"), bridge("c")
    async with chat(tmp_path, first, second) as there:
        await until(lambda: there.talk.session_id)
        asks(first, "q")
        await until(lambda: there.talk.questions.shown)
        printed = len(there.talk.unprinted._blocks)
        first.close()
        await attached(second)
        assert there.talk.questions.shown is None
        asks(second, "q")
        await until(lambda: there.talk.questions.shown)
        assert len(there.talk.unprinted._blocks) == printed + 1  # that it connects again
        answer(there.talk, monkeypatch)
        await second.until(lambda: second.answered)
        (given,) = second.answered
        assert isinstance(given, Ok)
        assert given.result["outcome"]["optionId"] == "once"


async def test_without_a_connection_nothing_is_stopped_and_what_is_entered_is_sent_later(
    tmp_path: Path,
) -> None:
    first, second = bridge("c"), bridge("c", **{"_acp_bridge/attach": None})
    async with chat(tmp_path, first, second) as there:
        await until(lambda: there.talk.session_id)
        first.close()
        await attached(second)
        there.talk.stop()
        there.talk.enter("later")
        assert there.talk.take_back() == "later"
        there.talk.enter("work")
        second.peer.answer(second.calls[1].id, {})
        assert (await second.asked("session/prompt")).params["prompt"][0]["text"] == "work"
    assert "not connected: nothing was stopped" in texts(there.talk)
