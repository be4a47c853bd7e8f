"""What a server does with the taps of a page: each counts for what was shown, and once."""

from pathlib import Path
from typing import Any

import anyio
import pytest

from acp_bridge.core.protocol import Json
from acp_bridge.remote.page import taps
from acp_bridge.remote.page.taps import AllReceipts, Outcome, Receipts
from acp_bridge.sharing.bridge_client.permission_options import selected
from tests.core.bridge.remote import RemoteBench, remote_bench
from tests.core.sessions.agent import Agent, Process, until
from tests.remote.serve.page_bench import KnownLogins, Page, page
from tests.remote.serve.test_page import PERMISSION
from tests.sharing.elsewhere.test_remote_passages import asks as ask_for
from tests.sharing.elsewhere.test_remote_passages import at_work, far

NAME = "a-page-with-a-name-of-its-own"
OTHER = "another-page-with-its-own-name"


def became(phone: Page, key: str) -> list[tuple[str, str]]:
    """What a page was told of a tap: how often, and in which words."""
    return [
        (word, str(each.get("line", "")))
        for each in phone.told
        for word in ("taken", "refused", "undone")
        if each.get(word) == key
    ]


async def outcome(phone: Page, key: str, times: int = 1) -> tuple[str, str]:
    found = await until(lambda: became(phone, key)[times - 1 :])
    assert len(set(became(phone, key))) == 1
    return found[0]


async def stops(phone: Page) -> str:
    """What a Stop of the page names, once a turn runs."""
    found = await until(
        lambda: [each["stop"] for each in phone.told if "turn:" in str(each.get("stop"))]
    )
    return str(found[-1])


def option(phone: Page, at: int = 0) -> Json:
    """What the button of an option of the question that is shown sends."""
    button = phone.places["questions"].split("<button")[1 + at]

    def data(name: str) -> str:
        return button.partition(f'data-{name}="')[2].partition('"')[0]

    return {
        "do": "answer",
        "question": data("question"),
        "call": data("call"),
        "kind": data("kind"),
        "option": data("option"),
    }


def talks() -> Agent:
    """An agent that works on "wait" until it is stopped, and asks for "ask"."""
    agent = Agent()

    async def prompted(process: Process, params: Json) -> Json:
        words = params["prompt"][0]["text"]
        if "ask" in words:
            if "card" in words:
                card = {"sessionUpdate": "tool_call", "toolCallId": "t", "title": "Edit"}
                process.shows(params["sessionId"], card)
            asked = {**PERMISSION, "sessionId": params["sessionId"]}
            process.says({"id": 77, "method": "session/request_permission", "params": asked})
            times = 2 if "again" in words else 1
            await until(
                lambda: len(chosen_of(process)) == times or process.params("session/cancel")
            )
            if "card" in words:
                done = {"sessionUpdate": "tool_call_update", "toolCallId": "t"}
                process.shows(params["sessionId"], {**done, "status": "completed"})
            return {"stopReason": "end_turn"}
        if "wait" in words:
            process.update(params["sessionId"], "working")
            before = len(process.params("session/cancel"))
            await until(lambda: process.params("session/cancel")[before:])
            return {"stopReason": "cancelled"}
        return {"stopReason": "end_turn"}

    modes = [{"id": "ask", "name": "Ask"}, {"id": "auto", "name": "Edit"}]

    async def new(process: Process, params: Json) -> Json:
        number = agent.processes.index(process) + 1
        told = {"currentModeId": "ask", "availableModes": modes}
        return {"sessionId": f"agent-{number}", "modes": told}

    agent.script |= {"session/prompt": prompted, "session/new": new, "session/set_mode": {}}
    return agent


def chosen_of(process: Process) -> list[str]:
    """The options with which an agent's question was answered."""
    found = [each["result"] for each in process.received if "result" in each]
    return [str(each["outcome"].get("optionId")) for each in found if "outcome" in each]


def chosen(it: RemoteBench) -> list[str]:
    return [each for process in it.agent.processes for each in chosen_of(process)]


# --- Stop ---------------------------------------------------------------------------------------


