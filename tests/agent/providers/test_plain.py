"""Models of the user's own server that are asked without LiteLLM."""

import itertools
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import anyio
import pytest

from agent.model import Message, ModelInfo
from agent.providers import library, plain
from agent.providers.abilities import Abilities
from agent.providers.all_models import AllModels
from agent.providers.outgoing import Target
from agent.providers.partial_completion import Tokens
from agent.providers.request import build, needs_responses
from agent.settings import Settings
from agent.tools import Toolbox
from agent.tools.standard import standard_tools
from tests.agent.providers.support import ASK, KEY, Open, answer, counted, fails
from tests.agent.providers.test_requests import CALL, IMAGE, LONG
from tests.agent.support import Tokens as Told
from tests.support.model_replies import Count, Gate, Status, Text
from tests.support.model_server import ModelServer

MINE = "openai/mine-4"
NAMES = ("mine", "qwen3", "Qwen/Qwen3-Coder-30B", "llama3.1:8b", "my model", "glm-4.5-air", "phi-4")
PROVIDERS = ("hosted_vllm", "lm_studio", "openai")
BASES = (
    "http://127.0.0.1:9",
    "http://127.0.0.1:9/v1",
    "http://host:9/v1/",
    "http://[::1]/v1/chat/completions",
)
URL = "http://127.0.0.1:9/v1"


def target(provider: str, model: str = "mine", base: str = URL, **more: Any) -> Target:
    level = more.pop("thought_level", None)
    return Target(model, provider, base, more.pop("key", "sk-1"), level, **more)


def histories(to: Target) -> Iterator[list[Message]]:
    """What a conversation may hold: another server's signatures, and this one's reasoning."""
    yield LONG
    image = {"type": "image_url", "image_url": {"url": IMAGE}}
    for signed in (
        {"by": "anthropic", "thinking_blocks": [{"type": "thinking", "thinking": "Hm"}]},
        {"by": to.signs_as, "reasoning_from": to.sender},
    ):
        said: Message = {"role": "assistant", "content": "", "reasoning_content": "Hm"}
        said |= {"tool_calls": [CALL], "provider": signed}
        result: Message = {"role": "tool", "tool_call_id": "call_a", "content": "text"}
        shown: Message = {
            "role": "user",
            "content": [{"type": "text", "text": "half \ud800"}, image],
        }
        yield [*ASK, said, result, shown]


@pytest.mark.parametrize("base", BASES)
@pytest.mark.parametrize("provider", PROVIDERS)
def test_a_request_is_what_litellm_s_classes_build(provider: str, base: str) -> None:
    tools = Toolbox(standard_tools(), list).specs
    for name, level, given in itertools.product(NAMES, (None, "low", "xhigh"), (tools, ())):
        to = target(provider, name, base, thought_level=level, thinks=level is not None)
        assert plain.suits(to, own_server=True, env={})
        assert not needs_responses(to, given)
        for messages in histories(to):
            ours, theirs = plain.build(to, messages, given), build(to, messages, given)
            assert (ours.url, ours.headers, ours.form) == (theirs.url, theirs.headers, theirs.form)
            assert json.loads(ours.body) == json.loads(theirs.body)


@pytest.mark.parametrize("provider", PROVIDERS)
def test_litellm_knows_nothing_of_a_plain_model(provider: str) -> None:
    known = sorted(library.load().model_cost)[::20]
    names = [*NAMES, *known, *(name.rpartition("/")[2] for name in known)]
    found = {name for name in names if plain.split(f"{provider}/{name}") == (name, provider)}
    assert found >= {*NAMES}
    for name in found:
        assert library.split(f"{provider}/{name}")[:2] == (name, provider)
        assert library.model_info(name, provider) is None
        assert library.cost(name, provider, Tokens(1000, 1000)) is None


@pytest.mark.parametrize(
    "id",
    ["mine", "openai/", "openai/gpt-4o", "openai/gpt-9", "openai/o9", "groq/mine", "anthropic/x"],
)
def test_other_providers_and_names_of_known_models_are_left_to_litellm(id: str) -> None:
    assert plain.split(id) is None


