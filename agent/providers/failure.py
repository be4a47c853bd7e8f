"""Failures of a model call, and the sentence for the user about each.

Invariants
- What the provider's server says itself follows our sentence as a quotation: masked, in one line,
  of bounded length. It contains no words of a library, and of a URL only the host. A library's
  words are told only where no server was asked, and under its name.
"""

from __future__ import annotations

import json
import math
import re
import time
from collections.abc import Callable, Mapping
from email.utils import parsedate_to_datetime
from typing import Any, Literal

from msgspec import Struct

from agent.loose import members, mended, number, words
from agent.model import ErrorKind, ModelError
from agent.providers.overflow import is_overflow, may_be_overflow, window_in
from agent.providers.server_words import words_of

#: `answer`: an HTTP status or an error event; `unreachable`: no connection; `stall`: silence;
#: `broken`: the connection ended before the answer did; `given_up`: the server says that it broke
#: its answer off; `garbage`: an answer that can't be read
Fault = Literal["answer", "unreachable", "stall", "broken", "given_up", "garbage"]

#: characters of a provider's words that are logged
_KEPT = 2000

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
#: the statuses of refusals that may be about the input; None is that of an error in a stream
_OF_INPUTS = frozenset([400, 422, None])
_BUSY = frozenset([408, 425, 429])


class Failure(Exception):
    """One attempt at a model call failed.

    `text`: what the provider or a library said. `by`: the library, if these are its own words.
    """

    def __init__(
        self,
        fault: Fault,
        text: str = "",
        status: int | None = None,
        retry_after: float | None = None,
        by: str = "",
    ) -> None:
        text = mended(text)
        super().__init__(f"{fault} {status or ''} {text[:_KEPT]}")
        self.fault = fault
        self.text = text
        self.status = status
        self.by = by
        #: seconds after which the provider wants the next attempt; None if it doesn't say
        self.retry_after = retry_after

    @property
    def kind(self) -> ErrorKind:
        if self.fault == "answer":
            return _kind_of_answer(self.status, self.text)
        return "other" if self.fault == "garbage" else "unreachable"

    @property
    def window(self) -> int | None:
        """The model's window in tokens, if the provider named it in refusing the input; or None."""
        return window_in(self.text) if self.kind == "context" else None

    @property
    def may_be_context(self) -> bool:
        """True if nothing in a refusal says that it is not about the length of the input."""
        if self.fault != "answer" or self.kind != "other" or self.status not in _OF_INPUTS:
            return False
        return may_be_overflow(words_of(self.text, str))

    @property
    def no_credit(self) -> bool:
        return self.status == 402 or (self.status in (400, 403, 429) and _said(_NO_CREDIT, self))

    @property
    def may_pass(self) -> bool:
        """True if the same request may succeed a little later."""
        passing = self.kind in ("rate_limit", "unreachable")
        return passing and self.fault != "stall" and not self.no_credit


def _said(pattern: re.Pattern[str], failure: Failure) -> bool:
    return pattern.search(failure.text) is not None


def _kind_of_answer(status: int | None, text: str) -> ErrorKind:
    """Returns the kind of an error with which a provider has answered.

    Providers agree roughly on statuses and not at all on codes, so their words are searched too.
    """
    if status in (429, 402):
        return "rate_limit"
    if status == 413 or (status != 401 and is_overflow(text)):
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


#: the HTTP status for the type of an error event (docs.anthropic.com/en/api/errors)
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


#: the members that are words of an error in an event that has no part of an answer
_OF_ERRORS = ("message", "detail", "details", "msg", "error_msg", "error_message", "errors")


def error_in(event: Mapping[str, Any]) -> Any:
    """Returns the error that an event reports, in any form; None if it reports none.

    Its own member is not needed: servers also send the body of an error alone.
    """
    if error := event.get("error"):
        return event if error is True else error
    if "error" in (event.get("object"), event.get("type")):
        return event
    if event.get("choices"):
        return None
    base = members(event.get("base_resp"))  # MiniMax
    if number(base.get("status_code")):
        return base
    told = any(event.get(name) for name in _OF_ERRORS)
    return event if told and not isinstance(event.get("message"), dict) else None


