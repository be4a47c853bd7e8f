"""The page in a real browser: what is seen, pressed, cut off and attacked there."""

import json
from pathlib import Path
from typing import Any

import anyio
import pytest
from anyio.abc import SocketAttribute, SocketStream

from tests.page_not_ours.browser import Browser, BrowserPage
from tests.page_not_ours.site import Site, Working, site

#: milliseconds for which a button stands still before it acts, and some more.
SETTLED = 0.8


async def log_in(chromium: Browser, there: Site, fragment: str = "", **how: Any) -> BrowserPage:
    """Open the page with a code and go to a view."""
    page = await chromium.page(there.at(f"#code={there.code()}"), **how)
    await page.shows("Sessions", "h1")
    await page.until("document.querySelector('#list')?.hidden === false")
    if fragment:
        await page.value(f"void (location.hash = {fragment!r})")
        await page.until("document.documentElement.dataset.opened")
    return page


async def prompt(page: BrowserPage, text: str) -> None:
    """Type a prompt and send it."""
    await page.click("#prompt")
    await page.type(text)
    await page.click("#send")
    await page.until("!document.querySelector('#prompt').value")


LOGIN = "localStorage.getItem('acp-bridge-login')"
#: what users have said, as it stands on a page.
USERS = "[...document.querySelectorAll('.user .plain')].map((each) => each.innerText)"


def count(text: str) -> str:
    return f"document.querySelector('#pieces').innerText.split({text!r}).length - 1"


async def test_a_code_is_changed_for_a_login_and_is_in_no_address(
    chromium: Browser, tmp_path: Path
) -> None:
    async with site(tmp_path / "home", Working()) as there:
        page = await log_in(chromium, there)
        assert await page.value("location.href") == there.at()
        secret = await page.value(LOGIN)
        assert secret.startswith("acpb_")
        assert await page.value("document.cookie") == ""
        assert not [each for each in page.requested() if "code=" in each or secret in each]
        await page.reload()
        await page.shows("No sessions yet")
        await page.click("#logout")
        await page.shows("You are logged out")
        assert await page.value(LOGIN) is None
        assert there.tokens.all == []


async def test_a_login_that_is_revoked_ends_the_page_that_has_it(
    chromium: Browser, tmp_path: Path
) -> None:
    async with site(tmp_path / "home", Working()) as there:
        page = await log_in(chromium, there)
        await page.shows("No sessions yet")
        there.tokens.remove("phone-1")
        assert there.server.end("phone-1") == 1
        await page.shows("does not count", "#link")
        assert await page.value(LOGIN) is None


async def test_two_pages_are_shown_one_session_and_one_answers_for_both(
    chromium: Browser, tmp_path: Path
) -> None:
    async with site(tmp_path / "home", Working()) as there:
        session = await there.it.new()
        phone = await log_in(chromium, there, f"#s={session}")
        tablet = await log_in(chromium, there, f"#s={session}", width=800)
        await prompt(phone, "ask me")
        for page in (phone, tablet):
            await page.shows("The agent asks", "#questions")
            await page.shows("ask me", "#pieces")
        await anyio.sleep(SETTLED)
        await tablet.click(".answers .allow")
        for page in (phone, tablet):
            await page.shows("It was yes.", "#pieces")
            await page.shows("Allowed by a person", "#pieces")
            await page.until("!document.querySelector('.question')")
            assert await page.value(count("Done with ask me.")) == 1


async def test_who_may_approve_answers_and_stops_and_has_nothing_to_type_into(
    chromium: Browser, tmp_path: Path
) -> None:
    async with site(tmp_path / "home", Working()) as there:
        owner = await there.it.remote()
        session = await there.it.new(owner)
        page = await chromium.page(there.at(f"#code={there.code('approve')}"))
        owner.prompt(session, "ask me")
        await page.click("#sessions a")
        await page.shows("The agent asks", "#questions")
        assert await page.value("document.querySelector('#prompt').checkVisibility()") is False
        await anyio.sleep(SETTLED)
        await page.click(".answers .deny")
        await page.shows("It was no.", "#pieces")
        sent = owner.prompt(session, "wait for me")
        await page.click("#stop-alone")
        assert await owner.stop_reason(sent) == "cancelled"


