"""LiteLLM's own stream, which the providers get whose answers have another form."""

import os
import re
from copy import deepcopy
from pathlib import Path
from typing import Any

import anyio
import pytest

from agent.model import Message, Part, ToolCall
from agent.providers import library
from agent.providers.keys import Keys
from agent.providers.known_providers import variables
from agent.providers.provider_model import ProviderModel
from agent.providers.retry import Retry
from tests.agent.providers.support import (
    ANTHROPIC,
    ASK,
    BOTH,
    OPENAI,
    Open,
    answer,
    counted,
    fails,
)
from tests.agent.providers.test_cancel import Asking
from tests.agent.providers.test_failures import REFUSALS
from tests.agent.support import Tokens
from tests.support.model_replies import (
    Call,
    Count,
    Cut,
    Event,
    Gate,
    More,
    Raw,
    Status,
    Text,
    Think,
)
from tests.support.model_server import ModelServer

#: LiteLLM looks into its own objects in a way that their library advises against
pytestmark = pytest.mark.filterwarnings("ignore:Accessing the 'model_:DeprecationWarning")


@BOTH
async def test_text_thoughts_and_calls_are_the_same(
    server: ModelServer, open_model: Open, name: str
) -> None:
    server.say(
        Think("Hm"),
        Text("Hello"),
        Text(" you"),
        Call("read_file", '{"path"', id="call_a"),
        More(0, ': "x"}'),
        Call("search", "{}", id="call_b"),
        Count(1000, 100, 600),
    )
    tokens = Tokens()
    said = await answer(open_model(name, direct=False), tokens=tokens)
    assert tokens.told[:3] == [Part("reasoning", "Hm"), Part("text", "Hello"), Part("text", " you")]
    assert (said.reasoning, said.text, said.stop) == ("Hm", "Hello you", "end_turn")
    assert said.tool_calls == (
        ToolCall("call_a", "read_file", '{"path": "x"}'),
        ToolCall("call_b", "search", "{}"),
    )


async def test_usage_is_the_same(server: ModelServer, open_model: Open) -> None:
    server.say(Text("Hi"), Count(input=100, output=100, cached=600, written=300))
    said = await answer(open_model(ANTHROPIC, direct=False))
    assert counted(said) == (1000, 100, 600, 0.003105)


async def test_signed_thoughts_are_the_same(server: ModelServer, open_model: Open) -> None:
    server.say(Think("Hm, "), Think("well", "c2ln"), Call("read_file"))
    said = await answer(open_model(ANTHROPIC, direct=False))
    assert said.provider == {
        "by": "anthropic",
        "thinking_blocks": [{"type": "thinking", "thinking": "Hm, well", "signature": "c2ln"}],
    }


@pytest.mark.parametrize(("status", "said", "kind", "hint"), REFUSALS)
async def test_a_refusal_is_told_in_the_same_way(
    server: ModelServer, open_model: Open, status: int, said: str, kind: str, hint: str
) -> None:
    server.say(Status(status, said))
    error = await fails(open_model(OPENAI, direct=False, retry=Retry(attempts=1)))
    assert error.kind == kind
    assert hint in str(error)
    assert str(error).endswith(f'The server says: "{said}: sorry"')


@BOTH
async def test_what_may_pass_is_tried_again_and_by_us_alone(
    server: ModelServer, open_model: Open, name: str
) -> None:
    for _ in range(5):
        server.say(Status(503))
    await fails(open_model(name, direct=False))
    assert len(server.requests) == 4


@BOTH
async def test_silence_and_a_broken_connection_are_told(
    server: ModelServer, open_model: Open, name: str
) -> None:
    server.say(Text("Hel"), Gate("never"))
    assert "has sent nothing" in str(await fails(open_model(name, direct=False, silence=0.2)))
    server.say(Text("Hel"), Cut())
    assert (await fails(open_model(name, direct=False))).kind == "unreachable"


async def test_garbage_is_told(server: ModelServer, open_model: Open) -> None:
    server.say(Text("Hel"), Raw(b"data: {not json\n\n"))
    await fails(open_model(OPENAI, direct=False))


async def test_the_same_word_a_thousand_times_is_no_error(
    server: ModelServer, open_model: Open
) -> None:
    server.say(*[Text("na ")] * 300)
    assert (await answer(open_model(OPENAI, direct=False))).text == "na " * 300


# Forms that we don't read ourselves


async def test_openai_s_responses_are_asked_for_where_chat_completions_take_no_tools(
    server: ModelServer, open_model: Open
) -> None:
    server.say(
        Think("Hm"),
        Text("Hello"),
        Text(" you"),
        Call("read_file", '{"path"', id="call_a"),
        More(0, ': "x"}'),
        Call("search", "{}", id="call_b"),
        Count(1000, 100, 600),
    )
    tokens = Tokens()
    said = await answer(open_model("openai/gpt-6-astra", thought_level="low"), tokens=tokens)
    assert server.requests[0].path.endswith("/responses")
    assert tokens.told[:3] == [Part("reasoning", "Hm"), Part("text", "Hello"), Part("text", " you")]
    assert (said.reasoning, said.text, said.stop) == ("Hm", "Hello you", "end_turn")
    assert said.tool_calls == (
        ToolCall("call_a", "read_file", '{"path": "x"}'),
        ToolCall("call_b", "search", "{}"),
    )
    assert counted(said)[:3] == (1000, 100, 600)


