"""What a page holds out: long texts and links, storage that is full or forbidden, copied tabs."""

from pathlib import Path

import anyio
import pytest

from tests.core.sessions.agent import until
from tests.page_not_ours.browser import BOUND, Browser, BrowserPage
from tests.page_not_ours.site import Working, site, wired
from tests.page_not_ours.test_drafts import BOX, to_the_list, turn_to, two, write
from tests.page_not_ours.test_in_a_browser import LOGIN, SETTLED, log_in, prompt
from tests.page_not_ours.test_taps import ALLOW, CHIPS, UNSENT, answers, cancels, on_a_wire

HIDE = (
    "Object.defineProperty(document, 'visibilityState', {value: 'hidden', configurable: true});"
    "document.dispatchEvent(new Event('visibilitychange'))"
)
MODE = "document.querySelector('#set-mode').value"
SHOW = "delete document.visibilityState;document.dispatchEvent(new Event('visibilitychange'))"


async def test_a_prompt_that_is_too_long_for_the_server_is_said_to_be_and_blocks_nothing(
    chromium: Browser, tmp_path: Path
) -> None:
    async with site(tmp_path / "home", Working()) as there:
        one, _ = await two(there)
        page = await log_in(chromium, there, f"#s={one}")
        await page.value(
            """(() => { const box = document.querySelector('#prompt');
              box.value = 'ä'.repeat(600000); box.dispatchEvent(new Event('input')); })()"""
        )
        await page.click("#send")
        await page.shows("too long", "#line")
        assert await page.value(f"{BOX}.length") == 600000
        await page.value("(() => { document.querySelector('#prompt').value = ''; })()")
        await prompt(page, "short")
        await page.shows("Done with short.", "#pieces")
        assert there.it.agent.params("session/prompt")[0]["prompt"][0]["text"] == "short"


async def test_a_link_with_an_overlong_session_id_ends_no_login(
    chromium: Browser, tmp_path: Path
) -> None:
    async with site(tmp_path / "home", Working()) as there:
        secret = await (await log_in(chromium, there)).value(LOGIN)
        page = await chromium.page(there.at(f"#s={'a' * 9000}"))
        await page.shows("there is no such session", "#state")
        assert await page.value(LOGIN) == secret


async def test_other_sessions_are_reached_while_the_tab_s_storage_is_full(
    chromium: Browser, tmp_path: Path
) -> None:
    async with site(tmp_path / "home", Working()) as there:
        one, other = await two(there)
        page = await log_in(chromium, there, f"#s={one}")
        await prompt(page, "hello " + "w " * 1000)
        await page.shows("Done with", "#pieces")
        await page.value("window.scrollTo({top: 0, behavior: 'instant'})")
        await page.value(
            """(() => { let text = 'x'.repeat(1 << 20), n = 0;
              while (text.length) try { sessionStorage.setItem('full' + n++, text) }
                catch { text = text.slice(text.length / 2 + 1) } })()"""
        )
        await page.value(f"void (location.hash = '#s={other}')")
        await page.until(f"document.documentElement?.dataset.opened === {other!r}")
        await write(page, "for the other")
        await page.click("#send")
        await page.shows("Done with for the other.", "#pieces")
        assert page.complaints() == []


async def test_what_became_of_a_tap_is_there_to_read_when_the_page_is_looked_at_again(
    chromium: Browser, tmp_path: Path
) -> None:
    async with on_a_wire(chromium, tmp_path / "home", "ask me") as (line, there, page, _, session):
        await line.cut()
        await page.click(ALLOW)
        await page.value(HIDE)
        other = await there.it.holding("approve", session)
        (question,) = await other.got("session/request_permission")
        other.answers_with(question, {"outcome": {"outcome": "selected", "optionId": "no"}})
        await until(lambda: answers(there) == ["no"])
        line.mend()
        await page.until("document.querySelector('#line').textContent")
        await page.value(SHOW)
        await page.shows("It was no.", "#pieces")
        await anyio.sleep(0.5)
        await page.shows("Somebody else answered.", "#line")


async def choose(page: BrowserPage, mode: str) -> None:
    await page.value(
        f"""(() => {{ const mode = document.querySelector('#set-mode'); mode.value = '{mode}';
          mode.dispatchEvent(new Event('change', {{bubbles: true}})); }})()"""
    )


async def test_the_mode_that_was_chosen_last_is_the_one_that_is_shown_and_set(
    chromium: Browser, tmp_path: Path
) -> None:
    async with on_a_wire(chromium, tmp_path / "home") as (line, there, page, _, _session):
        await line.cut()
        for mode in ("auto", "ask", "auto"):
            await choose(page, mode)
            assert await page.value(MODE) == mode
        line.mend()
        await until(lambda: there.it.agent.params("session/set_mode"))
        await page.until(f"!{CHIPS}.length")
        await page.until(f"{MODE} === 'auto'")  # the server's own word comes behind its answer


