"""A conversation that doesn't fit the window of a server on the user's own machine."""

import json
from pathlib import Path
from typing import Any

import pytest

from agent.conversation.compaction import Compactor
from agent.model import Message, ModelError, ModelInfo
from agent.providers.all_models import AllModels
from agent.providers.overflow import is_overflow, window_in
from agent.providers.provider_model import ProviderModel
from agent.settings import Settings
from tests.agent.providers.support import OPENAI, Open, fails
from tests.agent.support import Bench, MemoryClient, run
from tests.support.model_replies import Event, Json, Status, Step, Text
from tests.support.model_server import ModelServer

LLAMA_CPP = {
    "error": {
        "code": 400,
        "message": "request (4225 tokens) exceeds the available context size (4096 tokens), try"
        " increasing it",
        "type": "exceed_context_size_error",
        "n_prompt_tokens": 4225,
        "n_ctx": 4096,
    }
}
VLLM_OF_OLD = {
    "object": "error",
    "message": "This model's maximum context length is 4096 tokens. However, you requested 4225"
    " tokens in the messages, Please reduce the length of the messages.",
    "type": "BadRequestError",
    "param": None,
    "code": 400,
}


def message(text: str, type: str = "BadRequestError") -> Json:
    return {"error": {"message": text, "type": type, "param": None, "code": 400}}


#: who, the HTTP status, the body, and the window that it names
REFUSALS: list[tuple[str, int, Json, int | None]] = [
    ("llama.cpp", 400, LLAMA_CPP, 4096),
    (
        "llama.cpp of old",
        500,
        message("the request exceeds the available context size. try increasing it", "server"),
        None,
    ),
    ("vLLM", 400, VLLM_OF_OLD, 4096),
    (
        "vLLM, newer",
        400,
        message(
            "You passed 5001 input tokens and requested 0 output tokens. However, the model's"
            " context length is only 4096 tokens, resulting in a maximum input length of 4096"
            " tokens. Please reduce the length of the input prompt."
        ),
        4096,
    ),
    (
        "vLLM, with images",
        400,
        message(
            "The decoder prompt (length 10127) is longer than the maximum model length of 8192."
            " Make sure that `max_model_len` is no smaller than the number of text tokens."
        ),
        8192,
    ),
    (
        "SGLang",
        400,
        {
            "object": "error",
            "message": "The input (61709 tokens) is longer than the model's context length (40960"
            " tokens).",
            "type": "BadRequestError",
            "code": 400,
        },
        40960,
    ),
    (
        "SGLang, with an answer's length",
        400,
        message(
            "Requested token count exceeds the model's maximum context length of 4096 tokens. You"
            " requested a total of 5000 tokens: 4000 tokens from the input messages and 1000."
        ),
        4096,
    ),
    (
        "LM Studio",
        400,
        {
            "error": "Trying to keep the first 14538 tokens when context the overflows. However,"
            " the model is loaded with context length of only 2048 tokens, which is not enough. Try"
            " to load the model with a larger context length, or provide a shorter input"
        },
        2048,
    ),
    (
        "LM Studio, newer",
        400,
        {
            "error": "The number of tokens to keep from the initial prompt is greater than the"
            " context length (n_keep: 13055>= n_ctx: 4096). Try to load the model with a larger"
            " context length, or provide a shorter input."
        },
        4096,
    ),
    (
        "LM Studio, MLX",
        400,
        {"error": "Context size has been exceeded."},
        None,
    ),
    (
        "TGI",
        422,
        {
            "error": "Input validation error: `inputs` tokens + `max_new_tokens` must be <= 4096."
            " Given: 5000 `inputs` tokens and 100 `max_new_tokens`",
            "error_type": "validation",
        },
        4096,
    ),
    (
        "TGI, the input alone",
        422,
        {
            "error": "Input validation error: `inputs` must have less than 1024 tokens. Given:"
            " 1500",
            "error_type": "validation",
        },
        1024,
    ),
    (
        "Ollama",
        400,
        {"error": "prompt too long; exceeded max context length by 100918 tokens"},
        None,
    ),
    ("Ollama of old", 400, {"error": "the input length exceeds the context length"}, None),
    (
        "OpenAI",
        400,
        {
            "error": {
                "message": "This model's maximum context length is 128,000 tokens. However, your"
                " messages resulted in 130000 tokens.",
                "code": "context_length_exceeded",
            }
        },
        128_000,
    ),
    (
        "Anthropic",
        400,
        {"error": {"message": "prompt is too long: 209000 tokens > 200000 maximum"}},
        200_000,
    ),
    (
        "Gemini",
        400,
        {
            "error": {
                "message": "The input token count (1200000) exceeds the maximum number of tokens"
                " allowed (1048576)."
            }
        },
        1_048_576,
    ),
]


@pytest.mark.parametrize(
    ("status", "body", "window"), [case[1:] for case in REFUSALS], ids=[c[0] for c in REFUSALS]
)
async def test_an_overflow_is_recognised_and_its_window_learnt(
    server: ModelServer, open_model: Open, status: int, body: Json, window: int | None
) -> None:
    server.say(*[Status(status, body)])
    model = open_model("openai/one-of-mine")
    error = await fails(model)
    assert (error.kind, error.window) == ("context", window)
    assert (await model.info()).window == window


