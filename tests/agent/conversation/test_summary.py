"""What a summariser is asked."""

from collections.abc import Sequence

import anyio
import pytest

from agent.conversation.entries import Prompt, Record, Summary
from agent.conversation.summary import shortened, summarise
from agent.model import Completion, Message, ModelError, ModelInfo, OnToken, Part, ToolSpec
from tests.agent.conversation.records import IMAGE, call, folded, reasoning, result, text, user


class Asked:
    """Refuses whatever is longer than `most` characters, or always with `error`."""

    id = "m"

    def __init__(self, most: int = 10**9, error: ModelError | None = None) -> None:
        self.most = most
        self.error = error
        self.messages: list[list[Message]] = []

    async def info(self) -> ModelInfo:
        return ModelInfo()

    async def complete(
        self, messages: Sequence[Message], tools: Sequence[ToolSpec], on_token: OnToken
    ) -> Completion:
        assert not tools
        self.messages.append(list(messages))
        await on_token(Part("text", "sum"))
        if self.error is not None:
            raise self.error
        if len(self.text) > self.most:
            raise ModelError("Too long.", "context")
        return Completion("sum")

    @property
    def text(self) -> str:
        return str(self.messages[-1][-1]["content"])


async def ask(
    model: Asked, *found: Record, earlier: Summary | None = None, window: int | None = None
) -> Completion:
    with anyio.fail_after(5):
        entries = folded(found).entries
        return await summarise(model, entries, earlier, window=window, rate=0.25)


async def test_words_calls_and_results_are_told_in_order() -> None:
    model = Asked()
    said = [user("mend it"), reasoning("hm"), text("looking"), call(1, "shell", '{"a": 1}')]
    assert (await ask(model, *said, result(1, "red"), call(2))).text == "sum"
    assert model.messages[0][0]["role"] == "system"
    assert model.text.startswith(
        "<conversation>\n"
        "## User\nmend it\n\n"
        "## Agent\nlooking\n\n"
        '## Tool call: shell {"a": 1}\nred\n\n'
        "## Tool call: shell {}\ninterrupted by the user\n"
        "</conversation>\n"
    )


async def test_an_earlier_summary_and_its_prompt_come_first() -> None:
    model = Asked()
    (prompt,) = folded([user("mend it")]).entries
    assert isinstance(prompt, Prompt)
    await ask(model, text("on it"), earlier=Summary("so far", 3, [prompt]))
    told = [line for line in model.text.splitlines() if line]
    assert told[1:7] == [
        "## Summary of what came before",
        "so far",
        "## User",
        "mend it",
        "## Agent",
        "on it",
    ]


async def test_long_arguments_and_results_are_cut_and_images_noted() -> None:
    model = Asked()
    await ask(model, call(1, "f", "a" * 9_000), result(1, "r" * 9_000, images=[IMAGE]))
    assert len(model.text) < 4_000
    assert model.text.count("characters left out") == 2
    assert IMAGE not in model.text


@pytest.mark.parametrize(("window", "most"), [(None, 80_000), (1_000, 3_000)])
async def test_what_is_told_fits_the_window(window: int | None, most: int) -> None:
    model = Asked()
    await ask(model, user("<first>" + "x" * 500_000 + "<last>"), window=window)
    assert most / 2 < len(model.text) < most
    assert "<first>" in model.text
    assert "<last>" in model.text


async def test_what_is_refused_as_too_long_is_halved() -> None:
    model = Asked(most=3_000)
    await ask(model, user("x" * 10_000))
    assert [len(str(m[1]["content"])) // 1_000 for m in model.messages] == [10, 5, 2]


async def test_it_is_given_up_in_the_end() -> None:
    model = Asked(most=0)
    with pytest.raises(ModelError):
        await ask(model, user("x" * 10_000))
    assert len(model.messages) == 4


async def test_another_error_is_not_tried_again() -> None:
    model = Asked(error=ModelError("No.", "rate_limit"))
    with pytest.raises(ModelError):
        await ask(model, user("x"))
    assert len(model.messages) == 1


def test_what_is_shortened_keeps_its_ends() -> None:
    assert shortened("abc", 3) == "abc"
    cut = shortened("0123456789" * 10, 30)
    assert cut == "0123456789\n[… 70 characters left out …]\n" + "0123456789" * 2