async def test_what_an_agent_writes_does_nothing_and_fetches_nothing(
    chromium: Browser, tmp_path: Path
) -> None:
    async with site(tmp_path / "home", Working()) as there:
        session = await there.it.new()
        page = await log_in(chromium, there, f"#s={session}")
        await page.value("void (window.owned = () => { window.was = true; })")
        await prompt(page, "ask me <img src=x onerror=owned()>")
        await page.shows("The agent asks", "#questions")
        await page.shows("<script>", "#pieces")
        assert await page.value("window.was") is None
        assert await page.value("document.querySelectorAll('main script, main img').length") == 0
        assert all(each.startswith((there.url, "data:")) for each in page.requested())
        assert page.complaints() == []


async def test_a_question_takes_no_focus_and_its_buttons_act_only_when_all_is_still(
    chromium: Browser, tmp_path: Path
) -> None:
    async with site(tmp_path / "home", Working()) as there:
        session = await there.it.new()
        page = await log_in(chromium, there, f"#s={session}")
        await page.value(
            """void new MutationObserver(() => {
              const button = document.querySelector('.answers .allow');
              if (button && !window.tried) { window.tried = true; button.click(); }
            }).observe(document.querySelector('#questions'), {childList: true})"""
        )
        await prompt(page, "ask me")
        await page.click("#prompt")
        await page.shows("The agent asks", "#questions")
        await page.until("window.tried")
        assert await page.value("document.activeElement.id") == "prompt"
        await anyio.sleep(SETTLED)
        await page.type("y")
        await page.value("document.querySelector('.answers .allow').click()")
        await anyio.sleep(SETTLED)
        await page.value(  # what lay over it, such as a window of another page, has gone
            "window.dispatchEvent(new Event('focus'));"
            " document.querySelector('.answers .allow').click()"
        )
        await anyio.sleep(SETTLED)
        assert await page.value("document.querySelector('.question') !== null")
        await page.value("document.querySelector('.answers .allow').click()")
        await page.shows("It was yes.", "#pieces")
        assert await page.value("document.querySelector('#prompt').value") == "y"


async def test_a_reload_in_a_turn_shows_all_of_it_once_and_its_stop_works(
    chromium: Browser, tmp_path: Path
) -> None:
    async with site(tmp_path / "home", Working()) as there:
        session = await there.it.new()
        page = await log_in(chromium, there, f"#s={session}")
        await prompt(page, "wait for me")
        await page.shows("Some words", "#pieces")
        await page.reload()
        await page.shows("Some words", "#pieces")
        assert await page.value(USERS) == ["wait for me"]
        await prompt(page, "and then")
        await page.shows("and then", "#queue")
        await page.click("#stop")
        await page.shows("Done with and then.", "#pieces")
        assert await page.value(USERS) == ["wait for me", "and then"]
        assert await page.value(count("Some words")) == 2


async def test_a_server_that_is_killed_and_comes_back_is_found_and_no_prompt_is_doubled(
    chromium: Browser, tmp_path: Path
) -> None:
    working = Working()
    async with site(tmp_path / "home", working) as there:
        session = await there.it.new()
        page = await log_in(chromium, there, f"#s={session}")
        await prompt(page, "first")
        await page.shows("Done with first.", "#pieces")
        port = int(there.url.rpartition(":")[2])
    await page.shows("No connection", "#link")
    await page.click("#prompt")
    await page.type("second")
    await page.click("#send")
    async with site(tmp_path / "home", working, port):
        await page.shows("Done with second.", "#pieces")
        assert await page.value(count("Done with first.")) == 1
        assert await page.value(count("Done with second.")) == 1
        assert await page.value("document.querySelector('#prompt').value") == ""
    assert len(working.agent.params("session/prompt")) == 2