@pytest.mark.parametrize(
    ("body", "window"), [(c[2], c[3]) for c in REFUSALS], ids=[c[0] for c in REFUSALS]
)
async def test_an_overflow_that_the_stream_tells_is_recognised_too(
    server: ModelServer, open_model: Open, body: Json, window: int | None
) -> None:
    server.say(Event({"error": body.get("error", body)}))
    error = await fails(open_model("openai/one-of-mine"))
    assert (error.kind, error.window) == ("context", window)


#: what others say, in a message, and the window that it names
WORDS: list[dict[str, Any]] = json.loads(
    (Path(__file__).parent / "window_refusals.json").read_text("utf-8")
)


@pytest.mark.parametrize("said", WORDS, ids=[said["who"] for said in WORDS])
async def test_words_of_other_servers_are_recognised_and_only_a_window_is_learnt(
    server: ModelServer, open_model: Open, said: dict[str, Any]
) -> None:
    server.say(Status(400, message(said["words"])))
    model = open_model("openai/one-of-mine")
    error = await fails(model)
    assert (error.kind, error.window) == ("context", said["window"])
    assert (await model.info()).window == said["window"]


@pytest.mark.parametrize(
    "words",
    [
        "model requires more system memory (9.1 GiB) than is available (4.0 GiB)",
        "max_tokens must be at most 4096",
        "Unknown parameter: 'window'",
        "the model size is not supported",
        "rate limit of 40000 tokens per minute",
        "max_tokens: 100000 > 8192, which is the maximum allowed number of output tokens",
        "Unsupported value: 'temperature' does not support 0.2 with this model.",
        "a maximum of 4 blocks with cache_control may be provided. Found 5.",
        "image exceeds 5 MB maximum: 6000000 bytes > 5242880 bytes",
        "array too long. Expected an array with maximum length 128, but got length 140 instead.",
        "tool name is longer than the maximum 64 characters",
        "Request timed out: prompt took longer than the limit of 60 seconds",
    ],
)
def test_another_refusal_is_no_overflow(words: str) -> None:
    assert not is_overflow(words)


@pytest.mark.parametrize("words", ["the context length is 7", "context size " + "9" * 30, ""])
def test_a_number_that_can_be_no_window_is_none(words: str) -> None:
    assert window_in(words) is None


async def test_a_learnt_window_counts_in_every_session_of_the_process(
    server: ModelServer, tmp_path: Path
) -> None:
    models = AllModels(
        Settings(tmp_path, tmp_path / "keys.env"), {"OPENAI_BASE_URL": server.openai_url}
    )
    server.say(Status(400, LLAMA_CPP))
    model = models.open("openai/one-of-mine")
    assert isinstance(model, ProviderModel)
    await fails(model)
    assert await models.open("openai/one-of-mine").info() == ModelInfo(4096)
    assert await models.open("openai/another").info() == ModelInfo()


# a server with a small window, and a conversation that outgrows it

WINDOW = 4_096


def like_llama_cpp(body: Json) -> list[Step]:
    """Answers if the request fits the window, four characters being a token."""
    tokens = _chars(body["messages"]) // 4
    if tokens <= WINDOW:
        return [Text("Well.")]
    words = f"request ({tokens} tokens) exceeds the available context size ({WINDOW} tokens)"
    told = {"message": words, "type": "exceed_context_size_error", "n_ctx": WINDOW}
    return [Status(400, {"error": {"code": 400, **told}})]


def _chars(messages: list[Message]) -> int:
    return sum(len(str(message["content"])) for message in messages)


def bench_at(server: ModelServer, open_model: Open, folder: Path) -> tuple[Bench, list[str]]:
    server.answer = like_llama_cpp
    bench = Bench(folder, open_model("openai/one-of-mine"), MemoryClient())
    told: list[str] = []

    async def tell(sentence: str) -> None:
        told.append(sentence)

    bench.compactor = Compactor(bench.transcript, None, tell)
    return bench, told


