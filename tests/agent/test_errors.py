"""What goes on the wire when something is wrong."""

import errno
import os
import re
from pathlib import Path
from typing import Any

import pytest

from agent.errors import request_error
from agent.model import Completion, ErrorKind, ModelError
from agent.scripted.dialogue import parse_dialogue
from agent.scripted.scripted_model import ScriptedModel
from agent.secrets import Secrets
from tests.agent.conftest import Talk
from tests.agent.talking import error_of, opened
from tests.support.recording import RpcError

HELLO = "turn\ntext: one two"


def logged_id(error: RpcError) -> str:
    """The id in the error's sentence, under which the log has more."""
    (found,) = re.findall(r"\b[0-9a-f]{12}\b", error.message)
    return str(found)


@pytest.mark.parametrize(
    ("kind", "code"),
    [
        ("missing_key", -32000),
        ("auth", -32603),
        ("rate_limit", -32603),
        ("context", -32603),
        ("other", -32603),
    ],
)
@pytest.mark.hazard("P16.1")
async def test_a_model_s_sentence_is_the_error_s_message_and_its_details(
    talk: Talk, cwd: Path, caplog: pytest.LogCaptureFixture, kind: str, code: int
) -> None:
    async with talk(f"when: bad\nerror: {kind} Wait a minute.\nturn\ntext: fine") as client:
        await opened(client, cwd)
        with pytest.raises(RpcError, match=f"{code} Wait a minute.") as caught:
            await client.prompt("bad")
        more = {"errorKind": kind} if kind == "rate_limit" else {}
        assert caught.value.data == {"details": caught.value.message, **more}
        if code == -32603:
            assert logged_id(caught.value) in caplog.text
        assert (await client.prompt("x"))["stopReason"] == "end_turn"


class Broken(ScriptedModel):
    """Fails as nobody expected."""

    async def complete(self, *_: Any) -> Completion:
        raise RuntimeError("/secret/path")


async def test_what_nobody_expected_is_an_error_without_its_text(
    talk: Talk, cwd: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with talk(Broken(parse_dialogue(HELLO))) as client:
        await opened(client, cwd)
        with pytest.raises(RpcError, match="-32603 Internal error") as caught:
            await client.prompt("x")
        assert caught.value.data == {"details": caught.value.message}
        assert logged_id(caught.value) in caplog.text
        assert "/secret/path" in caplog.text
        assert "/secret" not in str(client.recording)


@pytest.mark.hazard("K5.1")
@pytest.mark.parametrize("kind", ["missing_key", "auth", "other"])
def test_a_secret_in_a_model_s_sentence_is_masked(kind: ErrorKind) -> None:
    mask = Secrets(["sk-12345678"]).mask
    error = request_error(ModelError("the key sk-12345678 is refused", kind), mask)
    assert str(error).startswith("the key *** is refused")
    assert "sk-" not in f"{error} {error.data}"


def test_a_system_without_room_for_a_thread_is_told_in_whole_sentences() -> None:
    error = request_error(RuntimeError("can't start new thread"), str)
    found = r"The system has no room [^()]+ \(ulimit -u\)\. \(The log has more under id \w+\.\)"
    assert re.fullmatch(found, str(error))


@pytest.mark.hazard("K5")
@pytest.mark.parametrize(
    "number", [errno.EROFS, errno.ENOSPC, errno.EACCES, errno.ENOTDIR, errno.ENOENT]
)
def test_a_disk_that_fails_is_named_without_a_path_and_with_what_to_do(number: int) -> None:
    error = request_error(OSError(number, "no", "/secret/path"), str)
    assert os.strerror(number) in str(error)
    assert "`acp-bridge doctor` in a terminal" in str(error)
    assert "/secret" not in f"{error} {error.data}"


async def test_wrong_parameters_are_told_by_place_without_their_value(
    talk: Talk, cwd: Path
) -> None:
    async with talk(HELLO) as client:
        session_id = await opened(client, cwd)
        for prompt in ("s3cret", [{"type": "text", "text": {"s3cret": 1}}], [], ["s3cret"]):
            error = await error_of(
                client, "session/prompt", {"sessionId": session_id, "prompt": prompt}
            )
            assert error.code == -32602
            assert "s3cret" not in f"{error.message} {error.data}"
            assert "pydantic" not in str(error.data)
        sound = [{"type": "audio", "data": "", "mimeType": "audio/wav"}]
        params = {"sessionId": session_id, "prompt": sound}
        assert (await error_of(client, "session/prompt", params)).code == -32602
        assert (await error_of(client, "session/new", None)).code == -32602
        assert (await error_of(client, "nope/nope", {})).code == -32601


@pytest.mark.parametrize(
    ("method", "params", "code", "says"),
    [
        ("session/prompt", {"sessionId": "s", "prompt": []}, -32600, "send initialize first"),
        ("nope/nope", {}, -32600, "send initialize first"),
    ],
)
@pytest.mark.hazard("P16")
async def test_before_initialize_an_error_says_what_to_do(
    talk: Talk, method: str, params: Any, code: int, says: str
) -> None:
    async with talk(HELLO) as client:
        error = await error_of(client, method, params)
        assert (error.code, says in error.message) == (code, True)
        assert error.data == {"details": error.message}


@pytest.mark.parametrize(
    ("method", "params"),
    [
        ("session/new", {"cwd": "relative", "mcpServers": []}),
        ("session/new", {"cwd": 7, "mcpServers": "none"}),
        ("session/new", None),
        ("session/load", {"sessionId": "s", "cwd": "/", "mcpServers": []}),
        ("session/resume", {"sessionId": "s", "cwd": "/"}),
        ("session/fork", {"sessionId": "s", "cwd": "/"}),
        ("session/close", {"sessionId": "s"}),
        ("session/prompt", {"sessionId": "s", "prompt": [{"type": "text", "text": "x"}]}),
        ("session/set_mode", {"sessionId": "s", "modeId": "x"}),
        ("session/set_config_option", {"sessionId": "s", "configId": "x", "value": "y"}),
        ("session/list", {"cursor": "x"}),
        ("authenticate", {"methodId": "x"}),
        ("nope/nope", {}),
        ("initialize", {}),
    ],
)
@pytest.mark.hazard("P16.1")
async def test_every_error_has_its_sentence_as_details_and_nothing_else(
    talk: Talk, method: str, params: Any
) -> None:
    async with talk(HELLO) as client:
        await client.initialize()
        error = await error_of(client, method, params)
        assert error.message
        assert error.data == {"details": error.message}


async def test_wrong_parameters_are_named_in_the_sentence(talk: Talk, cwd: Path) -> None:
    async with talk(HELLO) as client:
        await client.initialize()
        error = await error_of(client, "session/new", {"mcpServers": []})
        assert "cwd: Field required" in error.message
