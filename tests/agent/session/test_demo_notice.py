"""The first start without a key: the demo says that it is one, and a key that comes is used."""

from pathlib import Path

import pytest

from agent.conversation.history import History
from agent.providers.all_models import AllModels
from agent.scripted.dialogue import parse_dialogue
from agent.scripted.scripted_model import ScriptedModel
from agent.session.config_options import ConfigOptions
from agent.session.demo_notice import DemoNotice
from agent.settings import Settings
from agent.turn.permissions import Permissions
from tests.agent.conftest import Talk
from tests.agent.session.several_models import SeveralModels
from tests.agent.talking import of_kind, opened
from tests.support.client import RecordingClient
from tests.support.recording import RpcError

SAYS = parse_dialogue("turn\ntext: fine")


class KeyToCome(SeveralModels):
    """The demo is the default until a key comes."""

    def __init__(self) -> None:
        super().__init__(ScriptedModel(SAYS, "demo"), ScriptedModel(SAYS, "real"))
        self.keys = {"demo"}

    def give_key(self) -> None:
        self.keys.add("real")
        self.default = "real"


async def choose(client: RecordingClient, model: str) -> None:
    choice = {"sessionId": client.session_id, "configId": "model", "value": model}
    await client.request("session/set_config_option", choice)


async def test_the_first_answer_of_a_demo_session_begins_with_how_to_leave_it(
    talk: Talk, cwd: Path, tmp_path: Path
) -> None:
    async with talk(KeyToCome()) as client:
        await opened(client, cwd)
        await client.prompt("fix the bug")
        first = client.text()
        assert first.startswith("\n\n[acp-bridge] This is the demo")
        assert first.endswith("\n\nfine")
        assert f"`{tmp_path / 'keys.env'}`" in first
        assert ("need a key" in first, "no `--model`" in first) == (True, True)
        assert f"`acp-bridge key --home {tmp_path}`" in first
        since = client.mark()
        await client.prompt("and this")
        assert client.text(since=since) == "fine"
        since = client.mark()
        await client.new_session(cwd)
        await client.prompt("another session")
        assert "This is the demo" in client.text(since=since)


async def test_a_demo_session_that_is_loaded_again_does_not_repeat_it(
    talk: Talk, cwd: Path
) -> None:
    async with talk(KeyToCome()) as client:
        session_id = await opened(client, cwd)
        await client.prompt("x")
    async with talk(KeyToCome()) as client:
        await client.initialize()
        await client.load_session(session_id, cwd)
        await client.prompt("y")
        assert "This is the demo" not in client.text()


async def test_a_session_that_falls_back_to_the_demo_says_so(talk: Talk, cwd: Path) -> None:
    models = KeyToCome()
    models.give_key()
    async with talk(models) as client:
        session_id = await opened(client, cwd)
        await client.prompt("x")
    async with talk(KeyToCome()) as client:
        await client.initialize()
        await client.load_session(session_id, cwd)
        await client.prompt("y")
        assert "This is the demo" in client.text()


@pytest.mark.hazard("U1.3")
async def test_a_prompt_that_wants_no_demo_is_refused_for_want_of_a_key(
    talk: Talk, cwd: Path, tmp_path: Path
) -> None:
    async with talk(KeyToCome()) as client:
        await opened(client, cwd)
        wanted = {
            "sessionId": client.session_id,
            "prompt": [{"type": "text", "text": "x"}],
            "_meta": {"noDemo": True},
        }
        with pytest.raises(RpcError) as caught:
            await client.request("session/prompt", wanted)
        assert caught.value.code == -32000
        assert f"`acp-bridge key --home {tmp_path}`" in caught.value.message
        assert client.text() == ""
        await choose(client, "demo")
        assert await client.request("session/prompt", wanted) == {"stopReason": "end_turn"}


async def test_a_demo_that_was_asked_for_by_name_says_nothing(talk: Talk, cwd: Path) -> None:
    async with talk(KeyToCome(), model="demo") as client:
        await opened(client, cwd)
        await client.prompt("x")
        assert client.text() == "fine"


async def test_once_a_key_is_there_the_open_session_uses_a_real_model_and_says_so(
    talk: Talk, cwd: Path
) -> None:
    models = KeyToCome()
    async with talk(models) as client:
        await opened(client, cwd)
        await client.prompt("x")
        models.give_key()
        since = client.mark()
        await client.prompt("y")
        assert "`real` answers, not the demo" in client.text(since=since)
        assert models.opened[-1][0] == "real"
        told = of_kind(client, "config_option_update", since)[0]["configOptions"][0]
        assert (told["currentValue"], len(told["options"])) == ("real", 2)
        since = client.mark()
        await client.prompt("z")
        assert client.text(since=since) == "fine"


async def test_a_demo_that_the_user_chose_stays(talk: Talk, cwd: Path) -> None:
    models = KeyToCome()
    async with talk(models) as client:
        await opened(client, cwd)
        await choose(client, "demo")
        models.give_key()
        await client.prompt("y")
        assert models.opened[-1][0] == "demo"


def test_the_list_of_models_says_what_the_demo_is(tmp_path: Path) -> None:
    file = tmp_path / "keys.env"
    (demo,) = AllModels(Settings(tmp_path, file), {}).offered()
    assert (demo.id, demo.name) == ("demo", "Demo (no model)")
    assert demo.description
    assert str(file) in demo.description
    assert ("a key" in demo.description, "no --model" in demo.description) == (True, True)


async def test_a_key_in_the_file_makes_its_provider_s_first_model_the_sessions(
    tmp_path: Path,
) -> None:
    file = tmp_path / "keys.env"
    options = ConfigOptions(AllModels(Settings(tmp_path, file), {}), Permissions())
    assert options.leave_demo() is None
    file.write_text("OPENAI_API_KEY=sk-made-up\n")
    assert str(options.leave_demo()).startswith("openai/")
    assert options.leave_demo() is None


@pytest.mark.parametrize("is_file", [False, True])
async def test_the_folder_of_the_file_of_keys_is_there_when_it_is_named(
    tmp_path: Path, is_file: bool
) -> None:
    home = tmp_path / "a" / "home"
    if is_file:  # that it can't be made keeps nothing from being said
        (tmp_path / "a").write_text("")
    settings = Settings(home / "agent", home / "keys.env")
    said: list[tuple[str, bool]] = []

    async def say(text: str) -> None:
        said.append((text, home.is_dir()))

    async def tell_options() -> None:
        raise AssertionError

    options = ConfigOptions(AllModels(settings, {}), Permissions())
    await DemoNotice(options, History(), settings, say, tell_options).before_answer(no_demo=False)
    ((text, was_there),) = said
    assert (str(home / "keys.env") in text, was_there) == (True, not is_file)
    if not is_file:
        assert home.stat().st_mode & 0o777 == 0o700
