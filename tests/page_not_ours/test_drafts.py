"""Drafts: each session has its own, in its tab, for its login."""

from pathlib import Path

import pytest

from tests.page_not_ours.browser import Browser, BrowserPage
from tests.page_not_ours.site import Site, Working, site, wired
from tests.page_not_ours.test_in_a_browser import log_in

BOX = "document.querySelector('#prompt')?.value"
NO_CHIPS = "document.querySelectorAll('.unsent').length === 0"


async def write(page: BrowserPage, text: str) -> None:
    await page.click("#prompt")
    await page.type(text)


async def turn_to(page: BrowserPage, session: str) -> None:
    """Go to a session by a link in the same tab, and wait until it is shown."""
    await page.value(f"void (location.hash = '#s={session}')")
    await page.until(f"document.documentElement?.dataset.opened === {session!r}")


async def to_the_list(page: BrowserPage) -> None:
    await page.click("#back")
    await page.until("document.querySelector('#list')?.hidden === false")


async def two(there: Site) -> tuple[str, str]:
    return await there.it.new(), await there.it.new()


async def test_each_session_has_its_own_draft_and_sending_one_leaves_the_other(
    chromium: Browser, tmp_path: Path
) -> None:
    async with site(tmp_path / "home", Working()) as there:
        one, other = await two(there)
        page = await log_in(chromium, there, f"#s={one}")
        await write(page, "for one")
        await to_the_list(page)
        await turn_to(page, other)
        assert await page.value(BOX) == ""
        await write(page, "for the other")
        await page.value("history.back()")
        await page.until("document.querySelector('#list')?.hidden === false")
        await page.value("history.back()")
        await page.until(f"{BOX} === 'for one'")
        await page.until(f"document.documentElement?.dataset.opened === {one!r}")
        await page.click("#send")
        await page.shows("Done with for one.", "#pieces")
        assert await page.value(BOX) == ""
        await turn_to(page, other)
        assert await page.value(BOX) == "for the other"
        prompts = there.it.agent.params("session/prompt")
        assert [each["prompt"][0]["text"] for each in prompts] == ["for one"]


async def test_drafts_are_kept_over_a_reload_and_are_in_their_tab_alone(
    chromium: Browser, tmp_path: Path
) -> None:
    async with site(tmp_path / "home", Working()) as there:
        one, other = await two(there)
        page = await log_in(chromium, there, f"#s={one}")
        await write(page, "a draft")
        beside = await chromium.page(there.at(f"#s={one}"))
        await beside.until(f"document.documentElement?.dataset.opened === {one!r}")
        assert await beside.value(BOX) == ""
        await write(beside, "another")
        await page.reload()
        await page.until(f"{BOX} === 'a draft'")
        await turn_to(page, other)
        assert await page.value(BOX) == ""
        await turn_to(page, one)
        assert await page.value(BOX) == "a draft"
        assert await beside.value(BOX) == "another"


@pytest.mark.parametrize("how", ["log out", "log out elsewhere", "revoked"])
async def test_a_draft_is_gone_with_its_login(chromium: Browser, tmp_path: Path, how: str) -> None:
    async with site(tmp_path / "home", Working()) as there:
        one, _ = await two(there)
        page = await log_in(chromium, there, f"#s={one}")
        await write(page, "a secret draft")
        if how == "revoked":
            there.tokens.remove("phone-1")
            there.server.end("phone-1")
        else:
            leaving = page
            if how == "log out elsewhere":
                leaving = await chromium.page(there.at())
            else:
                await to_the_list(page)
            await leaving.click("#logout")
        await page.until("!document.querySelector('#login').hidden")
        assert await page.value(BOX) == ""
        assert "secret" not in await page.value(
            "JSON.stringify({...localStorage, ...sessionStorage})"
        )
        await page.value(f"void (location.hash = '#code={there.code()}')")
        await page.until("document.querySelector('#list')?.hidden === false")
        await turn_to(page, one)
        assert await page.value(BOX) == ""


async def test_another_login_in_the_tab_finds_no_draft_of_the_first(
    chromium: Browser, tmp_path: Path
) -> None:
    async with site(tmp_path / "home", Working()) as there:
        one, _ = await two(there)
        page = await log_in(chromium, there, f"#s={one}")
        await write(page, "a secret draft")
        await page.value(f"void (location.hash = '#code={there.code()}')")
        await page.until("document.querySelector('#list')?.hidden === false")
        await turn_to(page, one)
        assert await page.value(BOX) == ""
        assert "secret" not in await page.value("JSON.stringify({...sessionStorage})")


async def test_another_tab_s_login_leaves_a_tab_its_own_and_its_draft(
    chromium: Browser, tmp_path: Path
) -> None:
    async with site(tmp_path / "home", Working()) as there:
        one, _ = await two(there)
        page = await log_in(chromium, there, f"#s={one}")
        await write(page, "a draft")
        await log_in(chromium, there)
        await page.reload()
        await page.until(f"{BOX} === 'a draft'")
        assert there.server.count("phone-1") == there.server.count("phone-2") == 1


async def test_a_prompt_that_is_not_confirmed_fills_and_blocks_no_other_session_s_box(
    chromium: Browser, tmp_path: Path
) -> None:
    async with wired(tmp_path / "home") as line, line.serving(Working()) as there:
        one, other = await two(there)
        page = await log_in(chromium, there, f"#s={one}")
        await line.cut()
        await write(page, "for one")
        await page.click("#send")
        await page.shows("not sent yet", ".unsent")
        assert await page.value("document.querySelector('#send').disabled") is True
        await page.value(f"void (location.hash = '#s={other}')")
        await page.until(f"{BOX} === ''")
        assert await page.value("document.querySelector('#send').disabled") is False
        await write(page, "for the other")
        await page.click("#send")
        line.mend()
        await page.shows("Done with for the other.", "#pieces")
        await page.until(NO_CHIPS)
        assert await page.value(BOX) == ""
        await turn_to(page, one)
        await page.shows("Done with for one.", "#pieces")
        assert await page.value(BOX) == ""
        assert len(there.it.agent.params("session/prompt")) == 2


async def test_a_prompt_taken_back_before_it_was_sent_is_a_draft_again(
    chromium: Browser, tmp_path: Path
) -> None:
    async with wired(tmp_path / "home") as line, line.serving(Working()) as there:
        one, _ = await two(there)
        page = await log_in(chromium, there, f"#s={one}")
        await line.cut()
        await write(page, "not so fast")
        await page.click("#send")
        await page.shows("not sent yet", ".unsent")
        await page.click("[data-back]")
        assert await page.value(BOX) == "not so fast"
        assert await page.value("document.querySelector('#send').disabled") is False
        line.mend()
        await page.until("document.querySelector('#link').innerText === ''")
        await page.reload()
        await page.until(f"{BOX} === 'not so fast'")
        assert there.it.agent.params("session/prompt") == []


async def test_without_a_line_another_session_shows_nothing_of_the_one_before(
    chromium: Browser, tmp_path: Path
) -> None:
    async with wired(tmp_path / "home") as line, line.serving(Working()) as there:
        one, other = await two(there)
        page = await log_in(chromium, there, f"#s={one}")
        await write(page, "hello")
        await page.click("#send")
        await page.shows("Done with hello.", "#pieces")
        await line.cut()
        await page.value(f"void (location.hash = '#s={other}')")
        await page.until("document.querySelector('#pieces').innerText === ''")
        line.mend()
        await page.until(f"document.documentElement?.dataset.opened === {other!r}")
