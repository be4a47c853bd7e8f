"""A headless Chromium, driven over its DevTools protocol: tabs, and what is done in them."""

import base64
import json
import os
import shutil
import subprocess
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import count
from pathlib import Path
from typing import Any

import anyio
from websockets.asyncio.client import ClientConnection, connect

from tests.support.waiting import until

Json = dict[str, Any]
#: seconds for each thing that is waited for.
BOUND = 20.0
_OPTIONS = (
    *("--headless", "--disable-gpu", "--no-first-run", "--disable-extensions"),
    *("--remote-debugging-port=0", "--disable-background-networking", "--no-sandbox"),
)
#: Where the middle of an element is, once it has stood still; null if it is not there, or moves.
_STILL = """(async () => {
  const found = document.querySelector(SELECTOR);
  if (!found) return null;
  found.scrollIntoView({block: 'center', behavior: 'instant'});
  const before = found.getBoundingClientRect();
  await new Promise((done) => setTimeout(done, 80));
  const now = found.getBoundingClientRect();
  const middle = {x: now.x + now.width / 2, y: now.y + now.height / 2};
  const there = document.elementFromPoint(middle.x, middle.y);
  return before.x === now.x && before.y === now.y && found.contains(there) && middle;
})()"""
_COMPLAINTS = ("Runtime.exceptionThrown", "Log.entryAdded", "Page.javascriptDialogOpening")


def chromium() -> str | None:
    """The browser's program, if there is one."""
    named = os.environ.get("CHROMIUM")
    return named or shutil.which("chromium") or shutil.which("chromium-browser")


class Browser:
    """A browser; its pages share what they store."""

    def __init__(self, socket: ClientConnection) -> None:
        self._socket = socket
        self._ids = count(1)
        self._answers: dict[int, Json] = {}
        self._news = anyio.Event()
        self.events: list[Json] = []

    async def read(self) -> None:
        """Take what the browser says until it is gone."""
        async for line in self._socket:
            message = json.loads(line)
            if "id" in message:
                self._answers[message["id"]] = message
            else:
                self.events.append(message)
            self._news.set()
            self._news = anyio.Event()

    async def do(self, method: str, session: str | None = None, **params: Any) -> Json:
        """Send a command and return its result."""
        number = next(self._ids)
        message: Json = {"id": number, "method": method, "params": params}
        if session:
            message["sessionId"] = session
        await self._socket.send(json.dumps(message))
        with anyio.fail_after(BOUND):
            while number not in self._answers:
                await self._news.wait()
        answer = self._answers.pop(number)
        assert "error" not in answer, answer["error"]
        result: Json = answer["result"]
        return result

    async def page(self, url: str, width: int = 390, *, dark: bool = False) -> "BrowserPage":
        """Open a page in a tab of its own."""
        target = (await self.do("Target.createTarget", url="about:blank", newWindow=True))[
            "targetId"
        ]
        found = await self.do("Target.attachToTarget", targetId=target, flatten=True)
        page = BrowserPage(self, found["sessionId"], target)
        await page.begin(url, width, dark=dark)
        return page


