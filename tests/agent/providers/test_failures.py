"""What goes wrong at a provider, when it is tried again, and how the user is told."""

import socket

import anyio
import pytest

from agent.model import ErrorKind, Part
from agent.providers.keys import Access
from agent.providers.provider_model import ProviderModel
from agent.providers.retry import Retry
from tests.agent.providers.support import (
    ANTHROPIC,
    ASK,
    AT_ONCE,
    BOTH,
    KEY,
    OPENAI,
    Open,
    answer,
    fails,
)
from tests.agent.support import Tokens
from tests.support.model_replies import Call, Cut, Event, Gate, Raw, Short, Status, Text
from tests.support.model_server import ModelServer

#: what a provider says, by which it must be told apart, and the first words of our sentence's end
REFUSALS: list[tuple[int, str, ErrorKind, str]] = [
    (401, "authentication_error", "auth", "set one that may use"),
    (403, "permission_error", "auth", "set one that may use"),
    (400, "API key not valid. Please pass a valid API key.", "auth", "set one that may use"),
    (402, "billing_error", "rate_limit", "no credit left"),
    (429, "insufficient_quota", "rate_limit", "no credit left"),
    (400, "Your credit balance is too low", "rate_limit", "no credit left"),
    (429, "rate_limit_error", "rate_limit", "wait a minute"),
    (400, "context_length_exceeded", "context", "/compact"),
    (400, "prompt is too long: 209000 tokens > 200000 maximum", "context", "/compact"),
    (413, "request_too_large", "context", "/compact"),
    (400, "content_policy_violation", "refused", "put it differently"),
    (404, "not_found_error", "unknown_model", "check its name"),
    (400, "model_not_found", "unknown_model", "check its name"),
    (500, "api_error", "unreachable", "try again later"),
    (529, "overloaded_error", "unreachable", "try again later"),
    (400, "invalid_request_error", "other", "choose another model"),
]


@BOTH
@pytest.mark.parametrize(("status", "said", "kind", "hint"), REFUSALS)
async def test_a_refusal_becomes_a_sentence_of_ours_and_what_the_server_says(
    server: ModelServer,
    open_model: Open,
    name: str,
    status: int,
    said: str,
    kind: ErrorKind,
    hint: str,
) -> None:
    server.say(Status(status, said))
    error = await fails(open_model(name, retry=Retry(attempts=1)))
    assert error.kind == kind
    ours, _, theirs = str(error).partition(" The server says: ")
    assert hint in ours
    assert ours.count(".") <= 5  # the host's own four and the sentence's end
    assert said not in ours
    assert theirs == f'"{said}: sorry"'
    assert KEY not in str(error)
    assert said in str(error.__cause__)


async def test_a_refused_key_is_named_by_its_variable(
    server: ModelServer, open_model: Open
) -> None:
    server.say(Status(401, "authentication_error"))
    error = await fails(open_model(ANTHROPIC))
    assert "the key in ANTHROPIC_API_KEY" in str(error)


@BOTH
@pytest.mark.parametrize("status", [408, 429, 500, 503, 529])
async def test_what_may_pass_is_tried_again(
    server: ModelServer, open_model: Open, name: str, status: int
) -> None:
    server.say(Status(status))
    server.say(Text("Hello"))
    tokens = Tokens()
    assert (await answer(open_model(name), tokens=tokens)).text == "Hello"
    assert tokens.texts == ["Hello"]
    assert server.requests[0].body == server.requests[1].body


@pytest.mark.parametrize("status", [400, 401, 403, 404, 413])
async def test_what_will_not_pass_is_not_tried_again(
    server: ModelServer, open_model: Open, status: int
) -> None:
    server.say(Status(status))
    await fails(open_model(OPENAI))
    assert len(server.requests) == 1


async def test_it_is_given_up_after_four_attempts(server: ModelServer, open_model: Open) -> None:
    for _ in range(5):
        server.say(Status(503))
    await fails(open_model(OPENAI))
    assert len(server.requests) == 4


