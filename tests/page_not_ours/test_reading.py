"""What stays when one reads a session in a browser: the place, the opened outputs, the buttons."""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import anyio
import pytest

from tests.page_not_ours.browser import Browser, BrowserPage
from tests.page_not_ours.site import Site, site
from tests.page_not_ours.talking import Talking
from tests.page_not_ours.test_in_a_browser import SETTLED, _judge, log_in, prompt
from tests.remote.serve.test_page_list import aged, filled

#: the text and the place of the first message that is seen whole below the header.
READS = """(() => {
  const edge = document.querySelector('header').getBoundingClientRect().bottom;
  const found = [...document.querySelectorAll('#pieces > article')]
    .find((each) => each.getBoundingClientRect().top >= edge);
  return found && [found.innerText, Math.round(found.getBoundingClientRect().top)];
})()"""
AT_END = "document.documentElement.scrollHeight - scrollY - innerHeight < 80"
#: True if all of an element is on the screen, and nothing lies over its middle.
SEEN = """(() => {
  const found = document.querySelector(SELECTOR);
  if (!found?.checkVisibility()) return false;
  const at = found.getBoundingClientRect();
  const over = document.elementFromPoint(at.x + at.width / 2, at.y + at.height / 2);
  return at.top >= 0 && at.bottom <= innerHeight && at.left >= 0 && at.right <= innerWidth
    && found.contains(over);
})()"""


def seen(selector: str) -> str:
    return SEEN.replace("SELECTOR", repr(selector))


def to(selector: str) -> str:
    """Scroll so that the top of an element is somewhat below the header."""
    there = f"document.querySelector({selector!r}).getBoundingClientRect().top"
    return f"void window.scrollBy({{top: {there} - 120, behavior: 'instant'}})"


def is_at(before: list[Any]) -> str:
    """True if the first message that is seen is the same, at the same height but for a pixel."""
    text, top = before
    return f"(([text, top]) => text === {json.dumps(text)} && Math.abs(top - {top}) < 3)({READS})"


@dataclass
class Read:
    """A page in the middle of a session of many pieces, with one output open."""

    there: Site
    page: BrowserPage
    session: str
    talking: Talking
    before: Any = None

    async def others(self, text: str) -> None:
        """Let another client prompt, and wait for the end of the turn."""
        owner = await self.there.it.remote()
        setup = {**self.there.it.setup(), "sessionId": self.session}
        await owner.ask("session/load", setup)
        assert await owner.stop_reason(owner.prompt(self.session, text)) == "end_turn"
        owner.leaves()
        await owner.parted.wait()

    async def is_as_before(self) -> None:
        """Wait until the place, and the open output, are what they were."""
        await self.page.until("document.documentElement.dataset.opened")
        await self.page.until(is_at(self.before))
        await self.page.until("document.querySelectorAll('#pieces details[open]').length === 1")


@asynccontextmanager
async def reading(chromium: Browser, there: Site, talking: Talking) -> AsyncIterator[Read]:
    session = await there.it.new()
    page = await log_in(chromium, there, f"#s={session}")
    await prompt(page, "say 20 card 1 say 40 card 1 say 40")
    await page.shows("Message 102 ", "#pieces")
    await page.until("document.querySelector('#stop').hidden")
    await page.click("#p63 summary")
    await page.until("document.querySelector('#p63 details').open")
    await page.value(to("#p60"))
    await page.value("new Promise((done) => requestAnimationFrame(() => setTimeout(done, 50)))")
    it = Read(there, page, session, talking)
    it.before = await page.value(READS)
    assert "Message 59 " in it.before[0]
    yield it


@dataclass
class Cut:
    """Ways to lose the server, and to have it again."""

    name: str
    lose: str
    come_back: str = ""
    #: the page is loaded anew, and so is the session.
    anew: bool = False


