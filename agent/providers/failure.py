"""What went wrong between us and a provider, and how the user is told: one clear sentence.

Invariants
- Of a provider's or a library's own words nothing comes into the sentence; they are the cause,
  for the log. Of a URL only the host does.
"""

from __future__ import annotations

import math
import re
import time
from collections.abc import Mapping
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from typing import Any, Literal

from agent.model import ErrorKind, ModelError

#: `answer`: an HTTP status or an error event; `unreachable`: no connection; `stall`: silence;
#: `broken`: the connection ended before the answer did; `garbage`: no answer that we can read
Fault = Literal["answer", "unreachable", "stall", "broken", "garbage"]

#: of what a provider said, characters that are kept for the log
_KEPT = 2000

_CONTEXT = re.compile(
    r"context[ _-]?(length|window)|maximum context|prompt is too long|input is too long"
    r"|too many (input )?tokens|exceeds? the (maximum|limit).{0,40}tokens|token count.{0,40}exceeds"
    r"|reduce the length",
    re.IGNORECASE,
)
_REFUSED = re.compile(
    r"content_policy|content_filter|content management policy|usage polic|violat\w+ .{0,40}polic"
    r"|ResponsibleAI|moderation",
    re.IGNORECASE,
)
_NO_CREDIT = re.compile(
    r"insufficient_quota|insufficient (balance|credit|funds)|credit balance|billing|payment",
    re.IGNORECASE,
)
_BAD_KEY = re.compile(
    r"(invalid|incorrect|not valid).{0,20}api[ _-]?key|api[ _-]?key.{0,20}(invalid|not valid)",
    re.IGNORECASE,
)
_NO_MODEL = re.compile(
    r"model_not_found|(invalid|unknown) model|model.{0,80}(not exist|not found|not a valid|unknown)"
    r"|not a valid model|no such model|LLM Provider NOT provided",
    re.IGNORECASE,
)
_BUSY = frozenset([408, 425, 429])


class Failure(Exception):
    """One attempt failed. `text`: what was said about it, by whomever."""

    def __init__(
        self,
        fault: Fault,
        text: str = "",
        status: int | None = None,
        retry_after: float | None = None,
    ) -> None:
        super().__init__(f"{fault} {status or ''} {text[:_KEPT]}")
        self.fault = fault
        self.text = text
        self.status = status
        #: seconds that the provider asked us to wait
        self.retry_after = retry_after

    @property
    def kind(self) -> ErrorKind:
        if self.fault == "answer":
            return _kind_of_answer(self.status, self.text)
        return "other" if self.fault == "garbage" else "unreachable"

    @property
    def no_credit(self) -> bool:
        return self.status == 402 or (self.status in (400, 403, 429) and _said(_NO_CREDIT, self))

    @property
    def may_pass(self) -> bool:
        """Whether the same request may well succeed a little later."""
        passing = self.kind in ("rate_limit", "unreachable")
        return passing and self.fault != "stall" and not self.no_credit


def _said(pattern: re.Pattern[str], failure: Failure) -> bool:
    return pattern.search(failure.text) is not None


def _kind_of_answer(status: int | None, text: str) -> ErrorKind:
    """Providers agree on statuses roughly, on codes not at all; so their words are looked at."""
    if status in (429, 402):
        return "rate_limit"
    if status == 413 or (status != 401 and _CONTEXT.search(text)):
        return "context"
    if status in (400, 403) and _NO_CREDIT.search(text):
        return "rate_limit"
    if status in (400, 403, 451) and _REFUSED.search(text):
        return "refused"
    if status in (401, 403) or _BAD_KEY.search(text):
        return "auth"
    if status == 404 or (status in (400, 422, None) and _NO_MODEL.search(text)):
        return "unknown_model"
    if status in _BUSY or (status or 0) >= 500:
        return "unreachable"
    return "other"