def failure_in_stream(error: Any) -> Failure:
    """Returns the failure for the error in an event: an object of any form, or a text."""
    if not isinstance(error, Mapping):
        return Failure("answer", words(error) or "error")
    text = json.dumps(dict(error), ensure_ascii=False, default=str)
    for name in ("code", "status", "type"):
        found = error.get(name)
        if isinstance(found, str):
            found = int(found) if found.isdecimal() else _STATUS_OF_TYPE.get(found)
        if isinstance(found, int) and 400 <= found <= 599:
            return Failure("answer", text, found)
    return Failure("answer", text)


def seconds_to_wait(headers: Mapping[str, str]) -> float | None:
    """Returns the seconds that `Retry-After`, a number or a date (RFC 9110, 10.2.3), asks for.

    Returns None if the header is missing or malformed.
    """
    said = headers.get("retry-after", "").strip()
    try:
        seconds = float(said)
    except ValueError:
        pass
    else:
        return max(0.0, seconds) if math.isfinite(seconds) else None
    try:
        return max(0.0, parsedate_to_datetime(said).timestamp() - time.time())
    except ValueError:
        return None


class Place(Struct, frozen=True):
    """The provider of a request, in words for the user."""

    #: the model as the user named it
    model: str
    #: the name of the provider
    name: str
    #: with the port unless it is the default one
    host: str
    #: the variable that holds the key; empty if none is needed
    key: str = ""
    #: the variable that holds the base URL; empty if none is set
    base_url: str = ""
    #: the variable that holds the proxy; empty if there is none
    proxy: str = ""


def model_error(
    failure: Failure, place: Place, seconds: float, mask: Callable[[str], str]
) -> ModelError:
    """Returns the error with its sentence for the user.

    `seconds`: the limit of a silence. `mask` removes secrets from what the server says.
    """
    sentence = _sentence(failure, place, seconds)
    told = words_of(failure.text, mask) if failure.fault in ("answer", "given_up") else ""
    if told:
        who = failure.by or "The server"
        told = _PATH.sub("[path]", told) if failure.by else told
        sentence = f'{sentence.removesuffix(_SEE_LOG)} {who} says: "{told}"'
    error = ModelError(sentence, failure.kind, failure.window, failure.retry_after)
    error.may_be_context = failure.may_be_context
    return error


def retrying(failure: Failure, place: Place, seconds: float, wait: float) -> str:
    """Returns the sentence that says that the next attempt comes in `wait` seconds."""
    what = _sentence(failure, place, seconds).partition(": ")[0]
    return f"{what}: trying again in {max(1, round(wait))} s."


def _sentence(failure: Failure, place: Place, seconds: float) -> str:
    name = place.name
    at = f"{name} ({place.host})" if place.host else name
    if failure.fault == "stall":
        return f"{at} has sent nothing for {seconds:g} seconds: send the prompt again."
    if failure.fault == "broken":
        return f"The connection to {at} broke off in the middle: send the prompt again."
    if failure.fault == "given_up":
        return f"{at} broke off its answer: send the prompt again."
    if failure.fault == "garbage":
        return f"What {at} answered can't be read: check that it speaks this model's protocol."
    if failure.fault == "unreachable":
        proxy = f"the proxy in {place.proxy}" if place.proxy else ""
        *first, last = filter(None, ("the network", place.base_url, proxy))
        check = f"{', '.join(first)}, and {last}" if first else last
        return f"{at} can't be reached: check {check}."
    if failure.no_credit:
        return f"The account at {name} has no credit left: add some, or choose another model."
    if failure.by and failure.kind in ("other", "unreachable"):
        return f"{failure.by} could not ask {at}: choose another model if that can't be mended."
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


#: matches a path in a library's words
_PATH = re.compile(r"(?<![\w:/])(?:/[\w.@+-]+){2,}")
#: the end of a sentence that no words of the server follow
_SEE_LOG = " The log says why."
_SENTENCES: dict[ErrorKind, str] = {
    "auth": "{name} doesn't accept {key}{status}: set one that may use {model}.",
    "rate_limit": "{name} takes no more requests for now: wait {wait}, or choose another model.",
    "context": "The conversation no longer fits {model}: use `/compact`, or choose a model with a"
    " larger window.",
    "refused": "{name} refused the request by its content policy: put it differently.",
    "unknown_model": "{at} knows no model {model}: check its name, or choose another model.",
    "unreachable": "{at} has trouble of its own{status}: try again later, or choose another model.",
    "other": "{at} didn't take the request{status}: choose another model if that can't be mended."
    + _SEE_LOG,
}