async def test_gemini_s_answer_is_read_and_its_signature_comes_back(
    server: ModelServer, open_model: Open
) -> None:
    name = "gemini/gemini-2.5-pro"
    server.say(Think("Hm"), Text("Hello"), Call("read_file", '{"path": "x"}'), Count(1000, 100))
    tokens = Tokens()
    said = await answer(open_model(name), tokens=tokens)
    assert tokens.told[:2] == [Part("reasoning", "Hm"), Part("text", "Hello")]
    assert [(call.name, call.arguments) for call in said.tool_calls] == [
        ("read_file", '{"path": "x"}')
    ]
    assert counted(said)[:3] == (1000, 100, 0)
    (call,) = said.tool_calls
    function = {"name": call.name, "arguments": call.arguments}
    calls = [{"id": call.id, "type": "function", "function": function}]
    history: list[Message] = [
        *ASK,
        {"role": "assistant", "content": said.text, "tool_calls": calls},
        {"role": "tool", "tool_call_id": call.id, "content": "text"},
    ]
    server.say(Text("Done"))
    await answer(open_model(name), history)
    model, tool = server.requests[1].body["contents"][-2:]
    (sent,) = [part for part in model["parts"] if "functionCall" in part or "function_call" in part]
    assert sent["thoughtSignature"] == "c2ln"
    assert "text" in str(tool["parts"])


async def test_what_litellm_writes_into_the_schemas_of_tools_reaches_no_other_request(
    server: ModelServer, open_model: Open
) -> None:
    options = {"type": "object", "properties": {}, "additionalProperties": False, "strict": True}
    function = {"name": "search", "description": "Searches.", "parameters": options}
    tools: list[dict[str, Any]] = [{"type": "function", "function": function}]
    given = deepcopy(tools)
    server.say(Text("Hello"))
    with anyio.fail_after(5):
        await open_model("gemini/gemini-2.5-pro").complete(ASK, tools, Tokens())
    assert tools == given


@pytest.mark.parametrize("name", ["openai/gpt-6-astra", "gemini/gemini-2.5-pro"])
async def test_the_server_sees_a_cancel(server: ModelServer, open_model: Open, name: str) -> None:
    server.say(Text("one "), Gate("never"), Text("two"))
    asking = Asking(open_model(name, thought_level="low"))
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(asking.run)
        with anyio.fail_after(5):
            await asking.token_told.wait()
            asking.scope.cancel()
            await server.requests[0].gone.wait()
            await asking.ended.wait()
    assert asking.tokens.texts == ["one "]


async def test_litellm_is_given_the_credentials_of_aws_that_the_file_of_keys_has(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in [name for name in os.environ if name.startswith("AWS_")]:
        monkeypatch.delenv(name)
    file = tmp_path / "keys.env"
    file.write_text("AWS_ACCESS_KEY_ID=id\nAWS_SECRET_ACCESS_KEY=secret\nAWS_REGION=eu-west-1\n")
    file.chmod(0o600)
    asked: dict[str, Any] = {}

    async def acompletion(**options: Any) -> None:
        asked.update(options)
        raise ConnectionError

    keys = Keys(file, {})
    model = ProviderModel(
        "bedrock/anthropic.claude-3-5-sonnet-20240620-v1:0",
        lambda provider: keys.access(variables(provider)),
        retry=Retry(attempts=1),
    )
    monkeypatch.setattr(library.load(), "acompletion", acompletion)
    await fails(model)
    assert (asked["aws_access_key_id"], asked["aws_secret_access_key"]) == ("id", "secret")
    assert asked["aws_region_name"] == "eu-west-1"


# who said it

TOO_HOT = {"code": 503, "message": "it is too hot", "status": "UNAVAILABLE"}


@pytest.mark.parametrize("name", ["gemini/gemini-2.5-pro", OPENAI])
async def test_an_error_in_a_stream_is_told_in_the_server_s_words_alone(
    server: ModelServer, open_model: Open, name: str
) -> None:
    server.say(Text("Hel"), Event({"error": TOO_HOT}))
    error = await fails(open_model(name, direct=False))
    assert re.search(r'The server says: "(UNAVAILABLE - |UNKNOWN - )?it is too hot"$', str(error))


NONSENSE: list[tuple[str, Any]] = [
    ("gemini/gemini-2.5-pro", {"candidates": 7}),
    ("gemini/gemini-2.5-pro", {"candidates": [{"content": {"parts": [{"functionCall": 7}]}}]}),
    ("gemini/gemini-2.5-pro", {"candidates": [{"content": 7}]}),
]


@pytest.mark.parametrize(("name", "event"), NONSENSE)
async def test_what_litellm_can_t_read_is_told_without_its_words(
    server: ModelServer, open_model: Open, name: str, event: Any
) -> None:
    server.say(Text("Hel"), Event(event))
    error = await fails(open_model(name, direct=False, retry=Retry(attempts=1)))
    assert "can't be read" in str(error)
    assert "says" not in str(error)


async def test_words_of_litellm_s_own_are_told_under_its_name(
    server: ModelServer, open_model: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    litellm = library.load()

    async def acompletion(**options: Any) -> None:
        said = "Missing credentials in /home/somebody/key.json\nTraceback (most recent call last):"
        raise litellm.BadRequestError(said, "gemini-2.5-pro", "gemini")

    monkeypatch.setattr(litellm, "acompletion", acompletion)
    error = str(await fails(open_model("gemini/gemini-2.5-pro")))
    assert error.startswith("LiteLLM could not ask gemini (127.0.0.1:")
    assert error.endswith('LiteLLM says: "Missing credentials in [path]"')
