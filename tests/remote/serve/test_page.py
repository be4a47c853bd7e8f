"""The page's end of its WebSocket: who comes in, what is shown where, what a user can do."""

from pathlib import Path

import anyio
import pytest

from acp_bridge.core.journal import HeldElsewhere
from acp_bridge.core.protocol import Json
from acp_bridge.remote.page import opened
from acp_bridge.remote.page.files import page_file
from acp_bridge.remote.page.shown import SessionShown
from tests.core.bridge.remote import remote_bench
from tests.core.sessions.agent import Agent, Process, until
from tests.remote.serve.page_bench import CODE, SECRET, KnownLogins, page

SCRIPT = "<script>alert(1)</script>"
PERMISSION: Json = {
    "toolCall": {"toolCallId": "t", "title": f"Edit {SCRIPT}", "rawInput": {"command": "rm -r x"}},
    "options": [
        {"optionId": "yes", "name": f"Yes {SCRIPT}", "kind": "allow_once"},
        {"optionId": "no", "name": "No", "kind": "reject_once"},
    ],
}


async def test_a_page_comes_in_with_its_login_alone_and_a_code_is_changed_for_one_once(
    tmp_path: Path,
) -> None:
    async with remote_bench(tmp_path) as it:
        logins = KnownLogins(it)
        async with page(it, logins, login="guessed") as stranger:
            await stranger.ended.wait()
            assert await stranger.told_of("login") is None
            assert stranger.places == {}
        async with page(it, logins, login=None, code=CODE) as phone:
            assert await phone.told_of("login") == SECRET
            assert await phone.told_of("may") == "all"
            await phone.has("No sessions yet", "sessions")
            phone.sends(do="here")
            assert await phone.told_of("here")
        async with page(it, logins, login=None, code=CODE) as again:
            await again.ended.wait()
            assert await again.told_of("login") is None
        async with page(it, logins) as phone:
            await phone.has("No sessions yet")
            phone.sends(do="leave")
            await phone.ended.wait()
            assert logins.left == [SECRET]


@pytest.mark.parametrize("first", [b"{\n", b"[1]\n", b"x" * 9000 + b"\n", b'{"login": 5}\n'])
async def test_what_is_no_first_message_ends_the_connection(tmp_path: Path, first: bytes) -> None:
    async with remote_bench(tmp_path) as it, page(it, KnownLogins(it), login=first.decode()) as odd:
        await odd.ended.wait()
        assert odd.places == {}


async def test_a_prompt_is_sent_once_and_its_turn_is_shown_as_it_goes(tmp_path: Path) -> None:
    async with remote_bench(tmp_path) as it:
        session_id = await it.new()
        async with page(it, KnownLogins(it), session=session_id) as phone:
            await phone.told_of("opened")
            for _ in range(2):  # sent again under its key, as after a lost connection
                phone.sends(do="prompt", session=session_id, text=f"hi {SCRIPT}", key="k")
            await phone.has("echo hi")
            await until(lambda: [each for each in phone.told if each.get("taken") == "k"][1:])
            shown = "".join(phone.places.values())
            assert SCRIPT not in shown
            assert shown.count("hi &lt;script&gt;") == 2  # the user's words and the echo
            assert len(it.agent.params("session/prompt")) == 1
            said = await until(lambda: [each["say"] for each in phone.told if "say" in each])
            assert said == [f"echo hi {SCRIPT}"]


async def test_a_page_that_comes_again_finds_the_whole_session_once(tmp_path: Path) -> None:
    async with remote_bench(tmp_path) as it:
        session_id = await it.new()
        async with page(it, KnownLogins(it), session=session_id) as phone:
            await phone.told_of("opened")
            phone.sends(do="prompt", session=session_id, text="first", key="k")
            await phone.has("echo first")
        async with page(it, KnownLogins(it), session=session_id) as phone:
            await phone.told_of("opened")
            assert phone.places["pieces"].count("echo first") == 1
            assert [each["put"] for each in phone.told if "put" in each].count("pieces") == 1


