"""The files of the page, with headers that restrict what a browser does with them. SANS-IO."""

from __future__ import annotations

from functools import cache
from http import HTTPStatus
from importlib import resources
from typing import Final

from acp_bridge.remote.serve.door import Refusal
from acp_bridge.terminal.view.style import session_style

#: Scripts and styles are ours, the WebSocket goes to this server, and nothing else is fetched: what
#: an agent shows as a picture stands in the page (`view.images`), and runs nothing there. The
#: script turns texts of the server into HTML in one place, by the Trusted Types policy `pieces`.
POLICY: Final = "; ".join(
    (
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "connect-src 'self'",
        "img-src 'self' data:",
        "frame-ancestors 'none'",
        "base-uri 'none'",
        "form-action 'none'",
        "require-trusted-types-for 'script'",
        "trusted-types pieces",
    )
)
_HEADERS: Final = {
    "Content-Security-Policy": POLICY,
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=()",
    "Cache-Control": "no-cache",
}
_FILES: Final = {
    "/": ("index.html", "text/html; charset=utf-8"),
    "/kept.js": ("kept.js", "text/javascript; charset=utf-8"),
    "/page.js": ("page.js", "text/javascript; charset=utf-8"),
    "/place.js": ("place.js", "text/javascript; charset=utf-8"),
    "/page.css": ("page.css", "text/css; charset=utf-8"),
    "/icon.svg": ("icon.svg", "image/svg+xml"),
}


def page_file(path: str) -> Refusal | None:
    """Return the answer to a GET with the page's file at a path; None if there is none."""
    if path not in _FILES:
        return None
    name, kind = _FILES[path]
    return Refusal(HTTPStatus.OK, _read(name), {"Content-Type": kind, **_HEADERS})


@cache
def _read(name: str) -> str:
    text = (resources.files(__package__) / name).read_text("utf-8")
    return session_style() + text if name == "page.css" else text