async def test_the_turn_goes_on_when_a_conversation_outgrows_the_window(
    server: ModelServer, open_model: Open, tmp_path: Path
) -> None:
    bench, told = bench_at(server, open_model, tmp_path)
    for number in range(12):
        assert await run(bench, f"<{number}>".ljust(2_500, ".")) == "end_turn"
    assert told[0] == "The conversation is long: its older part is being summarised."
    assert bench.client.texts() == ["Well."] * 12
    refused = [r for r in server.requests if _chars(r.body["messages"]) // 4 > WINDOW]
    assert len(refused) == 1, "once the window is known nothing is sent that does not fit"


async def test_a_loaded_conversation_that_is_far_too_long_is_shortened_in_one_turn(
    server: ModelServer, open_model: Open, tmp_path: Path
) -> None:
    bench, told = bench_at(server, open_model, tmp_path)
    for number in range(40):
        bench.transcript.append({"t": "user", "blocks": [_text(f"<{number}>".ljust(2_500, "."))]})
        bench.transcript.append({"t": "text", "d": "Well."})
    assert await run(bench, "And now?") == "end_turn"
    assert bench.client.texts() == ["Well."]
    assert len(told) <= 3
    refused = [r for r in server.requests if _chars(r.body["messages"]) // 4 > WINDOW]
    assert len(refused) == 1, "room is made for the window that the refusal named, at once"


async def test_one_prompt_that_is_larger_than_the_window_is_told_with_the_server_s_words(
    server: ModelServer, open_model: Open, tmp_path: Path
) -> None:
    bench, _ = bench_at(server, open_model, tmp_path)
    with pytest.raises(Exception, match=r"exceeds the available context size \(4096 tokens\)"):
        await run(bench, "." * 40_000)


UNKNOWN = "E4711: the request is beyond what can be read here"


def tight_lipped(body: Json) -> list[Step]:
    """Refuses what doesn't fit, in words that nobody knows."""
    fits = _chars(body["messages"]) // 4 <= WINDOW
    return [Text("Well.")] if fits else [Status(400, message(UNKNOWN))]


async def test_a_refusal_that_does_not_say_why_is_tried_once_with_half_of_the_conversation(
    server: ModelServer, open_model: Open, tmp_path: Path
) -> None:
    bench, told = bench_at(server, open_model, tmp_path)
    server.answer = tight_lipped
    for number in range(12):
        assert await run(bench, f"<{number}>".ljust(2_500, ".")) == "end_turn"
    assert bench.client.texts() == ["Well."] * 12
    assert told[0] == "The conversation is long: its older part is being summarised."


async def test_another_refusal_costs_nothing_of_the_conversation(
    server: ModelServer, open_model: Open, tmp_path: Path
) -> None:
    bench, told = bench_at(server, open_model, tmp_path)
    for number in range(4):
        await run(bench, f"<{number}>".ljust(2_500, "."))
    server.answer = lambda body: [Status(400, message("Unknown parameter: 'reasoning.effort'."))]
    with pytest.raises(ModelError, match="Unknown parameter"):
        await run(bench, "And now?")
    assert told == []


async def test_a_refusal_that_room_does_not_help_is_told_and_tried_no_fourth_time(
    server: ModelServer, open_model: Open, tmp_path: Path
) -> None:
    bench, _ = bench_at(server, open_model, tmp_path)
    for number in range(5):
        await run(bench, f"<{number}>".ljust(2_500, "."))
    server.answer = lambda body: [Status(400, message(UNKNOWN))]
    for _ in range(4):
        with pytest.raises(ModelError, match="E4711"):
            await run(bench, "!" * 2_500)
    asked = len(server.requests)
    with pytest.raises(ModelError, match="E4711"):
        await run(bench, "?" * 2_500)
    assert len(server.requests) == asked + 1


def _text(text: str) -> dict[str, Any]:
    return {"type": "text", "text": text}


# what the server says itself


async def test_secrets_in_the_server_s_words_are_masked_before_they_are_cut(
    server: ModelServer, open_model: Open
) -> None:
    secret = "secret-" * 10
    server.say(Status(400, message("x" * 280 + secret)))
    model = open_model(OPENAI, mask=lambda text: text.replace(secret, "***"))
    error = await fails(model)
    assert str(error).endswith('x***"')
    assert "secret-" not in str(error)


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ({"error": "plain"}, "plain"),
        ({"error": {"message": "in an error"}}, "in an error"),
        ({"object": "error", "message": "at the top"}, "at the top"),
        ({"detail": "of FastAPI"}, "of FastAPI"),
        ({"detail": [{"loc": ["body"], "msg": "of a field"}]}, "of a field"),
        ({"detail": '{"error": {"message": "wrapped by a gateway"}}'}, "wrapped by a gateway"),
        ({"error": {"message": "two\n lines\u0007"}}, "two lines"),
        ({"message": "x" * 900}, "x" * 299 + "…"),
    ],
)
@pytest.mark.hazard("P16")
async def test_every_refusal_shows_the_server_s_own_sentence(
    server: ModelServer, open_model: Open, body: Json, words: str
) -> None:
    for status in (400, 401, 404, 418, 422):
        server.say(Status(status, body))
        assert str(await fails(open_model(OPENAI))).endswith(f'The server says: "{words}"')


async def test_a_refusal_without_words_points_to_the_log(
    server: ModelServer, open_model: Open
) -> None:
    server.say(Status(400, {}))
    error = await fails(open_model(OPENAI))
    assert str(error).endswith("The log says why.")


async def test_the_answer_s_kind_is_told_apart_from_its_words(
    server: ModelServer, open_model: Open
) -> None:
    """A key that is refused stays a refused key, whatever else the server says."""
    server.say(Status(401, message("no key; the context length is 4096")))
    assert (await answer_kind(open_model(OPENAI))) == "auth"


async def answer_kind(model: ProviderModel) -> str:
    return (await fails(model)).kind
