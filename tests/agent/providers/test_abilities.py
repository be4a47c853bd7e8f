"""What an Ollama server says of its models, and what the user declares of any."""

from pathlib import Path
from typing import Any

import anyio
import pytest
from hypothesis import given

from agent.conversation.compaction import Compactor
from agent.model import ModelInfo
from agent.providers.all_models import AllModels
from agent.providers.ollama import _shown
from agent.providers.provider_model import ProviderModel
from agent.settings import Settings
from tests.agent.providers.support import answer, fails
from tests.agent.support import Bench, user
from tests.support.model_replies import Status, Text
from tests.support.model_server import ModelServer
from tests.support.mutations import spoiled

OLLAMA = "ollama_chat/one-of-mine"


def ollama(server: ModelServer, folder: Path, abilities: str = "") -> AllModels:
    settings = Settings(folder, folder / "keys.env", abilities=abilities)
    return AllModels(settings, {"OLLAMA_BASE_URL": server.url})


async def window_of(models: AllModels, name: str = OLLAMA) -> int | None:
    with anyio.fail_after(5):
        return (await models.open(name).info()).window


async def test_ollama_s_window_is_that_of_the_loaded_model(
    server: ModelServer, tmp_path: Path
) -> None:
    server.facts["/api/show"] = {
        "model_info": {"qwen3.context_length": 262_144},
        "capabilities": ["completion", "vision", "thinking"],
    }
    server.facts["/api/ps"] = {"models": []}
    models = ollama(server, tmp_path)
    assert await window_of(models) == 262_144
    loaded = {"name": "one-of-mine:latest", "context_length": 4_096}
    server.facts["/api/ps"] = {"models": [{"name": "other", "context_length": 7}, loaded]}
    assert await window_of(models) == 4_096
    server.facts["/api/ps"] = {"models": []}
    assert await window_of(models) == 4_096, "a model that was unloaded comes back as it was"
    with anyio.fail_after(5):
        info = await models.open(OLLAMA).info()
    assert (info.takes_images, info.thought_levels) == (True, ("low", "medium", "high"))


async def test_ollama_s_window_is_else_what_the_model_s_definition_sets(
    server: ModelServer, tmp_path: Path
) -> None:
    server.facts["/api/show"] = {
        "parameters": 'stop "<|end|>"\nnum_ctx                        8192',
        "model_info": {"qwen3.context_length": 262_144},
    }
    assert await window_of(ollama(server, tmp_path)) == 8_192


async def test_a_declared_window_is_asked_of_ollama(server: ModelServer, tmp_path: Path) -> None:
    server.answer = lambda body: [Status(404, {"error": "that is enough"})]
    models = ollama(server, tmp_path, f"{OLLAMA} window=16384")
    model = models.open(OLLAMA)
    assert isinstance(model, ProviderModel)
    await fails(model)
    (asked,) = [r for r in server.requests if r.path == "/api/chat"]
    assert asked.body["options"]["num_ctx"] == 16_384
    assert await window_of(models) == 16_384


async def test_an_ollama_conversation_is_compacted_before_it_is_cut(
    server: ModelServer, tmp_path: Path
) -> None:
    server.facts["/api/show"] = {"model_info": {"qwen3.context_length": 262_144}}
    server.facts["/api/ps"] = {"models": [{"name": "one-of-mine:latest", "context_length": 4_096}]}
    model = ollama(server, tmp_path).open(OLLAMA)
    bench = Bench(tmp_path, model)
    for number in range(12):
        bench.transcript.append({"t": "user", "blocks": user(f"<{number}>".ljust(2_500, "."))})
    told: list[str] = []

    async def tell(sentence: str) -> None:
        told.append(sentence)

    server.answer = lambda body: [Status(400, {"error": "no"})]
    with anyio.fail_after(5):
        await Compactor(bench.transcript, None, tell).fit(model, [])
    assert told[0] == "The conversation is long: its older part is being summarised."


# abilities that the user declares


@pytest.mark.parametrize(
    ("declared", "info"),
    [
        ("openai/one-of-mine window=32768", ModelInfo(32_768)),
        ("openai/one-of-mine images", ModelInfo(None, True)),
        ("other images; openai/one-of-mine images=no", ModelInfo()),
        ("openai/one-of-mine thinking", ModelInfo(None, False, ("low", "medium", "high"))),
        ("openai/one-of-mine thinking=high,low", ModelInfo(None, False, ("low", "high"))),
        (
            "openai/one-of-mine window=9000 images thinking=max",
            ModelInfo(9_000, True, ("max",)),
        ),
    ],
)
async def test_the_user_declares_what_a_model_of_their_own_can_do(
    server: ModelServer, tmp_path: Path, declared: str, info: ModelInfo
) -> None:
    settings = Settings(tmp_path, tmp_path / "keys.env", abilities=declared)
    models = AllModels(settings, {"OPENAI_BASE_URL": server.openai_url})
    assert await models.open("openai/one-of-mine").info() == info


@pytest.mark.parametrize(
    "declared", ["m window=big", "m window=0", "m images=maybe", "m thinking=a lot", "m sees"]
)
def test_a_declaration_that_makes_no_sense_is_refused_at_the_start(
    tmp_path: Path, declared: str
) -> None:
    with pytest.raises(ValueError, match="ACP_BRIDGE_MODEL_ABILITIES"):
        AllModels(Settings(tmp_path, tmp_path / "keys.env", abilities=declared), {})


async def test_a_declared_thought_level_reaches_a_server_that_litellm_takes_for_one_without(
    server: ModelServer, tmp_path: Path
) -> None:
    settings = Settings(tmp_path, tmp_path / "keys.env", abilities="lm_studio/mine thinking")
    models = AllModels(settings, {"LM_STUDIO_BASE_URL": server.openai_url})
    server.say(Text("Hello"))
    model = models.open("lm_studio/mine", "low")
    assert isinstance(model, ProviderModel)
    await answer(model)
    assert server.requests[0].body["reasoning_effort"] == "low"


# words of an Ollama server that are odd

SHOW = {
    "parameters": "num_ctx 8192\nstop x",
    "model_info": {"general.architecture": "qwen3", "qwen3.context_length": 40960},
    "capabilities": ["completion", "vision", "thinking"],
}
PS = {"models": [{"name": "other", "context_length": 1}, {"name": "m", "context_length": 4096}]}


@pytest.mark.parametrize(
    ("show", "ps", "window"),
    [
        (SHOW, {"models": ["x", None, {"name": "m", "context_length": "4096"}]}, 4096),
        (SHOW, {"models": {"name": "m", "context_length": 4096.0}}, 4096),
        (SHOW, {"models": [{"name": "m", "context_length": "many"}]}, 8192),
        ({**SHOW, "parameters": None, "model_info": {"a.context_length": "40960"}}, PS, 4096),
        ({"parameters": ["num_ctx 8192"], "model_info": [], "capabilities": None}, {}, 8192),
        ({"model_info": {"a.context_length": {}}}, {"models": 7}, None),
    ],
)
async def test_what_can_be_read_of_ollama_s_words_counts(
    server: ModelServer, tmp_path: Path, show: Any, ps: Any, window: int | None
) -> None:
    server.facts = {"/api/show": show, "/api/ps": ps}
    assert await window_of(ollama(server, tmp_path), "ollama_chat/m") == window


@given(spoiled([SHOW]))
def test_spoiled_words_of_ollama_are_read_without_an_error(answer: Any) -> None:
    info = _shown(answer)
    assert info.window is None or info.window > 0