@pytest.mark.hazard("N1")
@pytest.mark.parametrize(
    ("address", "link"),
    [
        (
            "https://b.example:8765",
            '<a href="https://b.example:8765/#s={}" rel="noopener noreferrer" target="_blank">',
        ),
        ("http://b.example", None),
        (f"https://b.example/{SCRIPT}", None),
        (None, None),
    ],
)
async def test_a_session_of_another_machine_is_shown_with_its_name_and_a_link_to_its_page(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, address: str | None, link: str | None
) -> None:
    async with remote_bench(tmp_path) as it:
        client = await it.remote()
        session_id = await it.new(client)
        prompt = {"sessionId": session_id, "prompt": [{"type": "text", "text": "hi"}]}
        await client.ask("session/prompt", prompt)
        await client.ask("session/close", {"sessionId": session_id})

        async def refuse(_: str) -> None:
            raise HeldElsewhere(f"b{SCRIPT}", address)

        monkeypatch.setattr(it.context.journal, "open", refuse)
        async with page(it, KnownLogins(it), session=session_id) as phone:
            await phone.has("is open on the machine b&lt;script&gt;", "state")
            state = phone.places["state"]
            assert SCRIPT not in state
            assert SECRET not in state
            if link is None:
                assert "<a " not in state
            else:
                assert link.format(session_id) in state


async def asks(process: Process, params: Json) -> Json:
    asked = {**PERMISSION, "sessionId": params["sessionId"]}
    process.says({"id": 77, "method": "session/request_permission", "params": asked})
    (answer,) = await until(lambda: [each for each in process.received if each.get("id") == 77])
    process.update(params["sessionId"], f"chosen {answer['result']['outcome'].get('optionId')}")
    return {"stopReason": "end_turn"}


async def test_a_question_is_answered_on_one_page_and_goes_from_the_other(tmp_path: Path) -> None:
    agent = Agent()
    agent.script["session/prompt"] = asks
    async with remote_bench(tmp_path, agent) as it:
        session_id = await it.new()
        logins = KnownLogins(it)
        async with (
            page(it, logins, session=session_id) as phone,
            page(it, logins, session=session_id) as tablet,
        ):
            for each in (phone, tablet):
                await each.told_of("opened")
            phone.sends(do="prompt", session=session_id, text="do it", key="k")
            for each in (phone, tablet):
                await each.has("rm -r x", "questions")
                assert SCRIPT not in each.places["questions"]
            tablet.sends(do="answer", question="7", option="0")
            tablet.sends(do="answer", question="1", option="5")
            tablet.sends(do="answer", question="1", option="0")
            for each in (phone, tablet):
                await each.told_of("remove")
                await each.has("chosen yes")
                await each.has("Allowed by a person")


async def test_who_may_look_sees_no_question_and_can_do_nothing(tmp_path: Path) -> None:
    agent = Agent()
    agent.script["session/prompt"] = asks
    async with remote_bench(tmp_path, agent) as it:
        session_id = await it.new()
        async with (
            page(it, KnownLogins(it), session=session_id) as phone,
            page(it, KnownLogins(it, "look"), session=session_id) as guest,
        ):
            for each in (phone, guest):
                await each.told_of("opened")
            phone.sends(do="prompt", session=session_id, text="do it", key="k")
            await phone.has("rm -r x", "questions")
            guest.sends(do="prompt", session=session_id, text="more", key="g")
            assert await guest.told_of("refused") == "g"
            guest.sends(do="stop")
            assert "only look" in await guest.told_of("line")
            assert "questions" not in guest.places
            phone.sends(do="answer", question=1, option=1)
            await guest.has("chosen no")


async def test_a_stop_from_the_page_ends_the_turn_of_anyone(tmp_path: Path) -> None:
    agent = Agent()

    async def never(process: Process, params: Json) -> Json:
        process.update(params["sessionId"], "working")
        await until(lambda: process.params("session/cancel"))
        return {"stopReason": "cancelled"}

    agent.script["session/prompt"] = never
    async with remote_bench(tmp_path, agent) as it:
        owner = await it.remote()
        session_id = await it.new(owner)
        sent = owner.prompt(session_id, "long")
        async with page(it, KnownLogins(it), session=session_id) as phone:
            await phone.has("working")
            await until(lambda: [each for each in phone.told if each.get("busy")])
            phone.sends(do="stop")
            assert await owner.stop_reason(sent) == "cancelled"