async def test_it_waits_as_long_as_the_provider_asks(server: ModelServer, open_model: Open) -> None:
    waited: list[float] = []

    async def wait(seconds: float) -> None:
        waited.append(seconds)

    server.say(Status(429, headers=(("Retry-After", "7"),)))
    server.say(Status(429))
    server.say(Status(429))
    server.say(Text("Hello"))
    await answer(open_model(OPENAI, retry=Retry(sleep=wait)))
    assert waited[0] == 7
    assert 0.5 <= waited[1] <= 1 <= waited[2] <= 2  # 1 and 2 seconds, less up to a half


async def test_a_long_wait_is_told_and_a_short_one_is_not(
    server: ModelServer, open_model: Open
) -> None:
    async def wait(seconds: float) -> None:
        pass

    server.say(Status(503))
    server.say(Status(429, headers=(("Retry-After", "20"),)))
    server.say(Text("Hello"))
    tokens = Tokens()
    await answer(open_model(OPENAI, retry=Retry(sleep=wait)), tokens=tokens)
    told = "openai takes no more requests for now: trying again in 20 s."
    assert tokens.told == [Part("notice", told), Part("text", "Hello")]


async def test_several_short_waits_are_told_when_they_become_long(
    server: ModelServer, open_model: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    passed = 0.0

    async def wait(seconds: float) -> None:
        nonlocal passed
        passed += 2.5

    monkeypatch.setattr("agent.providers.provider_model.monotonic", lambda: passed)
    for _ in range(2):
        server.say(Status(503))
    server.say(Text("Hello"))
    tokens = Tokens()
    await answer(open_model(OPENAI, retry=Retry(sleep=wait)), tokens=tokens)
    assert [isinstance(t, Part) and t.kind for t in tokens.told] == ["notice", "text"]


async def test_a_provider_that_asks_for_too_long_is_not_waited_for(
    server: ModelServer, open_model: Open
) -> None:
    server.say(Status(429, headers=(("Retry-After", "3600"),)))
    error = await fails(open_model(OPENAI, retry=Retry()))
    assert error.kind == "rate_limit"
    assert "wait 60 minutes" in str(error)


@BOTH
async def test_an_error_in_the_stream_before_a_token_is_tried_again(
    server: ModelServer, open_model: Open, name: str
) -> None:
    server.say(Event({"type": "error", "error": {"type": "overloaded_error", "message": "sorry"}}))
    server.say(Text("Hello"))
    assert (await answer(open_model(name))).text == "Hello"


@BOTH
@pytest.mark.parametrize("first", [Text("Hel"), Call("read_file")])
async def test_an_error_after_a_token_is_told_and_not_tried_again(
    server: ModelServer, open_model: Open, name: str, first: Text | Call
) -> None:
    server.say(first, Event({"type": "error", "error": {"type": "overloaded_error"}}))
    tokens = Tokens()
    error = await fails(open_model(name), tokens)
    assert (error.kind, len(server.requests)) == ("unreachable", 1)
    assert tokens.told


@BOTH
async def test_a_connection_that_breaks_before_a_token_is_tried_again(
    server: ModelServer, open_model: Open, name: str
) -> None:
    server.say(Cut())
    server.say(Text("Hello"))
    assert (await answer(open_model(name))).text == "Hello"


@BOTH
async def test_an_empty_text_with_which_openai_begins_is_no_token_that_keeps_from_trying_again(
    server: ModelServer, open_model: Open, name: str
) -> None:
    server.say(Text(""), Cut())
    server.say(Text("Hello"))
    assert (await answer(open_model(name))).text == "Hello"


@BOTH
async def test_a_connection_that_breaks_in_the_middle_is_told(
    server: ModelServer, open_model: Open, name: str
) -> None:
    server.say(Text("Hel"), Cut())
    error = await fails(open_model(name))
    assert error.kind == "unreachable"
    assert "broke off in the middle" in str(error)


@BOTH
async def test_an_answer_that_ends_before_its_end_is_told(
    server: ModelServer, open_model: Open, name: str
) -> None:
    server.say(Text("Hel"), Short())
    assert "broke off in the middle" in str(await fails(open_model(name)))


async def test_a_connection_that_breaks_after_the_end_does_no_harm(
    server: ModelServer, open_model: Open
) -> None:
    finished = {"choices": [{"index": 0, "delta": {}, "finish_reason": "length"}]}
    server.say(Text("Hello"), Event(finished), Cut())
    said = await answer(open_model(OPENAI))
    assert (said.text, said.stop) == ("Hello", "max_tokens")


@BOTH
@pytest.mark.parametrize(
    "garbage",
    [
        Raw(b"data: {not json\n\n"),
        Raw(b"data: [1, 2]\n\n"),
        Event({"type": "content_block_delta", "index": 7, "delta": 3, "choices": [{"delta": 3}]}),
        Event({"type": "content_block_start", "choices": {"a": 1}}),
        Raw(b"data: " + b"x" * (5 * 1024 * 1024)),
    ],
    ids=["no JSON", "no object", "wrong types", "no fields", "a line without an end"],
)
async def test_garbage_is_told_as_such(
    server: ModelServer, open_model: Open, name: str, garbage: Raw | Event
) -> None:
    server.say(garbage)
    error = await fails(open_model(name))
    assert (error.kind, len(server.requests)) == ("other", 1)
    assert "can't be read" in str(error)


@BOTH
async def test_a_provider_that_falls_silent_is_given_up(
    server: ModelServer, open_model: Open, name: str
) -> None:
    server.say(Text("Hel"), Gate("never"))
    error = await fails(open_model(name, silence=0.05))
    assert error.kind == "unreachable"
    assert "has sent nothing for 0.05 seconds" in str(error)
    with anyio.fail_after(5):
        await server.requests[0].gone.wait()


@pytest.mark.parametrize("name", [OPENAI, "openai/gpt-6-astra", "gemini/gemini-9", "mistral/m"])
async def test_a_host_that_is_not_there_is_named_whichever_way_it_is_asked(name: str) -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        port = unused.getsockname()[1]
        access = Access("A", "A_API_KEY", KEY, "A_BASE_URL", f"https://127.0.0.1:{port}/v1")
        model = ProviderModel(name, lambda _: access, retry=AT_ONCE, thought_level="low")
        error = await fails(model)
    assert error.kind == "unreachable"
    assert f"(127.0.0.1:{port}) can't be reached" in str(error)
    assert " at 0x" not in str(error)


async def test_a_host_that_is_not_there_is_named() -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        port = unused.getsockname()[1]
        url = f"http://user:{KEY}@127.0.0.1:{port}/v1?key={KEY}"
        access = Access("OpenAI", "OPENAI_API_KEY", None, "OPENAI_BASE_URL", url)
        model = ProviderModel(OPENAI, lambda _: access, retry=AT_ONCE)
        error = await fails(model)
    assert error.kind == "unreachable"
    assert f"(127.0.0.1:{port}) can't be reached" in str(error)
    assert "OPENAI_BASE_URL" in str(error)
    assert KEY not in str(error)


async def test_a_base_url_that_is_none_is_told() -> None:
    access = Access("OpenAI", "OPENAI_API_KEY", None, "OPENAI_BASE_URL", "localhost 8080")
    error = await fails(ProviderModel(OPENAI, lambda _: access, retry=AT_ONCE))
    assert error.kind == "unreachable"


async def test_a_provider_that_nobody_knows_is_told(open_model: Open) -> None:
    error = await fails(open_model("nobody-s/model"))
    assert error.kind == "unknown_model"
    assert "PROVIDER/MODEL" in str(error)


async def test_what_on_token_raises_is_not_taken_for_the_provider_s(
    server: ModelServer, open_model: Open
) -> None:
    server.say(Text("Hel"), Gate("never"))

    async def fail(token: object) -> None:
        raise KeyError("ours")

    with anyio.fail_after(5), pytest.raises(KeyError, match="ours"):
        await open_model(OPENAI).complete(ASK, [], fail)
    with anyio.fail_after(5):
        await server.requests[0].gone.wait()


@BOTH
async def test_a_redirection_is_not_followed_with_the_key(
    server: ModelServer, open_model: Open, name: str
) -> None:
    server.say(Status(307, headers=(("Location", f"{server.url}/elsewhere"),)))
    assert (await fails(open_model(name))).kind == "other"
    assert len(server.requests) == 1


async def test_an_error_without_an_end_is_not_read_to_it(
    server: ModelServer, open_model: Open
) -> None:
    server.say(Status(400, {"error": "x" * 20_000_000}))
    await fails(open_model(OPENAI))
    with anyio.fail_after(5):
        await server.requests[0].gone.wait()