async def test_a_stop_that_arrives_twice_stops_once_and_is_answered_each_time(
    tmp_path: Path,
) -> None:
    async with remote_bench(tmp_path, talks()) as it:
        session = await it.new()
        logins = KnownLogins(it)
        async with page(it, logins, session=session, client=NAME) as phone:
            phone.sends(do="prompt", session=session, text="wait", key="p")
            tap = {"do": "stop", "session": session, "prompt": await stops(phone), "key": "k"}
            phone.sends(**tap)
            phone.sends(**tap)
            assert await outcome(phone, "k", 2) == ("taken", "")
        phone.told.clear()
        async with page(it, logins, session=session, client=NAME) as again:
            phone = again
            phone.sends(do="prompt", session=session, text="wait more", key="p2")
            await stops(phone)
            phone.sends(**tap)  # its confirmation was lost: it is the same tap, not another one
            assert await outcome(phone, "k") == ("taken", "")
            assert len(it.agent.params("session/cancel")) == 1
            phone.sends(**tap | {"key": "later"})
            assert await outcome(phone, "later") == ("refused", "The turn had already ended.")
            assert len(it.agent.params("session/cancel")) == 1
            phone.sends(**tap | {"key": "now", "prompt": await stops(phone)})
            assert await outcome(phone, "now") == ("taken", "")


async def test_a_stop_reaches_a_session_that_the_page_does_not_show(tmp_path: Path) -> None:
    async with remote_bench(tmp_path, talks()) as it:
        owner = await it.remote()
        session = await it.new(owner)
        async with page(it, KnownLogins(it), session=session, client=NAME) as phone:
            sent = owner.prompt(session, "wait")
            seen = await stops(phone)
            phone.sends(do="list")
            await phone.has(f'href="#s={session}"', "sessions")
            phone.sends(do="stop", session=session, prompt="turn:another", key="no")
            assert await outcome(phone, "no") == ("refused", "The turn had already ended.")
            phone.sends(do="stop", session=session, prompt=seen, key="yes")
            assert await outcome(phone, "yes") == ("taken", "")
            assert await owner.stop_reason(sent) == "cancelled"


@pytest.mark.parametrize("do", ["stop", "answer"])
async def test_a_tap_about_a_turn_of_a_session_that_is_not_live_starts_nothing(
    tmp_path: Path, do: str
) -> None:
    async with remote_bench(tmp_path, talks()) as it, page(it, KnownLogins(it)) as phone:
        about = {"prompt": "turn:x", "question": "x", "option": 0}
        phone.sends(do=do, session="nobody's", key="k", **about)
        assert await outcome(phone, "k") == ("refused", "The turn had already ended.")
        assert it.agent.params("session/load") == []


# --- answers ------------------------------------------------------------------------------------


async def test_an_answer_counts_over_another_line_for_the_question_that_was_shown(
    tmp_path: Path,
) -> None:
    async with remote_bench(tmp_path, talks()) as it:
        session = await it.new()
        logins = KnownLogins(it)
        async with page(it, logins, session=session, client=NAME) as phone:
            phone.sends(do="prompt", session=session, text="ask", key="p")
            await phone.has("rm -r x", "questions")
            tap = option(phone)
        async with page(it, logins, client=NAME) as phone:
            phone.sends(**tap, session=session, key="k")
            assert await outcome(phone, "k") == ("taken", "")
            assert chosen(it) == ["yes"]


@pytest.mark.parametrize("change", ["the call", "the options", "nothing"])
async def test_an_answer_does_not_count_for_a_question_asked_again_under_the_same_ids(
    tmp_path: Path, change: str
) -> None:
    agent = talks()
    asked: Json = {**PERMISSION}
    if change == "the call":
        asked["toolCall"] = {**asked["toolCall"], "rawInput": {"command": "rm -r /"}}
    if change == "the options":
        asked["options"] = [{**each, "name": "Sure"} for each in asked["options"]]
    async with remote_bench(tmp_path, agent) as it:
        session = await it.new()
        logins = KnownLogins(it)
        async with page(it, logins, session=session, client=NAME) as phone:
            phone.sends(do="prompt", session=session, text="ask again", key="p")
            await phone.has("rm -r x", "questions")
            tap = option(phone)
            (process,) = it.agent.living
            process.says({"method": "$/cancel_request", "params": {"requestId": 77}})
            await until(lambda: [each for each in process.received if each.get("id") == 77])
            params = {**asked, "sessionId": "agent-1"}
            process.says({"id": 77, "method": "session/request_permission", "params": params})
        async with page(it, logins, session=session, client=NAME) as phone:
            await phone.has("rm -r", "questions")
            assert option(phone)["question"] != tap["question"]
            phone.sends(**tap, session=session, key="k")
            word, line = await outcome(phone, "k")
            assert (word, "Look at it again" in line) == ("refused", True)
            assert chosen(it) == []  # the first one the agent has withdrawn itself
            phone.sends(**option(phone), session=session, key="k2")
            assert await outcome(phone, "k2") == ("taken", "")
            assert chosen(it) == ["yes"]


