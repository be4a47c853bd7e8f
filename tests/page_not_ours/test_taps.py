"""Taps over lines that are cut, dead or slow: each is kept, sent again, or taken back."""

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
import pytest

from tests.core.sessions.agent import until
from tests.page_not_ours.browser import Browser, BrowserPage
from tests.page_not_ours.site import Site, Wired, Working, site, wired
from tests.page_not_ours.test_in_a_browser import SETTLED, VIOLATIONS, log_in, prompt

ALLOW, REJECT = ".answers .allow", ".answers .deny"
UNSENT = "not sent yet"
TOO_WIDE = "document.documentElement.scrollWidth - document.documentElement.clientWidth"
CHIPS = "[...document.querySelectorAll('.unsent')].map((each) => each.innerText)"


@asynccontextmanager
async def on_a_wire(
    chromium: Browser, home: Path, said: str = "wait for me"
) -> AsyncIterator[tuple[Wired, Site, BrowserPage, Working, str]]:
    """A page at the end of a wire that has sent a prompt, and is shown its turn."""
    working = Working()
    async with wired(home) as line, line.serving(working) as there:
        session = await there.it.new()
        page = await log_in(chromium, there, f"#s={session}")
        await prompt(page, said)
        if "ask" in said:
            await page.shows("The agent asks", "#questions")
            await anyio.sleep(SETTLED)
        else:
            await page.until("document.querySelector('#stop')?.hidden === false")
        yield line, there, page, working, session


async def goes(line: Wired, how: str) -> None:
    if how == "cut":
        await line.cut()
    else:
        line.fall_silent()


def cancels(there: Site) -> int:
    return len(there.it.agent.params("session/cancel"))


def answers(there: Site) -> list[str]:
    """What the agent was answered, as the options' ids."""
    processes = there.it.agent.processes
    found = [each for process in processes for each in process.received if each.get("id") == 77]
    return [each["result"]["outcome"].get("optionId", "cancelled") for each in found]


@pytest.mark.parametrize("how", ["cut", "silent"])
async def test_a_stop_over_a_line_that_is_down_stops_its_turn_when_the_line_is_back(
    chromium: Browser, tmp_path: Path, how: str
) -> None:
    async with on_a_wire(chromium, tmp_path / "home") as (line, there, page, _, _session):
        await goes(line, how)
        await page.click("#stop")
        await page.shows(UNSENT, ".unsent")
        assert cancels(there) == 0
        line.mend()
        await page.shows("Stopped.", "#pieces")
        await page.until(f"!{CHIPS}.length")
        assert cancels(there) == 1


@pytest.mark.parametrize("how", ["cut", "silent"])
@pytest.mark.parametrize(("option", "chosen"), [(ALLOW, "yes"), (REJECT, "no")])
async def test_an_answer_over_a_line_that_is_down_reaches_its_question_when_the_line_is_back(
    chromium: Browser, tmp_path: Path, how: str, option: str, chosen: str
) -> None:
    async with on_a_wire(chromium, tmp_path / "home", "ask me") as (line, there, page, _, _s):
        await goes(line, how)
        await page.click(option)
        await page.shows(UNSENT, ".question")
        assert answers(there) == []
        line.mend()
        await page.shows(f"It was {chosen}.", "#pieces")
        await page.until(f"!{CHIPS}.length")
        assert answers(there) == [chosen]


async def test_a_stop_that_comes_late_ends_no_later_turn_and_says_so(
    chromium: Browser, tmp_path: Path
) -> None:
    async with on_a_wire(chromium, tmp_path / "home") as (line, there, page, working, session):
        owner = await there.it.holding("all", session)
        await line.cut()
        await page.click("#stop")
        await page.shows(UNSENT, ".unsent")
        working.go_on.set()
        await until(lambda: "Done with wait for me." in str(owner.out.messages))
        working.go_on = anyio.Event()
        later = owner.prompt(session, "wait again")
        await until(lambda: len(there.it.agent.params("session/prompt")) == 2)
        line.mend()
        await page.shows("The turn had already ended.", "#line")
        await page.until(f"!{CHIPS}.length")
        await page.until("document.querySelector('#stop')?.hidden === false")
        assert cancels(there) == 0
        await page.click("#stop")
        assert await owner.stop_reason(later) == "cancelled"
        assert cancels(there) == 1


