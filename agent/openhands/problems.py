"""Failures of an agent-server, and their text: masked, and of bounded length.

Invariants
- Secrets are masked before a text is cut, and so are words that look like keys: the server's own
  secrets are not known here.
"""

from __future__ import annotations

import re
from enum import Enum, auto

from agent.errors import ServiceError
from agent.secrets import MASK

#: characters of an error text
LONGEST = 500

_KEY_LIKE = re.compile(
    r"\b(?:sk|pk|rk|ghp|gho|ghs|github_pat|glpat|hf|xox[abpors]|AKIA|ASIA|AIza)[-_]?[\w-]{12,}"
    r"|\beyJ[\w-]{8,}\.[\w-]{8,}\.[\w-]*"
)
_NAMED = re.compile(
    r"(\b(?:bearer|basic)\s+"
    r"|\b[\w-]*(?:key|token|secret|passw(?:or)?d)[\"']?\s*[=:]\s*)"
    r"[\"']?(?=[^\s\"']*\d)[^\s\"',;&)}]{8,}",
    re.IGNORECASE,
)


class Kind(Enum):
    """How a request failed, and so whether the server may have carried it out."""

    #: the server can't have seen the request
    UNREACHED = auto()
    #: the server may have taken the request: the connection was cut, or it answered 5xx
    UNSURE = auto()
    #: 429: no run can be started now
    BUSY = auto()
    #: 409: a run is going already
    RUNNING = auto()
    #: 401, 403
    NOT_ALLOWED = auto()
    #: 404
    GONE = auto()
    #: any other 4xx
    REFUSED = auto()


class ServerProblem(ServiceError):
    """A request to the server failed, or the feed has ended; the text is for the user."""

    def __init__(self, kind: Kind, sentence: str) -> None:
        super().__init__(sentence, auth=kind is Kind.NOT_ALLOWED)
        self.kind = kind

    @property
    def final(self) -> bool:
        """True if repeating the request changes nothing."""
        return self.kind in (Kind.NOT_ALLOWED, Kind.GONE)


def failure_text(code: str, detail: str) -> str:
    """Returns a failure's code and detail as one line, with words that look like keys masked."""
    words = ": ".join(word for word in (code, detail) if word.strip())
    return one_line(words or "no reason was given")


def one_line(text: str, longest: int = LONGEST) -> str:
    """Returns the text as one printable line of at most `longest` characters, without keys."""
    line = "".join(c for c in " ".join(without_keys(text).split()) if c.isprintable())
    return line if len(line) <= longest else f"{line[: longest - 1]}…"


def without_keys(text: str) -> str:
    return _NAMED.sub(lambda found: found[1] + MASK, _KEY_LIKE.sub(MASK, text))
