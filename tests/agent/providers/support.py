"""What the tests of models share: what is asked, and the names of two models."""

from collections.abc import Callable, Sequence
from typing import Any

import anyio
import pytest

from agent.model import Completion, Message, ModelError
from agent.providers.provider_model import ProviderModel
from agent.providers.retry import Retry
from tests.agent.support import Tokens

OPENAI, ANTHROPIC = "openai/gpt-4o", "anthropic/claude-sonnet-4-5"
#: takes tools only in OpenAI's Responses, if it is to think
RESPONDING = "openai/gpt-6-astra"
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

#: `open_model(NAME, **settings of ProviderModel)` at the server
Open = Callable[..., ProviderModel]


async def answer(
    model: ProviderModel, messages: Sequence[Message] = ASK, tokens: Tokens | None = None
) -> Completion:
    with anyio.fail_after(5):
        return await model.complete(messages, TOOLS, tokens or Tokens())


def counted(said: Completion) -> tuple[int, int, int, float | None]:
    """Its usage: tokens in, out and cached, and USD to the millionth of a cent."""
    assert said.usage
    usage = said.usage
    cost = usage.cost if usage.cost is None else round(usage.cost, 8)
    return usage.input, usage.output, usage.cached, cost


async def fails(model: ProviderModel, tokens: Tokens | None = None) -> ModelError:
    with pytest.raises(ModelError) as raised:
        await answer(model, tokens=tokens)
    return raised.value