async def test_an_answer_after_somebody_else_s_comes_to_nothing_and_says_so(
    chromium: Browser, tmp_path: Path
) -> None:
    async with on_a_wire(chromium, tmp_path / "home", "ask me") as (line, there, page, _, session):
        await line.cut()
        await page.click(ALLOW)
        other = await there.it.holding("approve", session)
        (question,) = await other.got("session/request_permission")
        other.answers_with(question, {"outcome": {"outcome": "selected", "optionId": "no"}})
        await until(lambda: answers(there) == ["no"])
        line.mend()
        await page.shows("Somebody else answered.", "#line")
        await page.until(f"!{CHIPS}.length")
        assert answers(there) == ["no"]


async def test_an_answer_does_not_count_for_a_question_that_the_agent_has_changed(
    chromium: Browser, tmp_path: Path
) -> None:
    async with on_a_wire(chromium, tmp_path / "home", "ask me") as (line, there, page, _, _s):
        await line.cut()
        await page.click(ALLOW)
        (process,) = there.it.agent.living
        changed = {"toolCallId": "t", "rawInput": {"command": "rm -rf /"}}
        process.shows("agent-1", {"sessionUpdate": "tool_call_update", **changed})
        line.mend()
        await page.shows("rm -rf /", ".question")
        await page.shows("The agent changed its question.", "#line")
        assert answers(there) == []
        await anyio.sleep(SETTLED)
        await page.click(REJECT)
        await page.shows("It was no.", "#pieces")


async def test_a_tap_is_kept_over_a_reload(chromium: Browser, tmp_path: Path) -> None:
    async with on_a_wire(chromium, tmp_path / "home") as (_line, there, page, _, _session):
        await page.value("void (WebSocket.prototype.send = () => {})")
        await page.click("#stop")
        await page.shows(UNSENT, ".unsent")
        assert cancels(there) == 0
        await page.reload()
        await page.shows("Stopped.", "#pieces")
        await page.until(f"!{CHIPS}.length")
        assert cancels(there) == 1


async def test_a_tap_that_was_not_sent_is_taken_back_and_never_sent(
    chromium: Browser, tmp_path: Path
) -> None:
    async with on_a_wire(chromium, tmp_path / "home") as (line, there, page, working, _session):
        await line.cut()
        await page.click("#stop")
        await page.shows(UNSENT, ".unsent")
        await page.click("[data-back]")
        await page.shows("It was not sent.", "#line")
        assert await page.value(CHIPS) == []
        line.mend()
        await page.until("document.querySelector('#link').innerText === ''")
        await page.reload()
        await page.until("document.querySelector('#stop')?.hidden === false")
        assert cancels(there) == 0
        working.go_on.set()
        await page.shows("Done with wait for me.", "#pieces")


async def test_what_is_said_of_a_tap_taken_back_over_a_silent_line_is_true(
    chromium: Browser, tmp_path: Path
) -> None:
    async with on_a_wire(chromium, tmp_path / "home") as (line, there, page, working, _session):
        line.fall_silent()
        await page.click("#stop")
        await page.shows(UNSENT, ".unsent")
        await page.click("[data-back]")
        await page.shows("it may already have been sent", ".unsent")
        line.mend()
        said = await page.until("document.querySelector('#line').innerText")
        assert ("not carried out" in said) is (cancels(there) == 0), said
        await page.until(f"!{CHIPS}.length")
        working.go_on.set()
        await page.shows("Stopped." if cancels(there) else "Done with wait for me.", "#pieces")
        assert ("not carried out" in said) is (cancels(there) == 0), said


async def test_a_tap_whose_confirmation_was_lost_is_carried_out_once(
    chromium: Browser, tmp_path: Path
) -> None:
    async with on_a_wire(chromium, tmp_path / "home", "ask me") as (_line, there, page, _, session):
        owner = await there.it.holding("all", session)
        await page.value("void (socket.onmessage = () => {})")
        await page.click(ALLOW)
        await until(lambda: answers(there) == ["yes"])
        await until(lambda: "Done with ask me." in str(owner.out.messages))
        await page.shows(UNSENT, "body")
        await page.shows("Done with ask me.", "#pieces")
        await page.until(f"!{CHIPS}.length")
        assert await page.value("document.querySelector('#line').innerText") == ""
        assert answers(there) == ["yes"]


