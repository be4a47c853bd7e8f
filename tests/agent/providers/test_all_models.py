"""Which models there are, and what opening one takes."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import anyio
import pytest

from agent.model import Message, ModelError, ModelInfo
from agent.providers import library
from agent.providers.all_models import AllModels
from agent.providers.known_providers import PROVIDERS, provider_of
from agent.providers.provider_model import ProviderModel
from agent.providers.request import DIRECT
from agent.settings import Settings
from tests.agent.support import Tokens
from tests.support.model_replies import Gate, Status, Text
from tests.support.model_server import ModelServer

ASK: list[Message] = [{"role": "user", "content": "Hi"}]


@pytest.fixture(scope="session")
def litellm() -> Any:
    return library.load()


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "keys.env"


def models(file: Path, env: dict[str, str] | None = None, **settings: Any) -> AllModels:
    return AllModels(Settings(file.parent, file, **settings), env or {})


def ids(models: AllModels) -> list[str]:
    return [choice.id for choice in models.offered()]


# What is offered


def test_without_a_key_there_is_the_demo(file: Path) -> None:
    found = models(file)
    assert (found.default, ids(found)) == ("demo", ["demo"])


def test_the_model_of_the_settings_is_the_default(file: Path) -> None:
    found = models(file, {"OPENAI_API_KEY": "k"}, model="ollama_chat/qwen3")
    assert found.default == ids(found)[0] == "ollama_chat/qwen3"
    assert "openai/gpt-5.2" in ids(found)


def test_others_are_taken_if_their_provider_is_known_or_has_a_key(file: Path) -> None:
    found = models(file, {"OPENAI_API_KEY": "k", "COHERE_API_KEY": "k"})
    known = ("openai/gpt-9", "gpt-9", "claude-9", "mistral/new", "cohere/command-z", "demo")
    assert [each for each in known if not found.takes(each)] == []
    for odd in ("gpt", "nobody/knows", "openai/", "/", "", "scripted:/etc/passwd", "a b"):
        assert not found.takes(odd), odd


def test_else_it_is_the_first_whose_key_is_there(file: Path) -> None:
    listed = ("mistral/mistral-large-latest", "xai/grok-4.7")
    assert models(file, {"XAI_API_KEY": "k"}, models=listed).default == "xai/grok-4.7"
    assert models(file, {"GROQ_API_KEY": "k"}, models=listed).default == "groq/openai/gpt-oss-120b"
    assert models(file, models=listed).default == "demo"


def test_offered_are_the_default_those_listed_and_those_with_a_key_each_once(file: Path) -> None:
    env = {"GROQ_API_KEY": "k"}
    found = models(file, env, model="a/b", models=("c/d", "groq/openai/gpt-oss-120b"))
    assert ids(found) == ["a/b", "c/d", "groq/openai/gpt-oss-120b", "groq/qwen/qwen3.8-27b"]


def test_a_key_that_is_given_later_changes_what_is_offered(file: Path) -> None:
    found = models(file)
    file.write_text("MISTRAL_API_KEY=k\n")
    assert found.default == ids(found)[0] == "mistral/devstral-latest"


def test_a_model_is_offered_by_its_own_name(file: Path) -> None:
    choice = models(file, {"GROQ_API_KEY": "k"}).offered()[0]
    assert (choice.name, choice.description) == ("openai/gpt-oss-120b", "Groq")


@pytest.mark.parametrize("provider", PROVIDERS.values(), ids=lambda provider: provider.id)
def test_what_is_offered_is_known_to_litellm_and_can_call_tools(
    litellm: Any, provider: Any
) -> None:
    for model in provider.models:
        assert provider_of(f"{provider.id}/{model}") == provider
        if provider.id == "openrouter":
            continue  # LiteLLM has none of OpenRouter's in its map
        entry = litellm.get_model_info(model, provider.id)
        assert entry["supports_function_calling"], model
        assert entry["max_input_tokens"], model


def test_the_providers_that_are_read_directly_are_litellm_s(litellm: Any) -> None:
    known = {provider.value for provider in litellm.LlmProviders}
    assert known.issuperset(DIRECT)
    assert known.issuperset(PROVIDERS)


# Opening


@pytest.mark.parametrize(
    ("name", "variable"),
    [
        ("openai/gpt-5.2", "OPENAI_API_KEY"),
        ("gpt-5.2", "OPENAI_API_KEY"),
        ("claude-sonnet-4-5", "ANTHROPIC_API_KEY"),
        ("gemini/gemini-2.5-pro", "GEMINI_API_KEY"),
        ("openrouter/openai/gpt-5.2", "OPENROUTER_API_KEY"),
    ],
)
def test_a_missing_key_is_told_by_its_variable_until_it_is_there(
    file: Path, name: str, variable: str
) -> None:
    found = models(file, model=name)
    with pytest.raises(ModelError) as raised:
        found.open(name)
    assert raised.value.kind == "missing_key"
    assert variable in str(raised.value)
    assert str(file) in str(raised.value)
    file.write_text(f"{variable}=k\n")
    assert found.open(name).id == name


@pytest.mark.parametrize("name", ["ollama_chat/qwen3", "hosted_vllm/qwen3", "lm_studio/qwen3"])
def test_a_model_on_one_s_own_machine_needs_no_key(file: Path, name: str) -> None:
    assert models(file).open(name).id == name


async def test_the_demo_and_a_dialogue_need_no_litellm(file: Path, tmp_path: Path) -> None:
    script = tmp_path / "dialogue.txt"
    script.write_text("turn\ntext: Hello\n")
    model = models(file).open(f"scripted:{script}")
    assert (await model.complete(ASK, [], Tokens())).text == "Hello"
    assert models(file).open("demo").id == "demo"


@pytest.mark.parametrize("text", [None, "nonsense: 1\n"])
def test_a_dialogue_that_cannot_be_read_is_told(
    file: Path, tmp_path: Path, text: str | None
) -> None:
    script = tmp_path / "dialogue.txt"
    if text:
        script.write_text(text)
    with pytest.raises(ModelError) as raised:
        models(file).open(f"scripted:{script}")
    assert raised.value.kind == "unknown_model"
    assert str(script) in str(raised.value)


# Asking


@pytest.mark.parametrize(
    ("name", "variable"),
    [
        ("openai/a-model-of-mine", "OPENAI_BASE_URL"),
        ("openai/a-model-of-mine", "OPENAI_API_BASE"),
        ("anthropic/claude-sonnet-4-5", "ANTHROPIC_BASE_URL"),
        ("anthropic/claude-sonnet-4-5", "ANTHROPIC_API_BASE"),
        ("hosted_vllm/qwen3", "HOSTED_VLLM_API_BASE"),
    ],
)
async def test_any_base_url_works_without_a_key(
    litellm: Any, file: Path, name: str, variable: str
) -> None:
    async with ModelServer() as server:
        url = server.anthropic_url if "ANTHROPIC" in variable else server.openai_url
        server.say(Text("Hello"))
        model = models(file, {variable: url}).open(name)
        with anyio.fail_after(5):
            assert (await model.complete(ASK, [], Tokens())).text == "Hello"
        assert server.requests[0].body["model"] == name.partition("/")[2]


@pytest.mark.parametrize("provider", ["lm_studio", "hosted_vllm", "llamafile"])
async def test_a_server_of_one_s_own_is_asked_on_this_machine_where_no_base_url_names_it(
    litellm: Any, file: Path, provider: str
) -> None:
    model = models(file).open(f"{provider}/qwen3")
    assert isinstance(model, ProviderModel)
    target, _ = model._target()
    assert (target.base_url or "").startswith("http://127.0.0.1:")


async def test_a_base_url_gets_the_key_of_its_provider(litellm: Any, file: Path) -> None:
    async with ModelServer() as server:
        env = {"XAI_API_KEY": "k-1234", "XAI_API_BASE": server.openai_url}
        server.say(Text("Hello"))
        with anyio.fail_after(5):
            await models(file, env).open("xai/grok-4.7").complete(ASK, [], Tokens())
        assert server.requests[0].headers["authorization"] == "Bearer k-1234"


async def test_a_token_for_anthropic_s_form_is_given_as_its_users_give_it(
    litellm: Any, file: Path
) -> None:
    async with ModelServer() as server:
        env = {"ANTHROPIC_BASE_URL": server.anthropic_url, "ANTHROPIC_AUTH_TOKEN": "t-1234"}
        server.say(Text("Hello"))
        with anyio.fail_after(5):
            await models(file, env).open("anthropic/glm-5.3").complete(ASK, [], Tokens())
        headers = server.requests[0].headers
        assert (headers["authorization"], headers.get("x-api-key")) == ("Bearer t-1234", None)


async def test_what_is_got_at_in_a_way_of_its_own_needs_no_key_of_ours(
    litellm: Any, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in {
        "ACCESS_KEY_ID": "AKIA0",
        "SECRET_ACCESS_KEY": "s",
        "REGION": "us-x-1",
    }.items():
        monkeypatch.setenv(f"AWS_{name}", value)
    library.load_stream("bedrock")
    async with ModelServer() as server:
        server.say(Status(403))
        model = models(file, {"BEDROCK_BASE_URL": server.url}).open("bedrock/anthropic.claude-x")
        with anyio.fail_after(5), pytest.raises(ModelError) as raised:
            await model.complete(ASK, [], Tokens())
        assert server.requests[0].headers["authorization"].startswith("AWS4-HMAC-SHA256")
    assert raised.value.kind == "auth"
    assert "BEDROCK_API_KEY" not in str(raised.value)


async def test_a_key_that_is_gone_is_told_at_the_next_call(litellm: Any, file: Path) -> None:
    env = {"OPENAI_API_KEY": "k"}
    model = models(file, env).open("openai/gpt-5.2")
    env.clear()
    with anyio.fail_after(5), pytest.raises(ModelError) as raised:
        await model.complete(ASK, [], Tokens())
    assert raised.value.kind == "missing_key"


async def test_a_bare_name_is_taken_to_its_provider(litellm: Any, file: Path) -> None:
    async with ModelServer() as server:
        server.say(Text("Hello"))
        model = models(file, {"OPENAI_BASE_URL": server.openai_url}).open("gpt-4o")
        with anyio.fail_after(5):
            assert (await model.complete(ASK, [], Tokens())).text == "Hello"


# What is known of a model


@pytest.mark.parametrize(
    ("name", "info"),
    [
        ("openai/gpt-4o", ModelInfo(128000, True, ())),
        ("anthropic/claude-sonnet-4-5", ModelInfo(200000, True, ("low", "medium", "high"))),
        ("claude-sonnet-4-5", ModelInfo(200000, True, ("low", "medium", "high"))),
        ("moonshot/kimi-k3", ModelInfo(1048576, True, ("low", "high", "max"))),
        ("groq/openai/gpt-oss-120b", ModelInfo(131072, False, ("low", "medium", "high"))),
        ("nobody-s/model", ModelInfo()),
        ("ollama_chat/one-of-mine", ModelInfo()),
        ("openai/one-of-tomorrow", ModelInfo(takes_images=True)),
    ],
)
async def test_what_a_model_can_do_is_in_litellm_s_map(
    litellm: Any, file: Path, name: str, info: ModelInfo
) -> None:
    env = {f"{provider}_API_KEY": "k" for provider in ("OPENAI", "ANTHROPIC", "MOONSHOT", "GROQ")}
    with anyio.fail_after(5):
        assert await models(file, env).open(name).info() == info


async def test_an_unknown_model_at_a_base_url_is_not_supposed_to_see(
    litellm: Any, file: Path
) -> None:
    env = {"OPENAI_BASE_URL": "http://localhost:8000/v1"}
    with anyio.fail_after(5):
        assert await models(file, env).open("openai/one-of-mine").info() == ModelInfo()


async def test_ollama_is_asked_what_its_model_can_do_once_it_answers(
    litellm: Any, file: Path
) -> None:
    async with ModelServer() as server:
        model = models(file, {"OLLAMA_API_BASE": server.url}).open("ollama_chat/one-of-mine")
        server.say(Status(500))
        server.say(Status(200, {"model_info": {"qwen.context_length": 32768}}))
        with anyio.fail_after(5):
            windows = [(await model.info()).window for _ in range(3)]
        assert windows == [None, 32768, 32768]
        asked = [request.path for request in server.requests]
        assert asked == ["/api/show"] * 2 + ["/api/ps"] * 2


async def test_a_server_that_is_silent_about_its_model_holds_nothing_up_for_long(
    litellm: Any, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("agent.providers.abilities._INFO_SECONDS", 0.1)
    async with ModelServer() as server:
        server.say(Gate("never"))
        model = models(file, {"OLLAMA_BASE_URL": server.url}).open("ollama_chat/silent")
        with anyio.fail_after(5):
            assert await model.info() == ModelInfo()


# Loading


@pytest.mark.process
def test_litellm_is_loaded_for_the_default_model_alone_quietly_and_without_a_dotenv_file(
    tmp_path: Path,
) -> None:
    (tmp_path / ".env").write_text("OPENAI_BASE_URL=http://evil.example\n")
    code = """