async def test_an_answer_whose_confirmation_was_lost_with_the_server_s_memory_is_still_done(
    tmp_path: Path,
) -> None:
    async with remote_bench(tmp_path, talks()) as it:
        session = await it.new()
        async with page(it, KnownLogins(it), session=session, client=NAME) as phone:
            phone.sends(do="prompt", session=session, text="ask with a card", key="p")
            await phone.has("rm -r x", "questions")
            allow, reject = option(phone), option(phone, 1)
            phone.sends(**allow, session=session, key="k")
            assert await outcome(phone, "k") == ("taken", "")
            await phone.has("Allowed by a person")
        for shown in (session, None):
            async with page(it, KnownLogins(it), client=NAME, session=shown) as phone:
                phone.sends(**allow, session=session, key="k")
                assert await outcome(phone, "k") == ("taken", "")
                phone.sends(**reject, session=session, key="r")
                assert await outcome(phone, "r") == ("refused", "This login had already answered.")
        assert chosen(it) == ["yes"]


@pytest.mark.parametrize("first", ["phone", "tablet"])
async def test_of_two_answers_at_once_one_counts_and_the_other_is_told_so(
    tmp_path: Path, first: str
) -> None:
    async with remote_bench(tmp_path, talks()) as it:
        session = await it.new()
        async with (
            page(it, KnownLogins(it), session=session, client=NAME) as phone,
            page(it, KnownLogins(it), session=session, client=OTHER) as tablet,
        ):
            phone.sends(do="prompt", session=session, text="ask", key="p")
            for each in (phone, tablet):
                await each.has("rm -r x", "questions")
            pages = {"phone": (phone, 0), "tablet": (tablet, 1)}
            for name in sorted(pages, key=lambda name: name != first):
                one, at = pages[name]
                one.sends(**option(one, at), session=session, key="k")
            words = {name: await outcome(one, "k") for name, (one, _) in pages.items()}
            counted = [name for name, (word, _) in words.items() if word == "taken"]
            assert chosen(it) == [{"phone": "yes", "tablet": "no"}[name] for name in counted]
            (line,) = [line for word, line in words.values() if word == "refused"]
            assert "answered" in line or "ended" in line


async def test_an_answer_that_crosses_one_at_another_bridge_is_told_so(tmp_path: Path) -> None:
    async with far(tmp_path) as it, at_work(it) as (process, turn, prompt):
        logins = KnownLogins(it.serve)
        async with page(it.serve, logins, session=it.session_id, client=NAME) as phone:
            ask_for(process)
            await phone.has("Edit x", "questions")
            (question,) = await it.editor.editor.got("session/request_permission")
            it.editor.editor.answers_with(question, selected("no"))
            phone.sends(**option(phone), session=it.session_id, key="k")
            word, line = await outcome(phone, "k")
            assert (word, "ended" in line or "Somebody else" in line) == ("refused", True)
            assert chosen_of(process) == ["no"]
            seen = await stops(phone)
            phone.sends(do="stop", session=it.session_id, prompt="turn:x", key="late")
            assert await outcome(phone, "late") == ("refused", taps.TURN_ENDED)
            phone.sends(do="stop", session=it.session_id, prompt=seen, key="now")
            assert await outcome(phone, "now") == ("taken", "")
            turn.open()
            assert await it.editor.editor.stop_reason(prompt) == "cancelled"


async def test_an_answer_to_an_option_that_is_not_offered_answers_nothing(tmp_path: Path) -> None:
    async with remote_bench(tmp_path, talks()) as it:
        session = await it.new()
        async with page(it, KnownLogins(it), session=session, client=NAME) as phone:
            phone.sends(do="prompt", session=session, text="ask", key="p")
            await phone.has("rm -r x", "questions")
            for number, odd in enumerate((-1, 2, "x", None)):
                phone.sends(**option(phone) | {"option": odd}, session=session, key=f"k{number}")
                assert (await outcome(phone, f"k{number}"))[0] == "refused"
            assert chosen(it) == []
            phone.sends(**option(phone, 1), session=session, key="k")
            assert await outcome(phone, "k") == ("taken", "")