async def test_a_tap_is_kept_while_no_server_runs_and_the_next_one_says_what_became_of_it(
    chromium: Browser, tmp_path: Path
) -> None:
    working = Working()
    async with wired(tmp_path / "home") as line:
        async with line.serving(working) as there:
            session = await there.it.new()
            page = await log_in(chromium, there, f"#s={session}")
            await prompt(page, "wait for me")
            await page.until("document.querySelector('#stop')?.hidden === false")
            await line.cut()
            await page.click("#stop")
            await page.shows(UNSENT, ".unsent")
        line.mend()
        async with line.serving(working):
            await page.shows("The turn had already ended.", "#line")
            await page.until(f"!{CHIPS}.length")


async def test_a_tap_of_another_session_than_the_one_shown_is_carried_out_there(
    chromium: Browser, tmp_path: Path
) -> None:
    async with on_a_wire(chromium, tmp_path / "home", "ask me") as (line, there, page, _, _s):
        other = await there.it.new()
        await line.cut()
        await page.click(ALLOW)
        await page.value(f"void (location.hash = '#s={other}')")
        await page.shows(UNSENT, "#taps")
        line.mend()
        await until(lambda: answers(there) == ["yes"])
        await page.until(f"!{CHIPS}.length")


async def test_the_mode_the_queue_and_a_prompt_are_kept_in_their_order(
    chromium: Browser, tmp_path: Path
) -> None:
    async with on_a_wire(chromium, tmp_path / "home") as (line, there, page, working, _session):
        await prompt(page, "second")
        await prompt(page, "third")
        await page.shows("third", "#queue")
        await anyio.sleep(SETTLED)
        await line.cut()
        await page.click("#queue li:nth-child(2) [data-by], #queue li:nth-child(2) button")
        await page.click("#queue li:nth-child(1) [data-do=drop]")
        await page.value(
            """(() => { const mode = document.querySelector('#set-mode'); mode.value = 'auto';
              mode.dispatchEvent(new Event('change', {bubbles: true})); })()"""
        )
        await page.click("#prompt")
        await page.type("fourth")
        await page.click("#send")
        await page.until(f"{CHIPS}.length === 4")
        line.mend()
        await page.until(f"!{CHIPS}.length")
        await page.shows("fourth", "#queue")
        await page.until("!document.querySelector('#queue').innerText.includes('second')")
        await page.until("document.querySelector('#set-mode').value === 'auto'")
        working.go_on.set()
        await page.shows("Done with fourth.", "#pieces")
        words = [each["prompt"][0]["text"] for each in there.it.agent.params("session/prompt")]
        assert words == ["wait for me", "third", "fourth"]


async def test_a_log_out_without_a_line_leaves_nothing_in_the_browser_and_says_what_is_left(
    chromium: Browser, tmp_path: Path
) -> None:
    async with on_a_wire(chromium, tmp_path / "home") as (line, there, page, _, _session):
        await line.cut()
        await page.click("#stop")
        await page.click("#prompt")
        await page.type("a draft")
        await page.value("void (location.hash = '')")
        await page.click("#logout")
        await page.shows("acp-bridge serve revoke phone-1", "#link")
        assert await page.value("localStorage.length + sessionStorage.length") == 0
        line.mend()
        await page.reload()
        await page.shows("Code", "#login")
        assert cancels(there) == 0


async def test_the_taps_of_a_login_that_was_revoked_are_gone_and_the_page_says_so(
    chromium: Browser, tmp_path: Path
) -> None:
    async with on_a_wire(chromium, tmp_path / "home") as (line, there, page, _, session):
        await line.cut()
        await page.click("#stop")
        there.tokens.remove("phone-1")
        line.mend()
        await page.shows("What was not sent yet is never sent.", "#link")
        await page.value(f"void (location.href = '/#code={there.code()}')")
        await page.until("document.querySelector('#list')?.hidden === false")
        await page.value(f"void (location.hash = '#s={session}')")
        await page.until("document.querySelector('#stop')?.hidden === false")
        assert cancels(there) == 0