async def test_a_page_that_comes_into_a_turn_gets_no_notice_of_queue_commands(
    tmp_path: Path,
) -> None:
    agent = Agent()
    go_on = anyio.Event()

    async def talks(process: Process, params: Json) -> Json:
        process.update(params["sessionId"], "half of ")
        await go_on.wait()
        process.update(params["sessionId"], "the message")
        return {"stopReason": "end_turn"}

    agent.script["session/prompt"] = talks
    async with remote_bench(tmp_path, agent) as it:
        owner = await it.remote()
        session_id = await it.new(owner)
        owner.prompt(session_id, "talk")
        await until(lambda: "half of" in str(owner.out.messages))
        async with page(it, KnownLogins(it), session=session_id) as phone:
            await phone.told_of("opened")
            go_on.set()
            await phone.has("the message")
            assert "/queue" not in "".join(phone.places.values())


async def test_the_queue_is_shown_moved_and_dropped(tmp_path: Path) -> None:
    agent = Agent()
    go_on = anyio.Event()

    async def waits(process: Process, params: Json) -> Json:
        await go_on.wait()
        process.update(params["sessionId"], f"did {params['prompt'][0]['text']}")
        return {"stopReason": "end_turn"}

    agent.script["session/prompt"] = waits
    async with remote_bench(tmp_path, agent) as it:
        session_id = await it.new()
        async with page(it, KnownLogins(it), session=session_id) as phone:
            await phone.told_of("opened")
            for text in ("one", "two", "three", "four"):
                phone.sends(do="prompt", session=session_id, text=text, key=text)
                await until(lambda key=text: {"taken": key} in phone.told)  # type: ignore[misc]
            await phone.has("four", "queue")

            def prompt(text: str) -> str:
                return (
                    phone.places["queue"].partition(text)[2].split('data-prompt="')[1].split('"')[0]
                )

            phone.sends(do="move", prompt=prompt("four"), by="-1")
            await until(
                lambda: phone.places["queue"].index("four") < phone.places["queue"].index("three")
            )
            phone.sends(do="drop", prompt=prompt("two"))
            await until(lambda: "two" not in phone.places["queue"])
            go_on.set()
            await phone.has("did three")
            did = [each["prompt"][0]["text"] for each in it.agent.params("session/prompt")]
            assert did == ["one", "four", "three"]


async def test_a_page_that_is_not_visible_has_no_session_open(tmp_path: Path) -> None:
    async with remote_bench(tmp_path) as it:
        owner = await it.remote()
        session_id = await it.new(owner)

        async def clients() -> int:
            rows = (await owner.ask("_acp_bridge/live", {}))["sessions"]
            return int(rows[0]["clients"])

        async with page(it, KnownLogins(it), session=session_id) as phone:
            await phone.told_of("opened")
            assert await clients() == 2
            phone.sends(do="visible", visible=False)
            while await clients() != 1:
                await anyio.lowlevel.checkpoint()
            phone.told.clear()
            phone.sends(do="visible", visible=True)
            await phone.told_of("opened")
            assert await clients() == 2


async def test_the_list_says_what_each_session_does_and_asks(tmp_path: Path) -> None:
    agent = Agent()
    agent.script["session/prompt"] = asks
    async with remote_bench(tmp_path, agent) as it:
        owner = await it.remote()
        session_id = await it.new(owner)
        owner.prompt(session_id, "do it")
        async with page(it, KnownLogins(it)) as phone:
            await phone.has(f'href="#s={session_id}"', "sessions")
            await phone.has("Asks: Edit", "sessions")
            assert SCRIPT not in phone.places["sessions"]