@pytest.mark.parametrize(
    ("to", "own", "env"),
    [
        (target("openai"), False, {}),
        (target("openai", key=None), True, {}),
        (target("openai", base="https://127.0.0.1/v1"), True, {}),
        (target("openai", base="http://me:pw@127.0.0.1/v1"), True, {}),
        (target("openai", base="http://127.0.0.1/v1?key=1"), True, {}),
        (target("openai", base="http://m\u00fcller/v1"), True, {}),
        (target("openai", base="http://127.0.0.1/my v1"), True, {}),
        (target("openai", thought_level="low"), True, {}),
        (target("openai"), True, {"HTTP_PROXY": "http://proxy"}),
        (target("openai"), True, {"LITELLM_USER_AGENT": "me"}),
    ],
)
def test_unusual_settings_are_left_to_litellm(to: Target, own: bool, env: dict[str, str]) -> None:
    assert not plain.suits(to, own_server=own, env=env)


@pytest.fixture
def withheld(monkeypatch: pytest.MonkeyPatch) -> None:
    """LiteLLM is not loaded, and may not be."""

    def load() -> None:
        pytest.fail("LiteLLM was loaded")

    monkeypatch.setattr(library, "is_loaded", lambda: False)
    monkeypatch.setattr(library, "load", load)


@pytest.mark.usefixtures("withheld")
async def test_a_plain_model_is_known_warmed_and_asked_without_litellm(
    server: ModelServer, open_model: Open
) -> None:
    server.say(Text("Hello"), Count(input=7, output=2))
    said = Abilities(f"{MINE} window=1000 images thinking=low")
    model = open_model(MINE, abilities=said, thought_level="low")
    assert not model.needs_library
    assert await model.info() == ModelInfo(1000, takes_images=True, thought_levels=("low",))
    await model.warm()
    completion = await answer(model, LONG, Told())
    assert completion.text == "Hello"
    assert counted(completion) == (7, 2, 0, None)
    [request] = server.requests
    assert request.headers["authorization"] == f"Bearer {KEY}"
    assert request.body["reasoning_effort"] == "low"


@pytest.mark.usefixtures("withheld")
@pytest.mark.parametrize(
    ("default", "more", "needed"),
    [
        (MINE, {}, False),
        (MINE, {"models": ("openai/nobody-s",)}, False),
        (MINE, {"models": ("openai/gpt-4o",)}, True),
        (MINE, {"summary_model": "openai/gpt-4o"}, True),
        (MINE, {"models": ("groq/without-a-key",)}, False),
        ("openai/gpt-4o", {}, True),
        ("demo", {"models": ("openai/gpt-4o",)}, False),
    ],
)
def test_litellm_is_needed_if_a_model_that_the_user_named_needs_it(
    tmp_path: Path, default: str, more: dict[str, Any], needed: bool
) -> None:
    settings = Settings(tmp_path, tmp_path / "keys.env", default, **more)
    keys = {"OPENAI_API_KEY": KEY, "OPENAI_BASE_URL": URL}
    assert AllModels(settings, keys).need_library() is needed


@pytest.mark.usefixtures("withheld")
async def test_a_refusal_and_an_overload_of_its_server_are_told(
    server: ModelServer, open_model: Open
) -> None:
    server.say(Status(503, "busy"))
    server.say(Text("Hello"))
    assert (await answer(open_model(MINE))).text == "Hello"
    server.say(Status(400, "no such tool"))
    assert "no such tool" in str(await fails(open_model(MINE)))


@pytest.mark.usefixtures("withheld")
async def test_a_cancellation_closes_its_connection_at_once(
    server: ModelServer, open_model: Open
) -> None:
    server.say(Text("Hello"), Gate("never"))
    with anyio.fail_after(5):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(answer, open_model(MINE))
            await server.reached("never")
            tasks.cancel_scope.cancel()
        await server.requests[0].gone.wait()