CUTS = [
    Cut("cut", "socket.close(); connect = ((real) => () => setTimeout(real, 500))(connect)"),
    Cut(
        "silently dead",
        "socket.send = () => {}; socket.onmessage = () => {};",
        "heard = -1e6; document.dispatchEvent(new Event('visibilitychange'))",
    ),
    Cut(
        "hidden",
        "Object.defineProperty(document, 'visibilityState', {value: 'hidden', configurable: true});"
        "document.dispatchEvent(new Event('visibilitychange'))",
        "delete document.visibilityState;document.dispatchEvent(new Event('visibilitychange'))",
    ),
    Cut("reload", "", "location.reload()", anew=True),
    Cut("list", "document.querySelector('#back').click()", "history.back()"),
]


@pytest.mark.parametrize("cut", CUTS, ids=lambda cut: cut.name)
async def test_who_comes_back_is_where_they_were_and_outputs_are_open_still(
    chromium: Browser, tmp_path: Path, cut: Cut
) -> None:
    talking = Talking()
    async with (
        site(tmp_path / "home", talking.agent) as there,
        reading(chromium, there, talking) as it,
    ):
        before = len(it.page.frames())
        await it.page.value(f"void (() => {{ {cut.lose} }})()")
        await it.others("say 3")
        await it.page.value(f"void (() => {{ {cut.come_back} }})()")
        await it.page.shows("Message 105 ", "#pieces")
        await it.is_as_before()
        assert it.page.complaints() == []
        if not cut.anew:
            sent = it.page.frames()[before:]
            assert sum(map(len, sent)) < 10_000
            assert not any('"put": "pieces"' in each for each in sent)


async def test_a_server_that_was_restarted_finds_the_reader_where_they_were(
    chromium: Browser, tmp_path: Path
) -> None:
    talking = Talking()
    async with (
        site(tmp_path / "home", talking.agent) as there,
        reading(chromium, there, talking) as it,
    ):
        page, before, session = it.page, it, it.session
        port = int(there.url.rpartition(":")[2])
    await page.shows("No connection", "#link")
    async with site(tmp_path / "home", talking.agent, port) as there:
        owner = await there.it.remote()
        await owner.ask("session/load", {**there.it.setup(), "sessionId": session})
        assert await owner.stop_reason(owner.prompt(session, "say 3")) == "end_turn"
        await page.shows("Message 105 ", "#pieces")
        await before.is_as_before()


async def test_what_comes_while_one_reads_above_moves_nothing_and_is_counted(
    chromium: Browser, tmp_path: Path, axe: str
) -> None:
    talking = Talking()
    async with (
        site(tmp_path / "home", talking.agent) as there,
        reading(chromium, there, talking) as it,
    ):
        await it.page.until("document.querySelector('#jump').innerText === 'Newest ↓'")
        await it.others("say 2")
        await it.page.shows("Message 104 ", "#pieces")
        await it.page.until("document.querySelector('#jump').innerText === '3 new ↓'")
        await it.is_as_before()
        await _judge(it.page, axe)
        await it.page.click("#jump")
        await it.page.until(AT_END)
        await it.page.until("document.querySelector('#jump').hidden")
        await it.others("say 2")
        await it.page.shows("Message 106 ", "#pieces")
        assert await it.page.value(AT_END)


async def test_earlier_pieces_can_be_had_up_to_the_very_first(
    chromium: Browser, tmp_path: Path
) -> None:
    talking = Talking()
    async with site(tmp_path / "home", talking.agent) as there:
        session = await there.it.new()
        page = await log_in(chromium, there, f"#s={session}")
        await prompt(page, "say 350")
        await page.shows("Message 350 ", "#pieces")
        await page.reload()
        await page.shows("Message 300 ", "#pieces")
        await page.value(to("#p280"))
        before = await page.value(READS)
        for left in ("Show 100 of 251", "Show 100 of 151", "Show 51 earlier"):
            await page.shows(left, "#earlier")
            await page.value("document.querySelector('#earlier button').click()")
        await page.until("document.querySelectorAll('#pieces > article').length === 351")
        assert await page.value(is_at(before))
        assert await page.value("document.querySelector('#pieces').innerText.startsWith('User')")
        ids = (
            "[...document.querySelectorAll('#pieces > *')].map((each) => Number(each.id.slice(1)))"
        )
        assert await page.value(ids) == list(range(1, 352))


