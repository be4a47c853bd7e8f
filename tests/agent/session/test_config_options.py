"""What is chosen in a session: model, mode, thought level."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import anyio
import pytest
from acp import RequestError

from agent.model import ModelError, ModelInfo
from agent.session.config_options import ConfigOptions
from agent.turn.permissions import Permissions
from tests.agent.conftest import Talk
from tests.agent.session.several_models import Known, SeveralModels, several, thinker
from tests.support.client import RecordingClient
from tests.support.gates import Gates
from tests.support.recording import Message, RpcError

SAYS = "turn\ntext: fine"


def options_of(models: SeveralModels) -> ConfigOptions:
    return ConfigOptions(models, Permissions())


def shown(options: ConfigOptions) -> dict[str, Message]:
    return by_id(options.update()["configOptions"])


def by_id(options: list[Message]) -> dict[str, Message]:
    return {option["id"]: option for option in options}


def values(option: Message) -> list[str]:
    return [choice["value"] for choice in option["options"]]


# the choices


def test_model_and_mode_are_offered_each_in_its_category() -> None:
    options = shown(options_of(several("a", "b")))
    assert list(options) == ["model", "mode"]
    assert [option["category"] for option in options.values()] == ["model", "mode"]
    assert options["model"]["currentValue"] == "a"
    assert values(options["model"]) == ["a", "b"]
    assert options["mode"]["currentValue"] == "ask"
    assert values(options["mode"]) == ["ask", "plan", "edit", "auto"]


async def test_a_thought_level_is_offered_once_it_is_known_and_only_where_there_is_one() -> None:
    options = options_of(SeveralModels(thinker("deep", "low", "high"), thinker("plain")))
    assert "thought_level" not in shown(options)
    assert await options.learn()
    level = shown(options)["thought_level"]
    assert (level["category"], level["currentValue"]) == ("thought_level", "default")
    assert values(level) == ["default", "low", "high"]
    assert not await options.learn()
    options.set("model", "plain")
    assert not await options.learn()
    assert "thought_level" not in shown(options)


async def test_a_chosen_model_and_level_are_opened_from_then_on() -> None:
    models = SeveralModels(thinker("deep", "low", "high"), thinker("plain"))
    options = options_of(models)
    await options.learn()

    def opened_after(option: str, value: str) -> tuple[str, str | None]:
        options.set(option, value)
        options.model()
        return models.opened[-1]

    assert opened_after("thought_level", "high") == ("deep", "high")
    assert shown(options)["thought_level"]["currentValue"] == "high"
    assert opened_after("model", "plain") == ("plain", None)
    assert opened_after("model", "deep") == ("deep", "high")
    assert opened_after("thought_level", "default") == ("deep", None)


@pytest.mark.hazard("R8", "R9")
async def test_a_level_that_was_chosen_for_another_model_may_be_set_again() -> None:
    options = options_of(SeveralModels(thinker("plain"), thinker("deep", "low", "high")))
    options.set("thought_level", "high")
    assert "thought_level" not in shown(options)
    options.set("model", "deep")
    await options.learn()
    assert shown(options)["thought_level"]["currentValue"] == "high"


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("model", "nobody"),
        ("model", True),
        ("mode", "root"),
        ("mode", True),
        ("thought_level", "sideways"),
        ("thought_level", True),
        ("volume", "11"),
    ],
)
async def test_what_is_not_offered_is_refused_and_changes_nothing(
    option: str, value: str | bool
) -> None:
    options = options_of(SeveralModels(thinker("deep", "low")))
    await options.learn()
    before = shown(options)
    with pytest.raises(RequestError) as caught:
        options.set(option, value)
    assert caught.value.code == -32602
    assert shown(options) == before


def test_a_model_that_is_not_in_the_list_is_taken_if_its_provider_is_known() -> None:
    models = several("a", "b", "openai/new")
    models.others = {"openai/new", "openai/no-key"}
    options = options_of(models)
    options.set("model", "openai/new")
    assert options.model_id == "openai/new"
    assert values(shown(options)["model"]) == ["a", "b", "openai/new"]
    with pytest.raises(ModelError):
        options.set("model", "openai/no-key")
    with pytest.raises(RequestError, match="name it PROVIDER/MODEL, such as openai/gpt"):
        options.set("model", "nobody/knows")
    assert options.model_id == "openai/new"


def test_a_model_whose_key_is_missing_is_not_taken() -> None:
    models = several("a", "b")
    options = options_of(models)
    open_model = models.open

    def without_b(model_id: str, thought_level: str | None = None) -> Any:
        if model_id == "b":
            raise ModelError("b needs a key", "missing_key")
        return open_model(model_id, thought_level)

    models.open = without_b  # type: ignore[method-assign]
    with pytest.raises(ModelError, match="b needs a key"):
        options.set("model", "b")
    assert options.model().id == "a"


def test_a_chosen_model_whose_key_was_taken_away_is_still_shown_as_chosen() -> None:
    models = several("a", "b")
    options = options_of(models)
    models.keys.remove("a")
    option = shown(options)["model"]
    assert option["currentValue"] == "a"
    assert values(option) == ["b", "a"]


async def test_a_library_that_fails_teaches_nothing_and_ends_nothing() -> None:
    async def fail() -> ModelInfo:
        raise RuntimeError("no library")

    model = thinker("deep", "low")
    model.info = fail  # type: ignore[method-assign]
    assert not await options_of(SeveralModels(model)).learn()


async def test_of_a_model_without_its_key_nothing_is_learned_and_nothing_fails() -> None:
    models = SeveralModels(thinker("deep", "low"))
    options = options_of(models)
    models.keys.clear()
    assert not await options.learn()
    models.keys.add("deep")
    assert await options.learn()


# on the wire


async def opened(client: RecordingClient, cwd: Path) -> Message:
    """The result of `session/new`, for a client without files and terminals."""
    await client.initialize({})
    result: Message = await client.request("session/new", {"cwd": str(cwd), "mcpServers": []})
    client.session_id = result["sessionId"]
    return result


async def choose(client: RecordingClient, option: str, value: str) -> dict[str, Message]:
    params = {"sessionId": client.session_id, "configId": option, "value": value}
    return by_id((await client.request("session/set_config_option", params))["configOptions"])


def updates(client: RecordingClient, kind: str) -> list[Message]:
    return [update for update in client.updates() if update["sessionUpdate"] == kind]


def has_update(client: RecordingClient, kind: str) -> Callable[[], bool]:
    return lambda: bool(updates(client, kind))


async def test_a_new_session_does_not_wait_for_the_library_and_levels_are_told_later(
    talk: Talk, cwd: Path
) -> None:
    model = Known(SAYS, "deep", ModelInfo(thought_levels=("low", "high")))
    async with talk(SeveralModels(model)) as client:
        assert list(by_id((await opened(client, cwd))["configOptions"])) == ["model", "mode"]
        model.imported.set()
        await client.until_recorded(has_update(client, "config_option_update"))
        (told,) = updates(client, "config_option_update")
        assert values(by_id(told["configOptions"])["thought_level"]) == ["default", "low", "high"]
        chosen = await choose(client, "thought_level", "low")
        assert chosen["thought_level"]["currentValue"] == "low"


async def test_the_levels_of_another_model_are_told_when_it_is_chosen(
    talk: Talk, cwd: Path
) -> None:
    model = Known(SAYS, "deep", ModelInfo(thought_levels=("low", "high")))
    async with talk(SeveralModels(thinker("plain"), model)) as client:
        await opened(client, cwd)
        assert "thought_level" not in await choose(client, "model", "deep")
        model.imported.set()
        await client.until_recorded(has_update(client, "config_option_update"))
        (told,) = updates(client, "config_option_update")
        assert "thought_level" in by_id(told["configOptions"])


@pytest.mark.hazard("R9")
async def test_a_level_set_before_it_is_known_holds_for_the_first_call(
    talk: Talk, cwd: Path
) -> None:
    model = Known(SAYS, "deep", ModelInfo(thought_levels=("low", "high")))
    models = SeveralModels(model)
    async with talk(models) as client:
        await opened(client, cwd)
        await choose(client, "thought_level", "high")
        running = client.send_prompt("x")
        with anyio.fail_after(5):  # asked at the opening, for the choice, and by the turn
            await model.asked[2].wait()
        model.imported.set()
        await client.answer_to(running)
    assert models.opened[-1] == ("deep", "high")


async def test_mode_and_option_are_two_views_of_one_setting(talk: Talk, cwd: Path) -> None:
    async with talk(SAYS) as client:
        modes = (await opened(client, cwd))["modes"]
        assert modes["currentModeId"] == "ask"
        assert [mode["id"] for mode in modes["availableModes"]] == ["ask", "plan", "edit", "auto"]
        change = {"sessionId": client.session_id, "modeId": "auto"}
        assert await client.request("session/set_mode", change) == {}
        assert (await choose(client, "mode", "plan"))["mode"]["currentValue"] == "plan"
        await client.prompt("x")  # what follows those responses has come by then
        (options,) = updates(client, "config_option_update")
        assert by_id(options["configOptions"])["mode"]["currentValue"] == "auto"
        (mode,) = updates(client, "current_mode_update")
        assert mode["currentModeId"] == "plan"


@pytest.mark.parametrize(
    ("method", "params"),
    [
        ("session/set_mode", {"modeId": "root"}),
        ("session/set_config_option", {"configId": "mode", "value": "root"}),
        ("session/set_config_option", {"configId": "nope", "value": "ask"}),
        ("session/set_config_option", {"configId": "mode", "type": "boolean", "value": True}),
    ],
)
async def test_a_choice_that_is_none_is_refused(
    talk: Talk, cwd: Path, method: str, params: Message
) -> None:
    async with talk(SAYS) as client:
        await opened(client, cwd)
        with pytest.raises(RpcError, match="-32602"):
            await client.request(method, {"sessionId": client.session_id, **params})


async def test_a_model_chosen_in_the_middle_of_a_turn_takes_the_next_call(
    talk: Talk, cwd: Path, gates: Gates
) -> None:
    script = "turn\ntext: {name}\ngate: g\ncall: plan {{}}\n---\ntext: and {name}"
    first = thinker("first", dialogue=script.format(name="one"))
    second = thinker("second", dialogue=script.format(name="two"))
    async with talk(SeveralModels(first, second)) as client:
        await opened(client, cwd)
        running = client.send_prompt("go")
        await gates.reached("g")
        assert (await choose(client, "model", "second"))["model"]["currentValue"] == "second"
        gates.open("g")
        await client.answer_to(running)
        assert client.text() == "oneand two"


async def test_a_mode_chosen_in_the_middle_of_a_turn_holds_for_the_next_call(
    talk: Talk, cwd: Path, gates: Gates
) -> None:
    dialogue = 'turn\ngate: g\ncall: shell {"command": "echo hi"}\n---\ntext: {result}'
    async with talk(dialogue) as client:
        await opened(client, cwd)
        running = client.send_prompt("go")
        await gates.reached("g")
        await choose(client, "mode", "auto")
        gates.open("g")
        with anyio.fail_after(5):
            await client.answer_to(running)
        assert "hi" in client.text()
        assert client.recording.requests("session/request_permission") == []
