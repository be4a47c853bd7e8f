"""Any model that LiteLLM knows, behind the `Model` protocol: call, streamed, tried again.

Invariants
- A token is told as soon as its event has come, and never twice: an attempt that has told something
  is not repeated.
- A cancellation closes the connection at once, in whatever state it is (invariants C3, C10).
- Every error becomes a ModelError in our own words.

Measured on one core, against a server on another over the loopback, with one word an event:

    LiteLLM's stream (CustomStreamWrapper)      710 us a word     1,400 words a second
    the OpenAI client's stream beneath it       160               6,300
    LiteLLM's parser of Anthropic's events       56              18,000
    this module, chat completions                 8              85,000
    this module, Anthropic's messages            13              50,000

In LiteLLM's stream each chunk becomes a pydantic object two or three times, is dumped, copied and
kept for a log that nobody reads, and no setting prevents that. So LiteLLM's classes build the
request only, and the events are read off the connection here. The first token then comes after 3 ms
instead of 7, and with 200 messages after 4 instead of 116, which the OpenAI client spends on
walking through them on the event loop.
"""

from __future__ import annotations

import contextlib
import logging
import math
import os
from collections.abc import AsyncGenerator, Callable, Sequence
from time import monotonic
from typing import Any
from urllib.parse import urlsplit

import anyio
from anyio import to_thread
from msgspec import Struct

from agent.key_help import key_help
from agent.model import (
    Completion,
    Message,
    ModelError,
    ModelInfo,
    OnToken,
    Part,
    ToolSpec,
    Usage,
)
from agent.providers import (
    direct_stream,
    http_connection,
    library,
    library_stream,
    ollama,
    plain,
    plain_http,
)
from agent.providers.abilities import Abilities, loaded
from agent.providers.anthropic_form import AnthropicForm
from agent.providers.chat_form import ChatForm
from agent.providers.event_body import Unreadable
from agent.providers.failure import Failure, Place, model_error, retrying
from agent.providers.keys import Access
from agent.providers.known_providers import PROVIDERS
from agent.providers.outgoing import Target
from agent.providers.partial_completion import Form, PartialCompletion
from agent.providers.proxies import proxy_variable
from agent.providers.request import (
    DIRECT,
    AnswerForm,
    Request,
    build,
    build_responses,
    needs_responses,
)
from agent.providers.responses_form import ResponsesForm
from agent.providers.retry import Retry

_log = logging.getLogger(__name__)

#: the key for a server at the user's base URL that needs none: the libraries insist on one
_NO_KEY = "none"


class _Call(Struct, frozen=True):
    """A model call that was prepared; it may be sent several times."""

    target: Target
    place: Place
    #: None if LiteLLM's own stream sends the request
    request: Request | None