import gc, logging, os, sys, socket, warnings, anyio
from pathlib import Path
from agent.providers.all_models import AllModels
from agent.settings import Settings

def no_network(*_, **__):
    raise SystemExit("the network was asked")

socket.getaddrinfo = socket.socket.connect = no_network
before = dict(os.environ)
folder = Path.cwd()

def warm(model):
    anyio.run(AllModels(Settings(folder, folder / "keys.env", model), {"OPENAI_API_KEY": "k"}).warm)
    return "litellm" in sys.modules

assert not warm("demo")
assert not warm("scripted:nothing")
assert warm("openai/gpt-4o")
assert gc.isenabled() and gc.get_freeze_count() > 100_000
logging.getLogger("LiteLLM").critical("something")
warnings.warn_explicit("something", UserWarning, "pydantic/main.py", 1, "pydantic.main")
assert dict(os.environ) == before, set(os.environ) ^ set(before)
"""
    run = subprocess.run(
        [sys.executable, "-c", code],
        cwd=tmp_path,
        env={"PYTHONPATH": str(Path(__file__).parents[3]), "PATH": "/usr/bin:/bin"},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (run.returncode, run.stdout, run.stderr) == (0, "", "")


def test_silence_is_borne_as_long_as_the_environment_says(file: Path) -> None:
    for said, seconds in ((None, 120), ("600", 600), ("soon", 120), ("-1", 1)):
        env = {"OPENAI_API_KEY": "k"} | ({"ACP_BRIDGE_MODEL_SILENCE": said} if said else {})
        model = models(file, env).open("openai/gpt-4o")
        assert isinstance(model, ProviderModel)
        assert model.silence == seconds


async def test_what_a_model_can_do_is_looked_up_once(
    litellm: Any, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []
    really = litellm.get_model_info

    def get_model_info(model: str, provider: str) -> Any:
        asked.append(model)
        return really(model, provider)

    monkeypatch.setattr(litellm, "get_model_info", get_model_info)
    for name in ("gpt-4o-2024-08-06", "known-to-nobody"):
        for _ in range(2):
            await models(file, {"OPENAI_API_KEY": "k"}).open(f"openai/{name}").info()
    assert asked == ["gpt-4o-2024-08-06", "known-to-nobody"]