async def test_a_reload_finds_a_place_far_above_what_is_shown_first(
    chromium: Browser, tmp_path: Path
) -> None:
    talking = Talking()
    async with site(tmp_path / "home", talking.agent) as there:
        owner = await there.it.remote()
        session = await there.it.new(owner)
        assert await owner.stop_reason(owner.prompt(session, "say 2000")) == "end_turn"
        page = await log_in(chromium, there, f"#s={session}")
        for pieces in range(200, 1700, 100):
            await page.value("document.querySelector('#earlier button').click()")
            await page.until(f"document.querySelectorAll('#pieces > article').length >= {pieces}")
        await page.value(to("#p600"))
        await page.value("new Promise((done) => requestAnimationFrame(() => setTimeout(done, 50)))")
        before = await page.value(READS)
        await page.reload()
        await page.until("document.documentElement?.dataset.opened")
        await page.until(is_at(before))


async def test_an_output_that_was_opened_at_the_end_stays_where_it_is_read(
    chromium: Browser, tmp_path: Path
) -> None:
    talking = Talking()
    async with site(tmp_path / "home", talking.agent) as there:
        owner = await there.it.remote()
        session = await there.it.new(owner)
        assert await owner.stop_reason(owner.prompt(session, "say 20 card")) == "end_turn"
        page = await log_in(chromium, there, f"#s={session}")
        await page.shows("Message 20 ", "#pieces")
        await page.value("document.querySelector('#pieces summary').click()")
        await page.until("document.querySelector('#pieces details').open")
        frame = "new Promise((done) => requestAnimationFrame(() => setTimeout(done, 50)))"
        await page.value(frame)
        before = await page.value("scrollY")
        await page.value("say('line', 'The turn had already ended.')")
        await page.value(frame)
        assert await page.value("scrollY") == before


@pytest.mark.parametrize(("width", "height"), [(320, 480), (320, 300), (390, 844), (1280, 800)])
async def test_prompt_and_stop_are_at_the_bottom_and_answers_can_be_reached(
    chromium: Browser, tmp_path: Path, width: int, height: int
) -> None:
    talking = Talking()
    async with site(tmp_path / "home", talking.agent) as there:
        session = await there.it.new()
        page = await log_in(chromium, there, f"#s={session}")
        await page.look(width, height=height)
        await prompt(page, "say 30 ask")
        await page.shows("The agent asks", "#questions")
        for place in ("0", "document.documentElement.scrollHeight"):
            await page.value(f"window.scrollTo({{top: {place}, behavior: 'instant'}})")
            for selector in ("#prompt", "#stop", "#send"):
                await page.until(seen(selector))
        await page.value("window.scrollTo({top: 0, behavior: 'instant'})")
        await page.until("document.querySelector('#jump').innerText === 'The agent asks ↓'")
        await page.click("#jump")
        await page.until(AT_END)
        for selector in (".answers .allow", ".answers .deny"):
            await page.value(
                f"document.querySelector({selector!r}).scrollIntoView({{block: 'nearest'}})"
            )
            await page.until(seen(selector))
        await anyio.sleep(SETTLED)
        await page.click(".answers .deny")
        await page.until("!document.querySelector('.question')")