async def test_a_tap_for_a_session_that_was_closed_meanwhile_says_so(
    chromium: Browser, tmp_path: Path
) -> None:
    async with on_a_wire(chromium, tmp_path / "home", "ask me") as (line, there, page, _, session):
        owner = await there.it.remote()
        await line.cut()
        await page.click(ALLOW)
        await owner.ask("_acp_bridge/close", {"sessionId": session})
        line.mend()
        await page.shows("The turn", "#line")
        assert answers(there) in ([], ["cancelled"])


async def test_who_may_approve_has_kept_taps_too(chromium: Browser, tmp_path: Path) -> None:
    async with wired(tmp_path / "home") as line, line.serving(Working()) as there:
        owner = await there.it.remote()
        session = await there.it.new(owner)
        page = await chromium.page(there.at(f"#code={there.code('approve')}"))
        await page.shows("Sessions", "h1")
        await page.until("document.querySelector('#list')?.hidden === false")
        sent = owner.prompt(session, "wait for me")
        await page.value(f"void (location.hash = '#s={session}')")
        await page.until("document.querySelector('#stop-alone')?.hidden === false")
        await line.cut()
        await page.click("#stop-alone")
        await page.shows(UNSENT, ".unsent")
        line.mend()
        assert await owner.stop_reason(sent) == "cancelled"


async def test_a_finger_that_came_down_on_one_turn_s_stop_does_not_end_the_next_one(
    chromium: Browser, tmp_path: Path
) -> None:
    working = Working()
    async with site(tmp_path / "home", working) as there:
        session = await there.it.new()
        page = await log_in(chromium, there, f"#s={session}")
        await prompt(page, "wait for me")
        await prompt(page, "ask me")
        await page.shows("ask me", "#queue")
        first = await page.until("document.querySelector('#stop').dataset.prompt")
        await page.value(
            """void document.querySelector('#stop').dispatchEvent(
                new Event('pointerdown', {bubbles: true}))"""
        )
        working.go_on.set()
        await page.until(f"document.querySelector('#stop').dataset.prompt !== {first!r}")
        await page.until("document.querySelector('#stop').dataset.prompt")
        await page.value(
            """document.querySelector('#stop').dispatchEvent(
                new MouseEvent('click', {bubbles: true, detail: 1}))"""
        )
        await page.shows("The turn had already ended.", "#line")
        assert cancels(there) == 0


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
async def test_everybody_can_use_what_is_not_sent_yet(
    chromium: Browser, tmp_path: Path, axe: str, dark: bool
) -> None:
    async with on_a_wire(chromium, tmp_path / "home", "ask me") as (line, _there, page, _, session):
        await page.look(390, dark=dark)
        await prompt(page, "and then")
        await page.shows("and then", "#queue")
        await anyio.sleep(SETTLED)
        await line.cut()
        for what in (ALLOW, "#queue [data-do=drop]", "#stop"):
            await page.click(what)
        await page.click("#prompt")
        await page.type("a prompt of some words")
        await page.click("#send")
        await page.until(f"{CHIPS}.length === 4")
        await page.value(f"{axe}; undefined")
        assert await page.value(VIOLATIONS) == []
        for width, scale in ((320, 1.0), (640, 2.0)):
            await page.look(width, dark=dark, scale=scale)
            assert await page.value(TOO_WIDE) <= 0, (width, scale)
        small = await page.value(
            """[...document.querySelectorAll('.unsent button')]
              .map((each) => each.getBoundingClientRect())
              .filter((at) => at.width && (at.width < 44 || at.height < 44)).length"""
        )
        assert small == 0
        if pictures := os.environ.get("PICTURES"):
            await page.look(390, dark=dark)
            await page.picture(Path(pictures) / f"unsent-{dark}.png")
            await page.value(f"void (location.hash = '#s={session}x')")
            await anyio.sleep(0.3)
            await page.picture(Path(pictures) / f"elsewhere-{dark}.png")