async def _another(stream: SocketStream, got: bytearray) -> None:
    """Answer as a server of somebody else's, and keep all that it is sent."""
    async with stream:
        got.extend(await stream.receive())
        body = b"<h1>Another</h1>"
        head = f"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Length: {len(body)}\r\n"
        await stream.send(head.encode() + b"Connection: close\r\n\r\n" + body)


#: What a page of another origin finds out: of a frame of ours, and of a request to us.
FRAMED = """new Promise((done) => {
  const frame = document.createElement('iframe');
  frame.src = URL;
  frame.onload = frame.onerror = () => {
    try { done(frame.contentDocument === null); } catch { done(true); }
  };
  document.body.append(frame);
})"""
#: What it finds out of a WebSocket, though it had stolen the login.
OPENED = """new Promise((done) => {
  const socket = new WebSocket(URL.replace('http', 'ws'));
  socket.onopen = () => done('opened');
  socket.onerror = () => done('refused');
})"""
READ = "fetch(URL).then(() => 'read', () => 'refused')"


async def test_a_page_that_is_looked_at_again_notices_a_line_that_is_dead(
    chromium: Browser, tmp_path: Path
) -> None:
    async with site(tmp_path / "home", Working()) as there:
        page = await log_in(chromium, there)
        await page.shows("No sessions yet")
        await page.value(
            """(() => {
              const send = WebSocket.prototype.send;
              WebSocket.prototype.send = () => {};
              document.dispatchEvent(new Event('visibilitychange'));
              WebSocket.prototype.send = send;
              document.querySelector('#sessions').textContent = 'old';
            })()"""
        )
        await page.shows("No sessions yet")


async def test_a_server_on_another_port_of_the_host_gets_in_nowhere(
    chromium: Browser, tmp_path: Path
) -> None:
    got = bytearray()
    async with (
        site(tmp_path / "home", Working()) as there,
        await anyio.create_tcp_listener(local_host="127.0.0.1") as listener,
        anyio.create_task_group() as tasks,
    ):
        tasks.start_soon(listener.serve, lambda stream: _another(stream, got))
        port = listener.extra(SocketAttribute.local_port)
        secret = await (await log_in(chromium, there)).value(LOGIN)
        other = await chromium.page(f"http://127.0.0.1:{port}/")
        await other.shows("Another")
        assert secret.encode() not in got
        assert b"cookie" not in got.lower()
        assert await other.value("localStorage.length") == 0
        assert await other.value(FRAMED.replace("URL", repr(there.at()))) is True
        assert await other.value(READ.replace("URL", repr(there.at()))) == "refused"
        assert await other.value(OPENED.replace("URL", repr(there.at("page")))) == "refused"
        tasks.cancel_scope.cancel()


async def test_a_page_elsewhere_that_leads_here_with_a_wrong_code_ends_no_login(
    chromium: Browser, tmp_path: Path
) -> None:
    async with site(tmp_path / "home", Working()) as there:
        secret = await (await log_in(chromium, there)).value(LOGIN)
        page = await chromium.page(there.at("#code=AAAA-AAAA"))
        await page.shows("No sessions yet")
        await page.shows("does not count", "#link")
        assert await page.value(LOGIN) == secret


STEALING = (
    b"<script>addEventListener('load', () =>"
    b" { document.body.textContent = 'It has ' + localStorage.getItem('acp-bridge-login') })"
    b"</script><p>"
)


async def test_who_listens_on_another_address_of_this_machine_under_its_name_gets_no_login(
    chromium: Browser, tmp_path: Path
) -> None:
    """An agent has the same port of ::1, and a browser asks there first for localhost."""
    async with site(tmp_path / "home", Working()) as there:
        named = there.url.replace("127.0.0.1", "localhost")
        page = await chromium.page(f"{named}/#code={there.code()}")
        await page.shows("not reached under that name", "body")
        async with (
            await anyio.create_tcp_listener(
                local_host="::1", local_port=int(there.url.rpartition(":")[2])
            ) as listener,
            anyio.create_task_group() as tasks,
        ):
            tasks.start_soon(listener.serve, _stealing)
            other = await chromium.page(f"{named}/")
            await other.shows("It has null", "body")
            tasks.cancel_scope.cancel()