@pytest.mark.parametrize("client", [NAME, None])
async def test_a_tap_in_a_session_with_an_open_question_leaves_the_question_open(
    tmp_path: Path, client: str | None
) -> None:
    async with remote_bench(tmp_path, talks()) as it:
        session = await it.new()
        logins = KnownLogins(it)
        async with page(it, logins, session=session, client=client) as phone:
            phone.sends(do="prompt", session=session, text="ask", key="p")
            await phone.has("rm -r x", "questions")
            phone.sends(do="list")
            await phone.has(f'href="#s={session}"', "sessions")
            phone.sends(do="drop", session=session, prompt="none", key="k")
            assert await outcome(phone, "k") == ("refused", taps.NOT_WAITING)
            assert chosen(it) == []
            del phone.places["questions"]
            phone.sends(do="open", session=session)
            await phone.has("rm -r x", "questions")
            phone.sends(**option(phone), session=session, key="a")
            assert await outcome(phone, "a") == ("taken", "")


# --- the queue and the settings -----------------------------------------------------------------


async def waiting(it: RemoteBench, phone: Page, session: str) -> dict[str, str]:
    """Let three prompts wait behind one that runs; returns their ids by their words."""
    for words in ("wait", "one", "two", "three"):
        phone.sends(do="prompt", session=session, text=words, key=words)
        await outcome(phone, words)
    await phone.has("three", "queue")
    rows = phone.places["queue"].split("<li>")[1:]
    ids = [row.partition('data-prompt="')[2].partition('"')[0] for row in rows]
    return dict(zip(("one", "two", "three"), ids, strict=True))


def order(phone: Page) -> list[str]:
    listed = phone.places["queue"]
    return sorted((w for w in ("one", "two", "three") if w in listed), key=listed.index)


async def test_a_move_goes_to_a_place_and_two_of_them_go_there_once(tmp_path: Path) -> None:
    async with remote_bench(tmp_path, talks()) as it:
        session = await it.new()
        async with page(it, KnownLogins(it), session=session, client=NAME) as phone:
            ids = await waiting(it, phone, session)
            tap = {"do": "move", "session": session, "prompt": ids["three"], "before": ids["two"]}
            for key in ("k", "k", "another key"):
                phone.sends(**tap, key=key)
            assert await outcome(phone, "another key") == ("taken", "")
            await until(lambda: order(phone) == ["one", "three", "two"])
            phone.sends(do="drop", session=session, prompt=ids["two"], key="d")
            assert await outcome(phone, "d") == ("taken", "")
            phone.sends(**tap, key="late")
            assert await outcome(phone, "late") == ("refused", taps.QUEUE_CHANGED)
            phone.sends(do="drop", session=session, prompt=ids["two"], key="d2")
            assert await outcome(phone, "d2") == ("refused", taps.NOT_WAITING)
            phone.sends(do="move", session=session, prompt=ids["one"], before="", key="last")
            assert await outcome(phone, "last") == ("taken", "")
            assert order(phone) == ["three", "one"]


async def test_a_mode_is_set_only_if_nobody_has_changed_it_since_it_was_chosen(
    tmp_path: Path,
) -> None:
    async with remote_bench(tmp_path, talks()) as it:
        session = await it.new()
        async with page(it, KnownLogins(it), session=session, client=NAME) as phone:
            await phone.has("set-mode", "settings")
            tap = {"do": "set", "session": session, "kind": "mode", "choice": "auto", "was": "ask"}
            phone.sends(**tap, key="k")
            assert await outcome(phone, "k") == ("taken", "")
            phone.sends(**tap, key="again")  # it is so already
            assert await outcome(phone, "again") == ("taken", "")
            phone.sends(**tap | {"choice": "ask", "was": "plan"}, key="stale")
            word, line = await outcome(phone, "stale")
            assert (word, "Somebody else changed the mode" in line) == ("refused", True)
            phone.sends(**tap | {"choice": "none"}, key="odd")
            assert (await outcome(phone, "odd"))[0] == "refused"
            sets = it.agent.params("session/set_mode")
            assert [each["modeId"] for each in sets] == ["auto"]