async def test_a_wide_table_scrolls_in_its_own_box_and_breaks_no_word(
    chromium: Browser, tmp_path: Path
) -> None:
    talking = Talking()
    async with site(tmp_path / "home", talking.agent) as there:
        session = await there.it.new()
        page = await log_in(chromium, there, f"#s={session}")
        await page.look(320)
        await prompt(page, "table")
        await page.shows("Donaudampf", "#pieces")
        box = "document.querySelector('.wide')"
        assert await page.value(f"{box}.scrollWidth > {box}.clientWidth")
        whole = "document.documentElement"
        assert await page.value(f"{whole}.scrollWidth <= {whole}.clientWidth")
        lines = """[...document.querySelectorAll('td, th')].every((each) => {
          const range = document.createRange();
          return [...each.textContent.matchAll(/[^\\s]+/g)].every((word) => {
            const text = document.createTreeWalker(each, NodeFilter.SHOW_TEXT).nextNode();
            range.setStart(text, word.index);
            range.setEnd(text, word.index + word[0].length);
            return range.getClientRects().length === 1;
          });
        })"""
        assert await page.value(lines)


async def test_a_picture_of_a_tool_is_seen_and_fits_the_screen(
    chromium: Browser, tmp_path: Path
) -> None:
    talking = Talking()
    async with site(tmp_path / "home", talking.agent) as there:
        session = await there.it.new()
        page = await log_in(chromium, there, f"#s={session}")
        await prompt(page, "picture")
        await page.until("document.querySelector('#pieces img')?.naturalWidth === 160")
        assert (
            await page.value("document.querySelector('#pieces img').alt") == "Image (PNG, 160 x 90)"
        )
        assert page.complaints() == []


# -- the list ------------------------------------------------------------------------------------

ROWS = "document.querySelectorAll('#sessions li').length"


async def test_the_list_grows_as_one_scrolls_and_keeps_place_focus_and_search(
    chromium: Browser, tmp_path: Path
) -> None:
    talking = Talking()
    async with site(tmp_path / "home", talking.agent) as there:
        model = await aged(there.it, 0, "say 1")
        await filled(there.it, model, 160)
        page = await log_in(chromium, there)
        await page.until(f"{ROWS} === 50")
        for rows in (100, 150, 161):
            await page.value("window.scrollTo({top: 1e6, behavior: 'instant'})")
            await page.until(f"{ROWS} === {rows}")
        await page.until("!document.querySelector('#more button')")
        row = "document.querySelector('#s-old-90')"
        await page.value(f"{row}.scrollIntoView({{behavior: 'instant', block: 'center'}})")
        await page.value(f"{row}.focus({{preventScroll: true}})")
        top = "Math.round(document.querySelector('#s-old-90').getBoundingClientRect().top)"
        before = await page.value(top)
        owner = await there.it.remote()
        live = await there.it.new(owner)
        await page.until(f"document.querySelector('#sessions li').id === 'l-{live}'")
        assert await page.value(top) == before
        assert await page.value("document.activeElement.id") == "s-old-90"
        await page.value("socket.close()")
        await page.until("!document.querySelector('#link').innerText && !!socket")
        await page.until(f"{ROWS} === 162")
        assert await page.value(top) == before
        await page.click("#s-old-90")
        await page.shows("be opened", "#state")  # it has a row alone
        await page.click("#back")
        await page.until(f"{ROWS} === 162")
        assert abs(await page.value(top) - before) < 400
        await page.click("#find")
        await page.type("älter 77")
        await page.until(f"{ROWS} === 1")
        await page.shows("Älter 77", "#sessions")
        await page.reload()
        await page.until(f"{ROWS} === 1")
        assert await page.value("document.querySelector('#find').value") == "älter 77"


async def test_a_link_to_a_session_beyond_the_first_page_opens_it_and_an_unknown_one_says_so(
    chromium: Browser, tmp_path: Path
) -> None:
    talking = Talking()
    async with site(tmp_path / "home", talking.agent) as there:
        oldest = await aged(there.it, 800, "say 2")
        await filled(there.it, oldest, 120)
        page = await log_in(chromium, there, f"#s={oldest}")
        await page.shows("Message 2 ", "#pieces")
        await page.value("void (location.hash = '#s=nobody')")
        await page.shows("there is no such session", "#state")
        assert await page.value("document.querySelector('#pieces').innerText") == ""