def test_the_page_is_some_files_under_a_policy_that_lets_nothing_else_in() -> None:
    for path in ("/", "/page.js", "/kept.js", "/place.js", "/page.css", "/icon.svg"):
        found = page_file(path)
        assert found is not None
        policy = found.headers["Content-Security-Policy"]
        assert "default-src 'none'" in policy
        assert "frame-ancestors 'none'" in policy
        assert "unsafe" not in policy
        assert "img-src 'self' data:;" in policy
        assert found.headers["Referrer-Policy"] == "no-referrer"
        assert found.headers["X-Content-Type-Options"] == "nosniff"
        assert found.text
    for path in ("/index.html", "/../serve.py", "/page.js?x", "//page.js", "/files.py"):
        assert page_file(path) is None


async def test_a_page_that_reads_slowly_is_told_the_end_of_it_and_little_in_between(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(opened, "_GATHERED", 0)
    agent = Agent()

    async def talks(process: Process, params: Json) -> Json:
        card = {"toolCallId": "t", "title": "pytest", "kind": "execute", "rawInput": {}}
        process.shows(params["sessionId"], {"sessionUpdate": "tool_call", **card})
        for number in range(300):
            text = {"type": "text", "text": f"line {number} {'x' * 200}\n" * 50}
            output = [{"type": "content", "content": text}]
            update = {"sessionUpdate": "tool_call_update", "toolCallId": "t", "content": output}
            process.shows(params["sessionId"], update)
            for _ in range(20):
                await anyio.lowlevel.checkpoint()
        return {"stopReason": "end_turn"}

    agent.script["session/prompt"] = talks
    async with remote_bench(tmp_path, agent) as it:
        session_id = await it.new()
        async with page(it, KnownLogins(it), session=session_id) as phone:
            await phone.told_of("opened")
            phone.may_read = anyio.Event()
            phone.sends(do="prompt", session=session_id, text="go", key="k")
            owner = await it.remote()
            await owner.ask("session/load", {**it.setup(), "sessionId": session_id})
            await until(lambda: "line 299" in str(owner.out.messages))
            phone.may_read.set()
            await phone.has("line 299")
            assert sum("line " in each.get("html", "") for each in phone.told) < 30


def test_of_a_huge_message_so_much_is_shown_and_the_rest_is_counted() -> None:
    shown = SessionShown()
    content = {"type": "text", "text": "word " * 200_000}
    shown.on_update({"update": {"sessionUpdate": "agent_message_chunk", "content": content}})
    (added,) = shown.changes()
    assert added["html"].count("word") == 80_000
    assert "… 600000 more characters" in added["html"]


@pytest.mark.parametrize(
    "odd",
    [
        {"do": "open", "session": 5},
        {"do": "open", "session": "\ud800"},
        {"do": "prompt", "session": [], "text": {}, "key": None},
        {"do": "prompt", "session": "nobody's", "text": "x", "key": "k" * 300},
        {"do": "answer", "question": None, "option": "9" * 5000},
        {"do": "answer", "question": 1, "option": -1},
        {"do": "move", "prompt": "x", "by": 1e400},
        {"do": "drop", "prompt": "nobody's"},
        {"do": "set", "kind": "mode", "value": "0"},
        {"do": "set", "kind": ["mode"], "value": 0},
        {"do": ["stop"]},
        {"do": "visible", "visible": "no"},
        {"do": "find", "find": ["x"], "rows": -1},
        {"do": "more", "find": "x" * 9000, "rows": 10**40},
        {"do": "visible", "visible": True, "have": {"session": 5, "first": [], "last": {}}},
        {"do": "earlier", "have": "all"},
        {"login": "again"},
    ],
)
async def test_an_odd_message_of_a_page_does_nothing_and_ends_nothing(
    tmp_path: Path, odd: Json
) -> None:
    async with remote_bench(tmp_path) as it:
        session_id = await it.new()
        async with page(it, KnownLogins(it), session=session_id) as phone:
            await phone.told_of("opened")
            phone.sends(**odd)
            phone.told.clear()
            phone.sends(do="open", session=session_id)
            await phone.told_of("opened")
            phone.sends(do="prompt", session=session_id, text="hello", key="k")
            await phone.has("echo hello")


async def test_a_session_that_can_t_be_opened_says_why(tmp_path: Path) -> None:
    async with (
        remote_bench(tmp_path) as it,
        page(it, KnownLogins(it), session="nobody's") as phone,
    ):
        await phone.has("be opened: ", "state")