async def test_unsent_prompts_run_only_if_they_are_those_that_were_shown(tmp_path: Path) -> None:
    async with remote_bench(tmp_path, talks()) as it:
        session = await it.new()
        async with page(it, KnownLogins(it), session=session, client=NAME) as phone:
            await waiting(it, phone, session)
            phone.sends(do="run", session=session, prompts="of another time", key="k")
            assert await outcome(phone, "k") == ("refused", taps.UNSENT_CHANGED)
            assert len(it.agent.params("session/prompt")) == 1


# --- once ---------------------------------------------------------------------------------------


async def test_a_tap_that_comes_over_two_lines_is_carried_out_over_one_and_told_on_both(
    tmp_path: Path,
) -> None:
    agent = talks()
    reached, go_on = anyio.Event(), anyio.Event()

    async def slowly(process: Process, params: Json) -> Json:
        reached.set()
        await go_on.wait()
        return {}

    agent.script["session/set_mode"] = slowly
    async with remote_bench(tmp_path, agent) as it:
        session = await it.new()
        logins = KnownLogins(it)
        async with (
            page(it, logins, session=session, client=NAME) as phone,
            page(it, logins, session=session, client=OTHER) as tablet,
        ):
            tap = {"do": "set", "session": session, "kind": "mode", "choice": "auto", "key": "k"}
            phone.sends(**tap)
            await reached.wait()
            tablet.sends(**tap)
            await tablet.told_of("got")
            assert became(tablet, "k") == []
            go_on.set()
            for each in (phone, tablet):
                assert await outcome(each, "k") == ("taken", "")
            assert len(it.agent.params("session/set_mode")) == 1


async def test_a_tap_whose_line_is_cut_while_it_is_carried_out_is_so_over_the_next(
    tmp_path: Path,
) -> None:
    agent = talks()
    reached = anyio.Event()

    async def first_never(process: Process, params: Json) -> Json:
        if not reached.is_set():
            reached.set()
            await anyio.sleep_forever()
        return {}

    agent.script["session/set_mode"] = first_never
    async with remote_bench(tmp_path, agent) as it:
        session = await it.new()
        logins = KnownLogins(it)
        async with page(it, logins, session=session, client=OTHER) as tablet:
            tap = {"do": "set", "session": session, "kind": "mode", "choice": "auto", "key": "k"}
            async with page(it, logins, session=session, client=NAME) as phone:
                phone.sends(**tap)
                await reached.wait()
                tablet.sends(**tap)
                await tablet.told_of("got")
            assert await outcome(tablet, "k") == ("taken", "")


async def test_a_tap_taken_back_before_it_arrives_is_never_carried_out(tmp_path: Path) -> None:
    async with remote_bench(tmp_path, talks()) as it:
        session = await it.new()
        logins = KnownLogins(it)
        async with page(it, logins, session=session, client=NAME) as phone:
            phone.sends(do="prompt", session=session, text="wait", key="p")
            tap = {"do": "stop", "session": session, "prompt": await stops(phone), "key": "k"}
            server = await phone.told_of("server")
            phone.sends(do="back", key="k", server=server)
            assert await outcome(phone, "k") == ("undone", taps.TAKEN_BACK)
            phone.sends(do="back", key="lost", server="an earlier one")
            assert await outcome(phone, "lost") == ("undone", taps.PERHAPS_DONE)
            phone.told.clear()
            phone.sends(**tap)  # it was under way all the time
            assert await outcome(phone, "k") == ("refused", taps.TAKEN_BACK)
            assert it.agent.params("session/cancel") == []
            prompt = {"do": "prompt", "session": session, "text": "never", "key": "lost"}
            phone.sends(**prompt)
            assert (await outcome(phone, "lost"))[0] == "refused"
            phone.sends(**tap | {"key": "k2"})
            assert await outcome(phone, "k2") == ("taken", "")
            phone.told.clear()
            phone.sends(do="back", key="k2", server=server)
            assert await outcome(phone, "k2") == ("undone", taps.TOO_LATE)


async def test_a_closed_session_says_so_to_each_tap(tmp_path: Path) -> None:
    async with remote_bench(tmp_path, talks()) as it:
        owner = await it.remote()
        session = await it.new(owner)
        async with page(it, KnownLogins(it), session=session, client=NAME) as phone:
            owner.prompt(session, "wait")
            seen = await stops(phone)
            await owner.ask("_acp_bridge/close", {"sessionId": session})
            await until(lambda: [each for each in phone.told if "was closed" in str(each)])
            phone.sends(do="stop", session=session, prompt=seen, key="k")
            word, line = await outcome(phone, "k")
            assert word == "refused"
            assert line in (taps.CLOSED, taps.TURN_ENDED)


