"""LiteLLM's own stream, which the providers get whose answers have another form."""

import pytest

from agent.model import Part, ToolCall
from agent.providers.retry import Retry
from tests.agent.providers.support import ANTHROPIC, BOTH, OPENAI, Open, answer, counted, fails
from tests.agent.providers.test_failures import REFUSALS
from tests.agent.support import Tokens
from tests.support.model_replies import Call, Count, Cut, Gate, More, Raw, Status, Text, Think
from tests.support.model_server import ModelServer


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
    assert said not in str(error)


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
