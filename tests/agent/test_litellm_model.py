"""A model behind real HTTP, in the forms of OpenAI's chat completions and Anthropic's messages."""

from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any

import anyio
import pytest

from agent.keys import Access
from agent.litellm_model import LiteLLMModel
from agent.model import Completion, Message, ModelError, Part, ToolCall
from agent.providers import library
from agent.providers.retry import Retry
from tests.agent.support import Tokens
from tests.support.model_replies import (
    Call,
    Count,
    Cut,
    End,
    Event,
    Gate,
    More,
    Raw,
    Status,
    Step,
    Text,
    Think,
)
from tests.support.model_server import ModelServer

OPENAI, ANTHROPIC = "openai/gpt-4o", "anthropic/claude-sonnet-4-5"
BOTH = pytest.mark.parametrize("name", [OPENAI, ANTHROPIC])

ASK: list[Message] = [{"role": "system", "content": "Be short."}, {"role": "user", "content": "Hi"}]
TOOLS: list[dict[str, Any]] = [
    {
        "type": "function",
        "function": {
            "name": "read_file",
            "description": "Reads a file.",
            "parameters": {"type": "object", "properties": {"path": {"type": "string"}}},
        },
    }
]
KEY = "sk-0123456789-secret"
AT_ONCE = Retry(first=0)

Open = Callable[..., LiteLLMModel]


@pytest.fixture(scope="module", autouse=True)
def litellm() -> Any:
    """Its import takes seconds: once, and not within a test's bound."""
    return library.load()


@pytest.fixture
async def server() -> AsyncIterator[ModelServer]:
    async with ModelServer() as server:
        yield server


@pytest.fixture
def open_model(server: ModelServer) -> Open:
    """`open_model(NAME)` at the server."""

    def access(provider: str) -> Access:
        url = server.anthropic_url if provider == "anthropic" else server.openai_url
        return Access(provider, f"{provider.upper()}_API_KEY", KEY, "THE_BASE_URL", url)

    def open_model(name: str, **settings: Any) -> LiteLLMModel:
        return LiteLLMModel(name, access, **{"retry": AT_ONCE, **settings})

    return open_model


async def answer(
    model: LiteLLMModel, messages: Sequence[Message] = ASK, tokens: Tokens | None = None
) -> Completion:
    with anyio.fail_after(5):
        return await model.complete(messages, TOOLS, tokens or Tokens())


async def fails(model: LiteLLMModel, tokens: Tokens | None = None) -> ModelError:
    with pytest.raises(ModelError) as raised:
        await answer(model, tokens=tokens)
    return raised.value


# What is answered


@BOTH
async def test_every_token_is_told_in_order_and_the_answer_is_their_sum(
    server: ModelServer, open_model: Open, name: str
) -> None:
    server.say(Think("Hm"), Think(", well"), Text("Hello"), Text(" you"))
    tokens = Tokens()
    said = await answer(open_model(name), tokens=tokens)
    assert tokens.told == [
        Part("reasoning", "Hm"),
        Part("reasoning", ", well"),
        Part("text", "Hello"),
        Part("text", " you"),
    ]
    assert (said.reasoning, said.text, said.stop) == ("Hm, well", "Hello you", "end_turn")


@BOTH
async def test_a_token_is_told_before_the_next_one_is_sent(
    server: ModelServer, open_model: Open, name: str
) -> None:
    server.say(Text("one"), Gate("two"), Text("two"))

    async def open_gate(token: Any) -> None:
        server.open("two")

    with anyio.fail_after(5):
        said = await open_model(name).complete(ASK, [], open_gate)
    assert said.text == "onetwo"


@BOTH
async def test_tool_calls_whose_pieces_come_mixed_are_put_together(
    server: ModelServer, open_model: Open, name: str
) -> None:
    server.say(
        Text("Look:"),
        Call("read_file", '{"pa', id="call_a"),
        Call("search", "", id="call_b"),
        More(0, 'th": "x"'),
        More(1, '{"for": "é"}'),
        More(0, "}"),
    )
    tokens = Tokens()
    said = await answer(open_model(name), tokens=tokens)
    assert said.tool_calls == (
        ToolCall("call_a", "read_file", '{"path": "x"}'),
        ToolCall("call_b", "search", '{"for": "é"}'),
    )
    assert said.stop == "end_turn"
    calls = [token for token in tokens.told if isinstance(token, Part) and token.kind != "text"]
    assert [(part.index, part.name) for part in calls if part.name] == [
        (0, "read_file"),
        (1, "search"),
    ]
    for number, call in enumerate(said.tool_calls):
        assert "".join(part.text for part in calls if part.index == number) == call.arguments