# --- rights -------------------------------------------------------------------------------------

TAPS: list[Json] = [
    {"do": "stop", "prompt": "turn:x"},
    {"do": "answer", "question": "x", "option": 0},
    {"do": "drop", "prompt": "x"},
    {"do": "move", "prompt": "x", "before": ""},
    {"do": "run", "prompts": "x"},
    {"do": "set", "kind": "mode", "choice": "auto"},
    {"do": "prompt", "text": "hello"},
]
APPROVES = ("stop", "answer")


@pytest.mark.hazard("N6.2")
@pytest.mark.parametrize("may", ["look", "approve"])
@pytest.mark.parametrize("tap", TAPS, ids=lambda tap: str(tap["do"]))
@pytest.mark.parametrize("shown", [True, False])
async def test_a_page_s_login_is_refused_what_it_may_not_do_shown_or_not(
    tmp_path: Path, may: str, tap: Json, shown: bool
) -> None:
    async with remote_bench(tmp_path, talks()) as it:
        owner = await it.remote()
        session = await it.new(owner)
        first: dict[str, Any] = {"session": session} if shown else {}
        async with page(it, KnownLogins(it, may), client=NAME, **first) as phone:
            await phone.told_of("opened" if shown else "view")
            phone.sends(**tap, session=session, key="k")
            word, line = await outcome(phone, "k")
            assert word == "refused"
            refusal = "may only look" if may == "look" else "and no more"
            allowed = may == "approve" and tap["do"] in APPROVES
            assert (refusal in line) is not allowed
            for method in ("session/prompt", "session/set_mode", "session/cancel"):
                assert it.agent.params(method) == []


async def test_an_unknown_message_of_a_page_is_dropped(tmp_path: Path) -> None:
    async with remote_bench(tmp_path) as it, page(it, KnownLogins(it)) as phone:
        for odd in ("close", "delete", "_take", None, 5, ["stop"]):
            phone.sends(do=odd, session="x", key="k")
        phone.sends(do="here")
        await phone.told_of("here")
        assert became(phone, "k") == []


# --- what is kept -------------------------------------------------------------------------------


def test_of_many_taps_and_logins_the_newest_are_known() -> None:
    every = AllReceipts()
    receipts = every.of("one")
    for number in range(2_000):
        receipts.end(receipts.begin(f"k{number}"), Outcome(True))
    assert receipts.find("k0") is None
    assert receipts.find("k1999") is not None
    assert every.of("one") is receipts
    for number in range(300):
        every.of(f"login {number}")
    assert every.of("one") is not receipts
    assert every.of("one").server == receipts.server


def test_a_tap_that_nobody_carries_out_any_more_may_arrive_again() -> None:
    receipts, told = Receipts(), list[object]()
    receipt = receipts.begin("k")
    receipt.when_known(told.append)
    receipts.end(receipt, None)
    assert told == [None]
    assert receipts.find("k") is None


def test_a_stop_of_a_turn_that_begins_is_for_the_turn_that_has_begun_and_for_no_later_one() -> None:
    begins: Json = {"state": "running", "last": {"promptId": "a"}}
    running = {**begins, "turn": {"promptId": "b"}}
    later = {**running, "turn": {"promptId": "c"}, "last": {"promptId": "b"}}
    works: Json = {"state": "working", "last": {"promptId": "a"}}
    idle: Json = {"state": "idle", "last": {"promptId": "a"}}
    key = taps.stop_key(begins)
    assert taps.stopped_by(key, begins) == {}
    assert taps.stopped_by(key, running) == {"promptId": "b"}
    assert taps.stopped_by(taps.stop_key(running), running) == {"promptId": "b"}
    assert taps.stopped_by(taps.stop_key(works), works) == {"promptId": None}
    late = [(key, later), (key, works), (key, idle), (taps.stop_key(works), running)]
    late += [(taps.stop_key(running), later), ("", idle), ("", running), ("turn:b", idle)]
    for shown, now in late:
        assert taps.stopped_by(shown, now) is None
