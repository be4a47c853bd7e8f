"""What an agent writes, everywhere on the page: it is text, and takes nothing off the screen."""

import base64
from pathlib import Path
from typing import Any

import pytest

from acp_bridge.core.protocol import Json
from tests.core.sessions.agent import Agent, Process, until
from tests.page_not_ours.browser import Browser
from tests.page_not_ours.site import site
from tests.page_not_ours.test_drafts import write
from tests.page_not_ours.test_in_a_browser import _judge, log_in, prompt
from tests.page_not_ours.test_reading import seen
from tests.page_not_ours.test_taps import TOO_WIDE
from tests.terminal.view.test_images import coded, png

EVIL = (
    "<script>owned()</script><img src=x onerror=owned()>\"'><svg/onload=owned()>"
    "\x00\x1b[31m\u202e</style></textarea>"
)
SVG = base64.b64encode(b"<svg xmlns='http://www.w3.org/2000/svg' onload='owned()'/>").decode()
BLOCKS: list[Json] = [
    {"type": "image", "mimeType": "image/png", "data": SVG},
    {"type": "image", "mimeType": "image/svg+xml", "data": SVG},
    {"type": "image", "mimeType": EVIL, "data": coded(png(160, 90)[:60])},
    {"type": "image", "mimeType": "image/png", "data": "!!!"},
    {"type": "image", "mimeType": "image/png", "uri": "http://127.0.0.1:1/x.png", "data": ""},
    {"type": "resource_link", "uri": "javascript:owned()", "name": EVIL},
    {"type": "resource_link", "uri": 'https://x.example/"onmouseover=owned()', "name": EVIL},
    {"type": "resource", "resource": {"uri": EVIL, "text": EVIL, "mimeType": EVIL}},
]
TABLE = "|" + "c|" * 20 + "\n|" + "---|" * 20 + "\n|" + "Donaudampfschifffahrt|" * 20
MARKDOWN = (
    f"# {EVIL}\n\n[{EVIL}](javascript:owned())\n\n"
    f'<div id="stop" class="question" data-do="answer">x</div>\n\n```{EVIL}\n{EVIL}\n```'
)
KINDS = ("allow_once", "allow_always", "reject_once", "reject_always", EVIL, "allow_once")
#: elements that no text of an agent may become, and ids that are there twice.
FOREIGN = """[...document.querySelectorAll(
  '#session :is(script, svg, style, iframe, [style], [onclick], [onload], [onerror], '
  + '[onmouseover], a[href^="javascript"])')].map((each) => each.outerHTML)"""
TWICE = """[...document.querySelectorAll('[id]')].map((each) => each.id)
  .filter((id, at, all) => all.indexOf(id) !== at)"""


class Hostile:
    """An agent that writes `EVIL` wherever it can, and then asks with six options."""

    def __init__(self) -> None:
        self.agent = Agent()
        self.agent.script |= {
            "session/new": self._new,
            "session/set_mode": {},
            "session/prompt": self._prompt,
        }

    async def _new(self, process: Process, params: Json) -> Json:
        names = [{"id": EVIL, "name": EVIL}, {"id": "b'\"><b>", "name": "b"}]
        modes = {"currentModeId": EVIL, "availableModes": names}
        number = self.agent.processes.index(process) + 1
        return {"sessionId": f"agent-{number}", "modes": modes}

    async def _prompt(self, process: Process, params: Json) -> Json:
        session = params["sessionId"]

        def shows(what: str, **update: Any) -> None:
            process.shows(session, {"sessionUpdate": what, **update})

        shows("session_info_update", title=EVIL)
        shows("plan", entries=[{"content": EVIL, "status": EVIL, "priority": EVIL}])
        for number, block in enumerate(BLOCKS):
            diff = {"type": "diff", "path": EVIL, "oldText": EVIL, "newText": EVIL * 2}
            shows(
                "tool_call",
                toolCallId=f"{EVIL}{number}",
                **dict.fromkeys(("title", "kind", "status"), EVIL),
                locations=[{"path": EVIL}],
                rawInput={"command": EVIL},
                content=[{"type": "content", "content": block}, diff],
            )
        for number, said in enumerate((TABLE, EVIL, MARKDOWN, "a" * 5000)):
            content = {"type": "text", "text": said}
            shows("agent_message_chunk", content=content, messageId=f"m{number}")
        options = [
            {"optionId": f"{EVIL}{at}", "name": (EVIL if at else "w" * 200), "kind": kind}
            for at, kind in enumerate(KINDS)
        ]
        command = "\n".join([EVIL] * 60)
        call = {"toolCallId": EVIL, "title": EVIL * 3, "rawInput": {"command": command}}
        asked = {"sessionId": session, "toolCall": call, "options": options}
        process.says({"id": 77, "method": "session/request_permission", "params": asked})
        await until(lambda: any(each.get("id") == 77 for each in process.received))
        return {"stopReason": "end_turn"}


@pytest.mark.parametrize(("width", "height"), [(320, 480), (390, 844), (1280, 800)])
async def test_hostile_texts_stay_texts_and_leave_the_buttons_on_the_screen(
    chromium: Browser, tmp_path: Path, axe: str, width: int, height: int
) -> None:
    async with site(tmp_path / "home", Hostile().agent) as there:
        session = await there.it.new()
        page = await log_in(chromium, there, f"#s={session}")
        await page.look(width, height=height)
        await page.value("void (window.owned = () => { window.isOwned = true })")
        await prompt(page, "ask <b>me</b> <script>owned()</script>")
        await page.shows("The agent asks", "#questions")
        await prompt(page, "queued <b>bold</b> one")
        await page.shows("queued", "#queue")
        await write(page, "line\n" * 10)
        for place in ("0", "1e7"):
            await page.value(f"window.scrollTo({{top: {place}, behavior: 'instant'}})")
            for selector in ("#prompt", "#stop", "#send"):
                await page.until(seen(selector))
        assert await page.value(TOO_WIDE) <= 0
        await _judge(page, axe)
        assert await page.value(FOREIGN) == []
        assert await page.value(TWICE) == []
        await page.value("void (location.hash = '')")
        await page.shows("asks", "#sessions")
        assert await page.value(TOO_WIDE) <= 0
        await _judge(page, axe)
        assert await page.value("window.isOwned") is None
        assert page.complaints() == []
        assert not [each for each in page.requested() if ":1/" in each]