class ProviderModel:
    """A model of a provider.

    `access` returns the key and the base URL of a provider, by LiteLLM's name of it; it is called
    for each model call. `silence`: seconds without a byte after which a call fails. `abilities`:
    what is known of all models. `mask` removes secrets from a provider's words.
    """

    def __init__(
        self,
        id: str,
        access: Callable[[str], Access],
        *,
        thought_level: str | None = None,
        silence: float = 120,
        retry: Retry | None = None,
        direct: bool = True,
        abilities: Abilities | None = None,
        mask: Callable[[str], str] = str,
    ) -> None:
        self.id = id
        self._access = access
        self._thought_level = thought_level
        self.silence = silence
        self._retry = retry or Retry()
        self._direct = direct
        self._abilities = abilities or Abilities()
        self._mask = mask

    @property
    def needs_library(self) -> bool:
        """False if the model is asked without LiteLLM, because that isn't loaded and adds nothing.

        It looks at the key and the base URL as they are now.
        """
        return self._plain_target() is None

    async def info(self) -> ModelInfo:
        try:
            if self.needs_library:
                await loaded()
            target, access = self._target()
        except ModelError:
            return ModelInfo()
        own_server = access.base_url is not None
        return await self._abilities.info(self.id, target, own_server=own_server)

    async def warm(self) -> None:
        """Loads what a first call would wait for.

        A forked agent skips most of it: its parent has loaded that, and a thread that did it again
        would only delay `session/new`.
        """
        if not self.needs_library:
            await to_thread.run_sync(plain_http.load, abandon_on_cancel=True)
            return
        if not library.is_loaded():
            await to_thread.run_sync(self._prepare, _GREETING, (), abandon_on_cancel=True)
        await http_connection.client()

    def rehearse(self, tools: Sequence[ToolSpec]) -> None:
        """Looks the model up and builds a request that is not sent; blocks the thread.

        Raises ModelError.
        """
        target, _ = self._target()
        if target.provider not in ollama.PROVIDERS:  # Ollama's would be asked over the network
            library.model_info(target.model, target.provider)
        self._prepare(_GREETING, tools)

    async def complete(
        self, messages: Sequence[Message], tools: Sequence[ToolSpec], on_token: OnToken
    ) -> Completion:
        call = await to_thread.run_sync(self._prepare, messages, tools, abandon_on_cancel=True)
        attempts, began = 0, monotonic()
        while True:
            attempts += 1
            form = _FORMS[call.request.form if call.request else "chat"]()
            try:
                await _read(self._events(call, messages, tools), form, on_token)
            except Failure as failure:
                failed = failure
                wait = None if form.partial.begun else self._retry.wait(failure, attempts)
                _log.info("attempt %d at %s failed: %s", attempts, self.id, failure)
                if wait is None:
                    self._abilities.learn(self.id, call.target.base_url, failure.window)
                    told = model_error(failure, call.place, self.silence, self._mask)
                    raise told from failure
            else:
                return _completion(form.partial, call)
            if monotonic() - began + wait > self._retry.quiet:
                notice = retrying(failed, call.place, self.silence, wait)
                await on_token(Part("notice", notice))
            await self._retry.sleep(wait)

    def _events(
        self, call: _Call, messages: Sequence[Message], tools: Sequence[ToolSpec]
    ) -> AsyncGenerator[list[Any]]:
        if call.request is not None:
            return direct_stream.events(call.request, self.silence)
        return library_stream.events(self.id, call.target, messages, tools, self.silence)

    def _prepare(self, messages: Sequence[Message], tools: Sequence[ToolSpec]) -> _Call:
        """Prepares a model call; blocks the thread. Raises ModelError."""
        found = self._plain_target()
        target, access = found or self._target()
        if access.lacks_key:
            raise missing_key(access)
        if strange := access.strange:
            raise ModelError(strange, "auth")
        request = (plain.build if found else self._request)(target, messages, tools)
        if request is None:
            library.load_stream(target.provider)
        url = request.url if request else target.base_url or ""
        place = Place(
            model=self.id,
            name=access.name,
            host=_host(url),
            key=access.key_variable,
            base_url=access.base_url_variable,
            proxy=proxy_variable(url, os.environ),
        )
        return _Call(target, place, request)

    def _target(self) -> tuple[Target, Access]:
        """Returns the model with its provider, and the key and base URL. Raises ModelError."""
        if (found := self._plain_target()) is not None:
            return found
        try:
            model, provider, base_url = library.split(self.id)
        except ModelError:
            raise
        except Exception as error:  # LiteLLM's error type depends on the provider
            raise unknown_model(self.id) from error
        return self._target_at(model, provider, base_url)

    def _plain_target(self) -> tuple[Target, Access] | None:
        """Returns what `_target` does; None if LiteLLM is loaded or needed."""
        if library.is_loaded() or not self._direct or (names := plain.split(self.id)) is None:
            return None
        target, access = self._target_at(*names, None)
        own_server = access.base_url is not None
        return (target, access) if plain.suits(target, own_server=own_server) else None

    def _target_at(self, model: str, provider: str, base_url: str | None) -> tuple[Target, Access]:
        """Returns what `_target` does; `base_url` is that of LiteLLM."""
        access = self._access(provider)
        key = access.key or (_NO_KEY if access.base_url and provider in PROVIDERS else None)
        said = self._abilities.declared(self.id)
        target = Target(
            model,
            provider,
            access.base_url or base_url,
            key,
            self._thought_level,
            bearer=access.key_variable.endswith("_AUTH_TOKEN"),
            # Ollama alone is asked for a window
            window=said.window if provider in ollama.PROVIDERS else None,
            thinks=bool(said.thinking),
            parameters=access.parameters,
        )
        return target, access

    def _request(
        self, target: Target, messages: Sequence[Message], tools: Sequence[ToolSpec]
    ) -> Request | None:
        if not self._direct or target.provider not in DIRECT:
            return None
        try:
            builds = build_responses if needs_responses(target, tools) else build
            return builds(target, messages, tools)
        except Exception:  # LiteLLM's own stream may know a way, or fails with a reason
            _log.info("no request for %s could be built", self.id, exc_info=True)
            return None