class BrowserPage:
    """A tab."""

    def __init__(self, browser: Browser, session: str, target: str) -> None:
        self._browser, self._session, self._target = browser, session, target

    async def do(self, method: str, **params: Any) -> Json:
        """Send a command about this tab and return its result."""
        return await self._browser.do(method, self._session, **params)

    async def begin(self, url: str, width: int, *, dark: bool) -> None:
        """Set the tab up and go to a URL."""
        for domain in ("Page", "Runtime", "Log", "Network"):
            await self.do(f"{domain}.enable")
        await self.look(width, dark=dark)
        await self.do("Page.navigate", url=url)

    async def look(
        self, width: int, *, dark: bool = False, scale: float = 1, height: int = 844
    ) -> None:
        """Show the page so wide and high, light or dark, and zoomed."""
        await self.do(
            "Emulation.setDeviceMetricsOverride",
            width=round(width / scale),
            height=height,
            deviceScaleFactor=scale,
            mobile=False,
        )
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        await self.do("Emulation.setEmulatedMedia", features=[scheme])

    async def value(self, expression: str) -> Any:
        """Return the value of an expression in the page."""
        found = await self.do(
            "Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True
        )
        assert "exceptionDetails" not in found, found["exceptionDetails"]
        return found["result"].get("value")

    async def until(self, expression: str) -> Any:
        """Wait until an expression is true."""
        with anyio.move_on_after(BOUND):
            while True:
                if found := await self.value(expression):
                    return found
                await anyio.sleep(0.02)
        body = await self.value("document.body?.innerText")
        raise AssertionError(f"never true: {expression}\n{body}\n{self.complaints()}")

    async def shows(self, text: str, place: str = "body") -> None:
        """Wait until a text is to be read there."""
        await self.until(f"document.querySelector({place!r})?.innerText.includes({text!r})")

    async def click(self, selector: str) -> None:
        """Press what is there, as a finger does: with the mouse events of a browser."""
        where = await self.until(_STILL.replace("SELECTOR", json.dumps(selector)))
        for kind in ("mousePressed", "mouseReleased"):
            await self.do(
                "Input.dispatchMouseEvent", type=kind, button="left", clickCount=1, **where
            )

    async def type(self, text: str) -> None:
        """Type into what has the focus."""
        await self.do("Input.insertText", text=text)

    async def reload(self) -> None:
        """Load the page again."""
        await self.do("Page.reload")

    async def close(self) -> None:
        """Close the tab."""
        await self._browser.do("Target.closeTarget", targetId=self._target)

    async def picture(self, path: Path) -> None:
        """Write what is seen as a PNG."""
        found = await self.do("Page.captureScreenshot", format="png")
        await anyio.Path(path).write_bytes(base64.b64decode(found["data"]))

    def complaints(self) -> list[Json]:
        """Return what the browser has logged about this tab: errors, and what a policy forbade."""
        mine = [each for each in self._browser.events if each.get("sessionId") == self._session]
        return [
            each["params"]
            for each in mine
            if each["method"]
            in ("Runtime.exceptionThrown", "Log.entryAdded", "Page.javascriptDialogOpening")
        ]

    def frames(self) -> list[str]:
        """Return what this tab has received and sent over WebSockets, message by message."""
        mine = [each for each in self._browser.events if each.get("sessionId") == self._session]
        return [
            each["params"]["response"]["payloadData"]
            for each in mine
            if each["method"] in ("Network.webSocketFrameReceived", "Network.webSocketFrameSent")
        ]

    def requested(self) -> list[str]:
        """Return all URLs that this tab has asked for."""
        mine = [each for each in self._browser.events if each.get("sessionId") == self._session]
        return [
            each["params"]["request"]["url"]
            for each in mine
            if each["method"] == "Network.requestWillBeSent"
        ]


@asynccontextmanager
async def browser(folder: Path, *options: str) -> AsyncIterator[Browser]:
    """Give a browser with a profile of its own, until the block ends."""
    program = chromium()
    assert program, "there is no Chromium: apt-get install chromium, or name it in CHROMIUM"
    port = folder / "DevToolsActivePort"
    async with await anyio.open_process(
        [program, *_OPTIONS, *options, f"--user-data-dir={folder}", "about:blank"],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    ) as process:
        try:
            await until(lambda: port.exists() and "\n" in port.read_text())
            number, path = port.read_text().split("\n")[:2]
            url = f"ws://127.0.0.1:{number}{path}"
            async with connect(url, max_size=None) as socket, anyio.create_task_group() as tasks:
                found = Browser(socket)
                tasks.start_soon(found.read)
                yield found
                tasks.cancel_scope.cancel()
        finally:
            process.kill()
