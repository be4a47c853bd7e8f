"""A provider on the loopback, and models that are asked there."""

from collections.abc import AsyncIterator
from typing import Any

import pytest

from agent.providers import library
from agent.providers.keys import Access
from agent.providers.provider_model import ProviderModel
from tests.agent.providers.support import AT_ONCE, KEY, Open
from tests.support.model_server import ModelServer


@pytest.fixture(scope="session", autouse=True)
def litellm() -> Any:
    """Its import takes seconds: once, and not within a test's bound."""
    library.load_stream("openai")
    library.part("responses.mcp.chat_completions_handler")  # which its first call would import
    return library.load()


@pytest.fixture
async def server() -> AsyncIterator[ModelServer]:
    async with ModelServer() as server:
        yield server


@pytest.fixture
def open_model(server: ModelServer) -> Open:
    def access(provider: str) -> Access:
        url = server.anthropic_url if provider == "anthropic" else server.openai_url
        return Access(provider, f"{provider.upper()}_API_KEY", KEY, "THE_BASE_URL", url)

    def open_model(name: str, **settings: Any) -> ProviderModel:
        return ProviderModel(name, access, **{"retry": AT_ONCE, **settings})

    return open_model
