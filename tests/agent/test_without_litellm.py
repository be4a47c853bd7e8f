"""In an installation without LiteLLM a provider's model says so, in words that tell what to do."""

import importlib
import sys
from functools import cache

import pytest

from agent.model import Message, ModelError, ModelInfo, Token
from agent.providers import library
from agent.providers.keys import Access
from agent.providers.provider_model import ProviderModel

PROMPT: list[Message] = [{"role": "user", "content": "hello"}]


@pytest.fixture
def model(monkeypatch: pytest.MonkeyPatch) -> ProviderModel:
    """A model with a key. None in the table of modules fails an import like a missing package."""
    for name in ("load", "split"):  # they keep what they found before
        monkeypatch.setattr(library, name, cache(getattr(library, name).__wrapped__))
    monkeypatch.setitem(sys.modules, "litellm", None)
    return ProviderModel(
        "openai/gpt-5.2", lambda name: Access(name, "OPENAI_API_KEY", "k", "", None)
    )


async def test_a_prompt_is_answered_with_what_is_missing(model: ProviderModel) -> None:
    async def told(token: Token) -> None:
        pytest.fail("nothing was said")

    with pytest.raises(ModelError, match="LiteLLM, which asks models, is not installed") as raised:
        await model.complete(PROMPT, [], told)
    assert "acp-bridge" in str(raised.value)
    assert raised.value.kind == "other"  # not that nobody knows the model


async def test_nothing_is_known_of_the_model(model: ProviderModel) -> None:
    assert await model.info() == ModelInfo()


def test_another_module_that_lacks_is_not_taken_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    def lacks(name: str) -> object:
        raise ModuleNotFoundError("No module named 'httpx'", name="httpx")

    monkeypatch.setattr(importlib, "import_module", lacks)
    with pytest.raises(ModuleNotFoundError, match="httpx"):
        library.load.__wrapped__()