@pytest.mark.parametrize("how", ["cut", "silent"])
async def test_who_changes_their_mind_about_the_mode_gets_what_they_chose_last(
    chromium: Browser, tmp_path: Path, how: str
) -> None:
    async with on_a_wire(chromium, tmp_path / "home") as (line, there, page, _, _session):
        line.fall_silent()
        for mode in ("auto", "ask"):
            await choose(page, mode)
        if how == "cut":
            await line.cut()
        line.mend()
        await page.until("!kept.taps.length")
        await page.until(f"{MODE} === 'ask'")
        sent = [each["modeId"] for each in there.it.agent.params("session/set_mode")]
        assert sent in ([], ["auto", "ask"])
        assert await page.value("document.querySelector('#line').innerText") == ""


async def test_a_login_that_comes_after_a_log_out_is_shown_nothing_of_the_first(
    chromium: Browser, tmp_path: Path
) -> None:
    async with site(tmp_path / "home", Working()) as there:
        one, _ = await two(there)
        page = await log_in(chromium, there, f"#s={one}")
        await prompt(page, "secret words")
        await page.shows("Done with secret", "#pieces")
        await to_the_list(page)
        await page.shows("secret words", "#sessions")
        await page.click("#find")
        await page.type("secret")
        await page.until("document.querySelectorAll('#sessions li').length === 1")
        await page.click("#logout")
        await page.until("!document.querySelector('#login').hidden")
        assert "secret" not in await page.value("document.documentElement.outerHTML")
        assert await page.value("document.querySelector('#find').value") == ""


@pytest.mark.parametrize("may", ["all", "approve"])
@pytest.mark.parametrize("width", [320, 390, 1280])
async def test_what_is_said_of_a_stop_takes_its_button_from_under_no_finger(
    chromium: Browser, tmp_path: Path, width: int, may: str
) -> None:
    async with wired(tmp_path / "home") as line, line.serving(Working()) as there:
        owner = await there.it.remote()
        session = await there.it.new(owner)
        page = await chromium.page(there.at(f"#code={there.code(may)}"), width)
        await page.until("document.querySelector('#list')?.hidden === false")
        owner.prompt(session, "wait for me")
        await page.value(f"void (location.hash = '#s={session}')")
        stop = "#stop" if may == "all" else "#stop-alone"
        await page.until(f"document.querySelector({stop!r})?.hidden === false")
        await line.cut()
        await page.shows("No connection", "#link")
        place = (
            f"(({{left, top, width, height}}) => [left, top, width, height].map(Math.round))"
            f"(document.querySelector({stop!r}).getBoundingClientRect())"
        )
        before = await page.value(place)
        await page.click(stop)
        await page.shows(UNSENT, "#foot .unsent")
        after = await page.value(place)
        assert [abs(one - other) <= 1 for one, other in zip(before, after, strict=True)] == [
            True
        ] * 4, (before, after)
        await page.click(stop)
        assert len(await page.value(CHIPS)) == 1
        line.mend()
        await until(lambda: cancels(there) == 1)


async def copied(chromium: Browser, page: BrowserPage) -> BrowserPage:
    """Copy a tab with what it stores, as a browser's "Duplicate" does, into a window."""

    async def tabs() -> set[str]:
        found = (await chromium.do("Target.getTargets"))["targetInfos"]
        return {each["targetId"] for each in found}

    before, new = await tabs(), set[str]()
    opens = "void window.open(location.href, '_blank', 'width=500,height=700')"
    await page.do("Runtime.evaluate", expression=opens, userGesture=True)
    with anyio.fail_after(BOUND):
        while not new:
            await anyio.sleep(0.02)
            new = await tabs() - before
    (target,) = new
    found = await chromium.do("Target.attachToTarget", targetId=target, flatten=True)
    return BrowserPage(chromium, found["sessionId"], target)


async def test_a_copy_of_a_tab_takes_nothing_from_the_first_one(
    chromium: Browser, tmp_path: Path
) -> None:
    async with site(tmp_path / "home", Working()) as there:
        one, _ = await two(there)
        page = await log_in(chromium, there, f"#s={one}")
        name = await page.value("sessionStorage.client")
        await page.reload()
        await page.until(f"document.documentElement?.dataset.opened === {one!r}")
        assert await page.value("sessionStorage.client") == name
        copy = await copied(chromium, page)
        await copy.until(f"document.documentElement?.dataset.opened === {one!r}")
        await prompt(copy, "ask me")
        for each in (copy, page):
            await each.shows("The agent asks", "#questions")
            await each.shows("open in 2 places", "#state")
        await anyio.sleep(SETTLED)
        await page.click(ALLOW)
        for each in (copy, page):
            await each.shows("It was yes.", "#pieces")


