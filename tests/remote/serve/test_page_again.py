"""A page that comes back to a session: it is sent what is new, and nothing of it is missing."""

import json
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import anyio
import pytest

from acp_bridge.core.protocol import Json
from acp_bridge.remote.page import shown as shown_module
from acp_bridge.remote.page.have import Have
from acp_bridge.remote.page.shown import SessionShown
from tests.core.bridge.remote import RemoteBench, remote_bench
from tests.core.sessions.agent import Agent, Process, until
from tests.page_not_ours.talking import Talking
from tests.remote.serve.page_bench import KnownLogins, Page, page

SINGLE, BLOCKS = 32, 64


class Document:
    """The pieces of a page, and their digests, as place.js keeps them."""

    def __init__(self) -> None:
        self.html: dict[int, str] = {}
        self.digests: dict[int, str] = {}
        self.earlier = ""
        self.bytes = 0

    def take(self, told: Iterable[Json]) -> None:
        for each in told:
            self.bytes += len(json.dumps(each))
            match each:
                case {"put": "pieces", "html": html}:
                    self.html, self.digests = _pieces(html), {}
                case {"put": "earlier", "html": html}:
                    self.earlier = html
                case {"before": "pieces", "html": html}:
                    self.html = {**_pieces(html), **self.html}
                case {"add": "pieces", "html": html}:
                    self.html |= _pieces(html)
                case {"append": at, "html": html} | {"put": at, "html": html} if number(at):
                    part = "said" if "append" in each else "rest"
                    self.html[number(at)] = _changed(self.html[number(at)], part, html)
                case {"range": [first, last]}:
                    self.html = {n: h for n, h in self.html.items() if first <= n <= last}
                    self.digests = {n: d for n, d in self.digests.items() if first <= n <= last}

            self.digests |= {int(n): digest for n, digest in each.get("digests", {}).items()}

    def have(self, session: str, **more: Any) -> Json:
        """What the page says that it has."""
        numbers = sorted(self.digests)
        rest, single = numbers[:-SINGLE], numbers[-SINGLE:]
        step = SINGLE
        while len(rest) > step * (BLOCKS - 1):
            step *= 2
        blocks: dict[int, int] = {}
        for each in rest:
            blocks[each // step] = blocks.get(each // step, 0) ^ int(self.digests[each], 16)
        return {
            "session": session,
            "first": numbers[0],
            "last": numbers[-1],
            "step": step,
            "blocks": {str(at): f"{block:012x}" for at, block in blocks.items()},
            "single": {str(each): self.digests[each] for each in single},
            **more,
        }


def number(at: str) -> int:
    found = re.match(r"p(\d+)(-|$)", at)
    return int(found[1]) if found else 0


def _pieces(html: str) -> dict[int, str]:
    found = re.findall(r'<article class="[^"]*" id="p(-?\d+)">.*?</article>', html, re.DOTALL)
    parts = re.split(r"(?=<article )", html)[1:]
    return dict(zip(map(int, found), parts, strict=True))


def _changed(html: str, part: str, change: str) -> str:
    if part == "rest":
        return re.sub(
            r'(<div id="p\d+-rest">).*(</div>)',
            lambda m: m[1] + change + m[2],
            html,
            flags=re.DOTALL,
        )
    return re.sub(r'(</div><div id="p\d+-rest">)', lambda m: change + m[1], html)


def whole(phone: Page) -> Document:
    document = Document()
    document.take(phone.told)
    return document


def texts(document: Document) -> str:
    return "".join(html for _, html in sorted(document.html.items()))


async def turn(it: RemoteBench, session_id: str, text: str) -> None:
    owner = await it.remote()
    await owner.ask("session/load", {**it.setup(), "sessionId": session_id})
    assert await owner.stop_reason(owner.prompt(session_id, text)) in ("end_turn", "cancelled")
    owner.leaves()
    await owner.parted.wait()


async def test_five_new_pieces_of_ten_thousand_are_less_than_20_kb(tmp_path: Path) -> None:
    async with remote_bench(tmp_path, Talking().agent) as it:
        session_id = await it.new()
        await turn(it, session_id, "say 9999")
        document = Document()
        async with page(it, KnownLogins(it), session=session_id) as phone:
            await phone.told_of("opened")
            document.take(phone.told)
        assert max(document.html) == 10_000
        await turn(it, session_id, "say 4")
        document.bytes = 0
        have = document.have(session_id)
        async with page(it, KnownLogins(it), session=session_id, have=have) as phone:
            await phone.has("Message 10003")
            document.take(phone.told)
        assert document.bytes + len(json.dumps(have)) < 20_000
        assert sorted(document.html) == list(range(9_901, 10_006))
        assert [each for each in phone.told if each.get("put") == "pieces"] == []


async def test_earlier_pieces_come_step_by_step_up_to_the_very_first(tmp_path: Path) -> None:
    async with remote_bench(tmp_path, Talking().agent) as it:
        session_id = await it.new()
        await turn(it, session_id, "say 1234")
        document = Document()
        async with page(it, KnownLogins(it), session=session_id) as phone:
            await phone.told_of("opened")
            assert "Show 100 of 1135 earlier" in phone.places["earlier"]
            while phone.places["earlier"]:
                before = len(phone.told)
                phone.sends(do="earlier")
                await until(lambda: any("put" in each for each in phone.told[before:]))  # noqa: B023
            document.take(phone.told)
            assert sorted(document.html) == list(range(1, 1_236))
            assert "say 1234" in document.html[1]
            assert sorted(document.digests) == sorted(document.html)
        await turn(it, session_id, "say 2")
        document.bytes = 0
        have = document.have(session_id)
        assert len(json.dumps(have)) < 4_000
        async with page(it, KnownLogins(it), session=session_id, have=have) as phone:
            await phone.has("Message 1236")
            document.take(phone.told)
        assert document.bytes < 10_000
        assert sorted(document.html) == list(range(1, 1_239))


async def _busy(process: Process, params: Json) -> Json:
    """A turn with all kinds of pieces, each of which changes while others begin."""
    session, asked = params["sessionId"], params["prompt"][0]["text"]

    def shows(sort: str, **update: Any) -> None:
        process.shows(session, {"sessionUpdate": sort, **update})

    def says(text: str, kind: str = "agent_message_chunk", **more: Any) -> None:
        shows(kind, content={"type": "text", "text": text}, **more)

    says("Let me ", "agent_thought_chunk")
    says("think.\n\nTwice.", "agent_thought_chunk")
    shows("plan", entries=[{"content": "one", "status": "in_progress", "priority": "low"}])
    says("Here is *some* text.\n\n- a\n", messageId=f"a{asked}")
    shows("tool_call", toolCallId=f"t{asked}", title="Run", kind="execute", status="pending")
    says("And ", messageId=f"b{asked}")
    output = [{"type": "content", "content": {"type": "text", "text": "out\n" * 20}}]
    shows("tool_call_update", toolCallId=f"t{asked}", status="in_progress", content=output)
    says("more.\n\n```\ncode", messageId=f"b{asked}")
    shows("plan", entries=[{"content": "one", "status": "completed", "priority": "low"}])
    await anyio.lowlevel.checkpoint()
    says("\n```\nend", messageId=f"b{asked}")
    shows("tool_call_update", toolCallId=f"t{asked}", status="completed")
    says("no id")
    if "stop" in asked:
        await until(lambda: process.params("session/cancel"))
        return {"stopReason": "cancelled"}
    return {"stopReason": "max_tokens" if "limit" in asked else "end_turn"}


@pytest.mark.hazard("V1")
@pytest.mark.parametrize("close", [False, True], ids=["live", "closed"])
async def test_a_piece_has_the_same_number_and_digest_each_time_that_a_session_is_loaded(
    tmp_path: Path, close: bool
) -> None:
    agent = Agent()
    agent.script["session/prompt"] = _busy
    async with remote_bench(tmp_path, agent) as it:
        session_id = await it.new()
        async with page(it, KnownLogins(it), session=session_id) as phone:
            await phone.told_of("opened")
            for text in ("first", "limit", "stop", "last"):
                phone.sends(do="prompt", session=session_id, text=text, key=text)
                await until(lambda said=text: {"taken": said} in phone.told)  # type: ignore[misc]
                if text == "stop":
                    await until(lambda: phone.told[-1].get("busy") or "no id" in str(phone.told))
                    phone.sends(do="stop")
                await phone.has(text)
            await until(lambda: texts(whole(phone)).count("no id") == 4)
            await until(
                lambda: [each for each in phone.told if "busy" in each][-1]["busy"] is False
            )
            await until(lambda: len(whole(phone).digests) > 20)
            live = whole(phone)
        if close:
            owner = await it.remote()
            await owner.ask("session/close", {"sessionId": session_id})
        async with page(it, KnownLogins(it), session=session_id) as phone:
            await phone.told_of("opened")
            assert whole(phone).digests == live.digests
            assert texts(whole(phone)) == texts(live)
        async with page(
            it, KnownLogins(it), session=session_id, have=live.have(session_id)
        ) as phone:
            await phone.told_of("opened")
            assert [each for each in phone.told if "add" in each] == []
            assert {"range": [1, max(live.digests)]} in phone.told


def says(process: Process, params: Json, text: str) -> None:
    """Say a part of the one message of a turn."""
    content = {"type": "text", "text": text}
    update = {"sessionUpdate": "agent_message_chunk", "content": content, "messageId": "m"}
    process.shows(params["sessionId"], update)


async def test_a_page_that_has_half_of_a_message_gets_it_whole_and_each_word_once(
    tmp_path: Path,
) -> None:
    agent = Agent()
    go_on = anyio.Event()

    async def talks(process: Process, params: Json) -> Json:
        says(process, params, "First paragraph.\n\nhalf of ")
        await go_on.wait()
        says(process, params, "the second.\n\nAnd the third.")
        return {"stopReason": "end_turn"}

    agent.script["session/prompt"] = talks
    async with remote_bench(tmp_path, agent) as it:
        owner = await it.remote()
        session_id = await it.new(owner)
        owner.prompt(session_id, "talk")
        document = Document()
        async with page(it, KnownLogins(it), session=session_id) as phone:
            await phone.has("half of")
            await until(lambda: 2 in whole(phone).digests)
            document.take(phone.told)
        have = document.have(session_id)
        async with page(it, KnownLogins(it), session=session_id, have=have) as phone:
            await phone.told_of("opened")
            assert "First paragraph" not in str(phone.told)
            go_on.set()
            await phone.has("the third")
            document.take(phone.told)
        for words in ("First paragraph.", "half of the second.", "And the third."):
            assert texts(document).count(words) == 1


# -- what a page has, without a bridge -----------------------------------------------------------


def said(number: int, text: str = "") -> Json:
    content = {"type": "text", "text": text or f"word{number}. "}
    update = {"sessionUpdate": "agent_message_chunk", "messageId": str(number), "content": content}
    return {"update": update}


def loaded(updates: Iterable[Json]) -> SessionShown:
    found = SessionShown()
    for each in updates:
        found.on_update(each)
    return found


def opened(found: SessionShown, document: Document, have: Json | None = None) -> list[Json]:
    told = found.begin(Have.read(have))
    while found.behind:
        told += found.changes()
    document.take(told)
    return told


@pytest.mark.parametrize("at", [1, 150, 980, 1_000])
def test_a_piece_that_has_changed_meanwhile_is_sent_again_and_few_others(at: int) -> None:
    updates = [said(number) for number in range(1, 1_001)]
    first, document = loaded(updates), Document()
    opened(first, document)
    while "button" in document.earlier:
        document.take(first.earlier())
    updates[at - 1] = said(at, "changed")
    told = opened(loaded(updates), document, document.have("s"))
    assert sum("add" in each for each in told) <= 64
    assert "changed" in document.html[at]
    assert sorted(document.html) == list(range(1, 1_001))


@pytest.mark.parametrize("follows", [False, True])
def test_one_that_reads_above_gets_all_that_is_new_and_one_at_the_end_the_last_pieces(
    follows: bool,
) -> None:
    updates = [said(number) for number in range(1, 2_001)]
    document = Document()
    opened(loaded(updates[:500]), document)
    told = opened(loaded(updates), document, document.have("s", follows=follows))
    assert max(len(str(each)) for each in told) < 600_000
    assert sorted(document.html) == list(range(1_901 if follows else 401, 2_001))


def notice(text: str, cursor: str | None = None) -> Json:
    content = {"type": "text", "text": text}
    update = {"sessionUpdate": "agent_message_chunk", "content": content, "messageId": text}
    own = {"notice": True, **({"cursor": cursor} if cursor else {})}
    return {"update": update, "_meta": {"acp_bridge": own}}


def test_a_notice_that_is_not_recorded_ends_no_message_and_shifts_no_number() -> None:
    half, rest = said(1, "half of "), said(1, "a message")
    with_it, without = Document(), Document()
    opened(loaded([half, notice("a passing word"), rest, notice("kept", "c"), said(2)]), with_it)
    opened(loaded([half, rest, notice("kept", "c"), said(2)]), without)
    assert with_it.digests == without.digests
    assert "half of a message" in with_it.html[1]
    assert "a passing word" in with_it.html[-1]
    told = opened(loaded([half, rest, notice("kept", "c"), said(2)]), with_it, with_it.have("s"))
    assert [each for each in told if "add" in each] == []
    assert sorted(with_it.html) == [1, 2, 3]


def test_a_session_that_has_become_shorter_is_sent_again() -> None:
    updates = [said(number) for number in range(1, 201)]
    document = Document()
    opened(loaded(updates), document)
    opened(loaded(updates[:150]), document, document.have("s"))
    assert sorted(document.html) == list(range(101, 151))


def test_a_page_that_is_loaded_again_begins_where_it_was() -> None:
    document = Document()
    opened(
        loaded(said(number) for number in range(1, 501)), document, {"session": "s", "first": 250}
    )
    assert sorted(document.html) == list(range(250, 501))


def test_what_is_not_kept_is_counted_on_the_page(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shown_module, "_MOST", 100_000)
    found, document = loaded(said(number) for number in range(1, 1_001)), Document()
    opened(found, document)
    while "button" in document.earlier:
        document.take(found.earlier())
    kept = len(document.html)
    assert 150 < kept < 250
    assert f"{1_000 - kept} earlier ones" in document.earlier
    assert "acp-bridge show" in document.earlier
    found.on_update(said(1_001))
    document.take(found.changes())
    told = opened(found, document, document.have("s"))
    assert [each for each in told if "add" in each] == []


@pytest.mark.parametrize(
    "odd",
    [
        *(None, 5, [], "x", {}, {"session": 5, "first": 1}, {"session": "s", "first": "1"}),
        {"session": "s", "first": 1, "last": 10**30, "step": 1, "blocks": {}, "single": {}},
        {"session": "s", "first": 1, "last": 200, "step": 1, "blocks": {"x": "y"}, "single": {}},
        {
            "session": "s",
            "first": 1,
            "last": 200,
            "step": 1,
            "blocks": {"1": 5},
            "single": {"1": 5},
        },
        {"session": "s", "first": 1, "last": 2, "step": 1, "blocks": {}, "single": {"9" * 99: ""}},
        {"session": "s", "first": 9, "last": 3, "step": 7, "blocks": {}, "single": {"-5": "x"}},
        {"session": "s", "first": True, "last": 2, "step": 1, "blocks": {}, "single": {}},
        {"session": "s", "first": 1, "last": 2, "step": 1, "blocks": {}, "single": {"50": "x"}},
    ],
)
def test_what_a_page_cannot_have_leaves_it_with_the_whole_end_of_the_session(odd: object) -> None:
    document = Document()
    found = loaded(said(number) for number in range(1, 201))
    told = found.begin(Have.read(odd))
    while found.behind:
        told += found.changes()
    document.take(told)
    assert set(range(101, 201)) <= set(document.html)


async def test_a_page_that_reads_nothing_and_opens_the_session_again_and_again_is_sent_it_once(
    tmp_path: Path,
) -> None:
    async with remote_bench(tmp_path, Talking().agent) as it:
        session_id = await it.new()
        await turn(it, session_id, "say 900")
        owner = await it.remote()
        async with page(it, KnownLogins(it), session=session_id) as phone:
            await phone.told_of("opened")
            phone.may_read = anyio.Event()
            have = {"session": session_id, "first": 1}
            for _ in range(6):
                phone.sends(do="open", session=session_id, have=have)
                for _ in range(60):  # as long as the bridge may need to load it
                    await owner.ask("_acp_bridge/live", {})
            once = 900 * 400
            assert phone.pending < 2 * once
            phone.may_read.set()
            await phone.has("Message 1 ")