async def _stealing(stream: SocketStream) -> None:
    async with stream:
        await stream.receive()
        head = f"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Length: {len(STEALING)}"
        await stream.send(f"{head}\r\nConnection: close\r\n\r\n".encode() + STEALING)


VIOLATIONS = """axe.run(document, {
  runOnly: ['wcag2a', 'wcag2aa', 'wcag21a', 'wcag21aa', 'wcag22aa']
}).then((found) => found.violations.map((each) => [each.id, each.nodes.map((n) => n.html)]))"""


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
async def test_everybody_can_use_each_view(
    chromium: Browser, tmp_path: Path, axe: str, dark: bool
) -> None:
    async with site(tmp_path / "home", Working()) as there:
        session = await there.it.new()
        page = await chromium.page(there.at(), dark=dark)
        await page.until("document.querySelector('#login')?.checkVisibility()")
        await page.shows("Code", "#login")
        await _judge(page, axe)
        page = await log_in(chromium, there, f"#s={session}", dark=dark)
        await prompt(page, "ask me")
        await prompt(page, "and then")
        await page.shows("and then", "#queue")
        await page.shows("The agent asks", "#questions")
        await _judge(page, axe)
        for width, scale in ((320, 1.0), (640, 2.0)):
            await page.look(width, dark=dark, scale=scale)
            wide = "document.documentElement.scrollWidth - document.documentElement.clientWidth"
            assert await page.value(wide) <= 0, (width, scale)
        small = await page.value(
            """[...document.querySelectorAll('button, select, summary, #back, #sessions a')]
              .map((each) => [each.outerHTML, each.getBoundingClientRect()])
              .filter(([, at]) => at.width && (at.width < 44 || at.height < 44))
              .map(([html]) => html)"""
        )
        assert small == []
        await page.value("void (location.hash = '')")
        await page.shows("asks", "#sessions")
        await _judge(page, axe)


async def _judge(page: BrowserPage, axe: str) -> None:
    await page.value(f"{axe}; undefined")
    found = await page.value(VIOLATIONS)
    assert found == [], json.dumps(found, indent=1)


async def test_messages_are_read_out_when_they_have_ended_and_not_before(
    chromium: Browser, tmp_path: Path
) -> None:
    working = Working()
    async with site(tmp_path / "home", working) as there:
        session = await there.it.new()
        page = await log_in(chromium, there, f"#s={session}")
        await page.value(
            """(window.said = [], void new MutationObserver((all) => all.forEach((each) =>
              each.addedNodes.forEach((node) => said.push(node.textContent))))
              .observe(document.querySelector('#say'), {childList: true}))"""
        )
        await prompt(page, "work")
        await page.shows("Done with work.", "#pieces")
        said = await page.until("said.length > 2 && said")
        assert [each for each in said if each.startswith("Some")] == [
            each for each in said if "See [the docs]" in each
        ]
        assert said.count("Done with work.") == 1


async def test_a_session_as_a_file_is_styled_and_does_nothing(
    chromium: Browser, tmp_path: Path
) -> None:
    from acp_bridge.terminal.view.html import document
    from acp_bridge.terminal.view.style import session_style
    from tests.terminal.view.test_html import EVIL, said

    file = tmp_path / "session.html"
    html = document("Title", [], [said(each) for each in EVIL], [], session_style())
    file.write_text(html, "utf-8")
    page = await chromium.page(file.as_uri())
    await page.shows("alert(1)")
    assert await page.value("getComputedStyle(document.querySelector('main')).maxWidth") != "none"
    assert [each for each in page.requested() if not each.startswith("file:")] == []
    assert page.complaints() == []