async def test_a_page_without_storage_says_so(chromium: Browser, tmp_path: Path) -> None:
    async with site(tmp_path / "home", Working()) as there:
        page = await chromium.page("about:blank")
        await page.do(
            "Page.addScriptToEvaluateOnNewDocument",
            source="""for (const each of ['localStorage', 'sessionStorage'])
              Object.defineProperty(window, each,
                {get() { throw new DOMException('denied', 'SecurityError'); }});""",
        )
        await page.do("Page.navigate", url=there.at(f"#code={there.code()}"))
        await page.shows("can't store the login", "#link")
        await page.shows("No sessions yet")
        session = await there.it.new()
        await page.value(f"void (location.hash = '#s={session}')")
        await page.until("document.documentElement.dataset.opened")
        await prompt(page, "hello")
        await page.shows("Done with hello.", "#pieces")
        assert page.complaints() == []


async def test_stops_of_two_sessions_that_are_not_shown_are_both_carried_out(
    chromium: Browser, tmp_path: Path
) -> None:
    async with site(tmp_path / "home", Working()) as there:
        one, other = await two(there)
        page = await log_in(chromium, there, f"#s={one}")
        for each in (one, other):
            await turn_to(page, each)
            await prompt(page, "wait for me")
            await page.until("document.querySelector('#stop')?.hidden === false")
        await page.value(
            """void (window.sends = WebSocket.prototype.send,
              WebSocket.prototype.send = function (message) {
                if (!message.includes('"stop"')) sends.call(this, message); })"""
        )
        await page.click("#stop")
        await turn_to(page, one)
        await page.until("document.querySelector('#stop')?.hidden === false")
        await page.click("#stop")
        await to_the_list(page)
        await page.value("void (WebSocket.prototype.send = sends, socket.close())")
        await page.until("!kept.taps.length")
        await until(lambda: cancels(there) == 2)
        assert await page.value("document.querySelector('#link').innerText") == ""


async def test_a_prompt_that_is_refused_is_a_draft_again_before_what_was_typed_since(
    chromium: Browser, tmp_path: Path
) -> None:
    async with wired(tmp_path / "home") as line, line.serving(Working()) as there:
        one, _ = await two(there)
        page = await log_in(chromium, there, f"#s={one}")
        await line.cut()
        await write(page, "for nobody")
        await page.click("#send")
        await page.shows(UNSENT, ".unsent")
        await page.value(
            """(() => { const box = document.querySelector('#prompt'); box.value = 'another';
              box.dispatchEvent(new Event('input')); })()"""
        )
        owner = await there.it.remote()
        await owner.ask("session/delete", {"sessionId": one})
        line.mend()
        await page.until(f"{BOX} === 'for nobody\\n\\nanother'")
        await page.until("document.querySelector('#line').innerText")


async def test_another_login_in_the_tab_is_told_what_is_never_sent(
    chromium: Browser, tmp_path: Path
) -> None:
    async with on_a_wire(chromium, tmp_path / "home") as (line, there, page, _, _session):
        await line.cut()
        await page.click("#stop")
        await page.value(f"void (location.hash = '#code={there.code()}')")
        await page.shows("No connection", "#link")
        line.mend()
        await page.value(f"void (location.hash = '#code={there.code()}')")
        await page.shows("What was not sent yet is never sent.", "#link")
        assert cancels(there) == 0


async def test_an_answer_is_kept_and_taken_back_by_keys(chromium: Browser, tmp_path: Path) -> None:
    async with on_a_wire(chromium, tmp_path / "home", "ask me") as (line, there, page, _, _s):
        await line.cut()
        for selector in (".answers .deny", "[data-back]"):
            await page.until(f"document.querySelector({selector!r})?.checkVisibility()")
            await page.value(f"document.querySelector({selector!r}).focus()")
            for kind in ("keyDown", "keyUp"):
                enter = {"key": "Enter", "code": "Enter", "windowsVirtualKeyCode": 13}
                await page.do("Input.dispatchKeyEvent", type=kind, text="\r", **enter)
        await page.until("!kept.taps.length")
        assert await page.value("document.activeElement.id") == "main"
        line.mend()
        await page.until("document.querySelector('#link').innerText === ''")
        await page.shows("The agent asks", "#questions")
        await anyio.sleep(SETTLED)
        assert answers(there) == []
        await page.click(ALLOW)
        await until(lambda: answers(there) == ["yes"])