#: what reads an answer of a form; LiteLLM's own stream has that of chat completions
_FORMS: dict[AnswerForm, Callable[[], Form]] = {
    "chat": ChatForm,
    "messages": AnthropicForm,
    "responses": ResponsesForm,
}
_GREETING: tuple[Message, ...] = ({"role": "user", "content": "hello"},)


def missing_key(access: Access) -> ModelError:
    name = access.key_variable
    return ModelError(
        f"No key for {access.name}: set {name} in the environment, or write a line `{name}=...`"
        f" into `{access.keys_file}`, or choose another model."
        f" {key_help(name, access.keys_file)}",
        "missing_key",
    )


def unknown_model(id: str) -> ModelError:
    return ModelError(
        f"Nobody is known to have a model {id}: name it PROVIDER/MODEL as LiteLLM does, such as"
        " openai/gpt-5.2, or choose another model.",
        "unknown_model",
    )


async def _read(source: AsyncGenerator[list[Any]], form: Form, on_token: OnToken) -> None:
    """Reads an answer to its end, and tells its parts. Raises Failure.

    Of an answer with something that can't be read, the rest counts, and the user is told. But it is
    a failure if it has calls, because what is missing may be a piece of them.
    """
    unreadable: list[Unreadable] = []
    try:
        await _read_events(source, form, on_token, unreadable)
    except Failure as failure:
        if unreadable and not form.partial.begun and failure.fault in ("broken", "garbage"):
            raise _unread(unreadable) from failure
        if not form.whole:  # after the end of the answer a failure does no harm
            raise
    for part in form.partial.rest():
        await on_token(part)
    if (unreadable or form.odd) and not form.partial.begun:
        raise _unread(unreadable)
    if unreadable and form.partial.calls:
        raise Failure("garbage", "an event among calls is no JSON")
    if unreadable:
        await on_token(Part("notice", _LEFT_OUT))


async def _read_events(
    source: AsyncGenerator[list[Any]],
    form: Form,
    on_token: OnToken,
    unreadable: list[Unreadable],
) -> None:
    """Reads the events up to the end of the answer; adds to `unreadable` those that are no JSON.

    Once the server has said the end, what still comes is waited for `AFTER_END` seconds, again from
    each part of the answer: there are servers that say the end with every part.
    """
    deadline = math.inf
    async with contextlib.aclosing(source):
        while not form.over:
            with anyio.CancelScope(deadline=deadline) as waiting:
                batch = await anext(source, None)
            if waiting.cancelled_caught or batch is None:
                return
            told = 0
            for event in batch:
                if isinstance(event, Unreadable):
                    unreadable.append(event)
                    continue
                for part in form.read(event):
                    await on_token(part)
                    told += bool(part.text)
                if form.failure is not None:
                    raise form.failure
            if form.whole and (told or deadline == math.inf):
                deadline = anyio.current_time() + http_connection.AFTER_END


_LEFT_OUT = "A part of the model's answer could not be read and is left out."


def _unread(unreadable: Sequence[Unreadable]) -> Failure:
    said = next((event.said for event in unreadable if event.said), "")
    return Failure("answer", said) if said else Failure("garbage", "nothing that can be read")


def _completion(answer: PartialCompletion, call: _Call) -> Completion:
    usage, target = None, call.target
    if (tokens := answer.tokens) is not None:
        cost = tokens.cost
        if cost is None and library.is_loaded():  # else the model has no price there
            cost = library.cost(target.model, target.provider, tokens)
        usage = Usage(tokens.input, tokens.output, tokens.cached, cost)
    # LiteLLM's own stream calls all reasoning `reasoning_content`, whoever sent it.
    as_sent = call.request is not None or library.speaks_openai(target.provider)
    return answer.completion(usage, target.signs_as, target.sender if as_sent else "")


def _host(url: str) -> str:
    return urlsplit(url).netloc.rpartition("@")[2]