#: what the errors that come in the middle of a stream stand for (docs.anthropic.com/en/api/errors)
_STATUS_OF_TYPE = {
    "invalid_request_error": 400,
    "authentication_error": 401,
    "billing_error": 402,
    "permission_error": 403,
    "not_found_error": 404,
    "request_too_large": 413,
    "rate_limit_error": 429,
    "rate_limit_exceeded": 429,
    "api_error": 500,
    "server_error": 500,
    "timeout_error": 504,
    "overloaded_error": 529,
}


def failure_in_stream(error: Any) -> Failure:
    """The error that an event of the stream carries: an object in nobody's own form, or a text."""
    if not isinstance(error, Mapping):
        return Failure("answer", str(error))
    for name in ("code", "status", "type"):
        found = error.get(name)
        if isinstance(found, str):
            found = int(found) if found.isdecimal() else _STATUS_OF_TYPE.get(found)
        if isinstance(found, int) and 400 <= found <= 599:
            return Failure("answer", str(dict(error)), found)
    return Failure("answer", str(dict(error)))


def seconds_to_wait(headers: Mapping[str, str]) -> float | None:
    """What `Retry-After` says (RFC 9110, 10.2.3): seconds, or a date."""
    said = headers.get("retry-after", "").strip()
    try:
        return max(0.0, float(said))
    except ValueError:
        pass
    try:
        return max(0.0, parsedate_to_datetime(said).timestamp() - time.time())
    except ValueError:
        return None


@dataclass(frozen=True, slots=True)
class Place:
    """Whom we talk to, in the user's words."""

    #: as the user named it
    model: str
    #: of the provider
    name: str
    #: with the port, if it isn't the usual one
    host: str
    #: the variable that holds its key; empty if it needs none
    key: str = ""
    #: the variable that holds its base URL, if that is set
    base_url: str = ""


def model_error(failure: Failure, place: Place, seconds: float) -> ModelError:
    """The sentence. `seconds`: how long silence is borne."""
    return ModelError(_sentence(failure, place, seconds), failure.kind)


def retrying(failure: Failure, place: Place, seconds: float, wait: float) -> str:
    """The same while there is hope. `wait`: seconds until the next attempt."""
    what = _sentence(failure, place, seconds).partition(": ")[0]
    return f"{what}: trying again in {max(1, round(wait))} s."


def _sentence(failure: Failure, place: Place, seconds: float) -> str:
    name = place.name
    at = f"{name} ({place.host})" if place.host else name
    if failure.fault == "stall":
        return f"{at} has sent nothing for {seconds:g} seconds: send the prompt again."
    if failure.fault == "broken":
        return f"The connection to {at} broke off in the middle: send the prompt again."
    if failure.fault == "garbage":
        return f"What {at} answered can't be read: check that it speaks this model's protocol."
    if failure.fault == "unreachable":
        also = f", and {place.base_url}" if place.base_url else ""
        return f"{at} can't be reached: check the network{also}."
    if failure.no_credit:
        return f"The account at {name} has no credit left: add some, or choose another model."
    return _SENTENCES[failure.kind].format(
        at=at,
        name=name,
        model=place.model,
        key=f"the key in {place.key}" if place.key else "the key",
        status=f" (HTTP {failure.status})" if failure.status else "",
        wait=_minutes(failure.retry_after),
    )


def _minutes(seconds: float | None) -> str:
    minutes = math.ceil((seconds or 0) / 60)
    return "a minute" if minutes <= 1 else f"{minutes} minutes"


_SENTENCES: dict[ErrorKind, str] = {
    "auth": "{name} doesn't accept {key}{status}: set one that may use {model}.",
    "rate_limit": "{name} takes no more requests for now: wait {wait}, or choose another model.",
    "context": "The conversation no longer fits {model}: use /compact, or choose a model with a"
    " larger window.",
    "refused": "{name} refused the request by its content policy: put it differently.",
    "unknown_model": "{at} knows no model {model}: check its name, or choose another model.",
    "unreachable": "{at} has trouble of its own{status}: try again later, or choose another model.",
    "other": "{at} didn't take the request{status}: the log says why; or choose another model.",
}
