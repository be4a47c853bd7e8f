"""Where keys and base URLs are found."""

import logging
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from agent.providers.all_models import AllModels
from agent.providers.keys import Access, FileUse, Keys
from agent.providers.known_providers import PROVIDERS, variables
from agent.providers.outgoing import Target
from agent.providers.request import Request
from agent.settings import Settings

OPENAI, GEMINI = PROVIDERS["openai"], PROVIDERS["gemini"]


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "keys.env"


def test_the_environment_comes_before_the_file(file: Path) -> None:
    file.write_text("OPENAI_API_KEY=of-the-file\n")
    assert Keys(file, {"OPENAI_API_KEY": "of-the-env"}).access(OPENAI).key == "of-the-env"
    assert Keys(file, {}).access(OPENAI).key == "of-the-file"


def test_a_key_that_is_written_later_is_found(file: Path) -> None:
    keys = Keys(file, {})
    assert keys.access(OPENAI).lacks_key
    file.write_text("OPENAI_API_KEY=later\n")
    assert keys.access(OPENAI).key == "later"


def test_a_key_may_have_several_names(file: Path) -> None:
    found = Keys(file, {"GOOGLE_API_KEY": "k"}).access(GEMINI)
    assert (found.key_variable, found.key) == ("GOOGLE_API_KEY", "k")
    assert Keys(file, {}).access(GEMINI).key_variable == "GEMINI_API_KEY"


@pytest.mark.parametrize("name", ["FIREWORKS_API_KEY", "FIREWORKS_AI_API_KEY"])
def test_a_key_is_found_under_each_name_that_litellm_knows(file: Path, name: str) -> None:
    assert Keys(file, {name: "k"}).access(PROVIDERS["fireworks_ai"]).key == "k"


def test_of_a_provider_that_is_not_listed_a_key_is_taken_and_none_is_insisted_on(
    file: Path,
) -> None:
    bedrock = variables("bedrock")  # it is got at with the keys of AWS, or a role
    assert not Keys(file, {}).access(bedrock).lacks_key
    assert Keys(file, {"BEDROCK_API_KEY": "k"}).access(bedrock).key == "k"


@pytest.mark.parametrize("value", ["", "  "])
def test_an_empty_value_is_none(file: Path, value: str) -> None:
    file.write_text("OPENAI_API_KEY=of-the-file\n")
    assert Keys(file, {"OPENAI_API_KEY": value}).access(OPENAI).key == "of-the-file"


def test_lines_are_written_as_in_a_shell(file: Path) -> None:
    file.write_text("# mine\nexport OPENAI_API_KEY='a b'\nGEMINI_API_KEY=\"c\"  # work\nNONSENSE\n")
    keys = Keys(file, {})
    assert (keys.access(OPENAI).key, keys.access(GEMINI).key) == ("a b", "c")


def test_nothing_is_put_into_a_value(file: Path) -> None:
    file.write_text("OPENAI_API_KEY=a${HOME}b\n")
    assert Keys(file, {}).access(OPENAI).key == "a${HOME}b"


@pytest.mark.parametrize("name", ["OPENAI_BASE_URL", "OPENAI_API_BASE"])
def test_with_a_base_url_no_key_is_lacking(file: Path, name: str) -> None:
    found = Keys(file, {name: "http://localhost:8000/v1/"}).access(OPENAI)
    assert (found.base_url_variable, found.base_url) == (name, "http://localhost:8000/v1")
    assert not found.lacks_key


def test_a_file_that_is_not_text_is_no_file(file: Path, caplog: pytest.LogCaptureFixture) -> None:
    file.write_bytes(b"OPENAI_API_KEY=\xff\xfe\n")
    with caplog.at_level(logging.WARNING):
        assert Keys(file, {}).access(OPENAI).lacks_key
    assert "can't be read" in caplog.text


def test_a_folder_is_no_file(tmp_path: Path) -> None:
    assert Keys(tmp_path, {}).access(OPENAI).lacks_key


def test_a_pipe_is_no_file_and_is_not_waited_for(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    os.mkfifo(file)
    monkeypatch.setattr(Path, "open", lambda *_, **__: pytest.fail("it is waited for"))
    look = Keys(file, {}).look()
    assert (look.access(OPENAI).key, look.file_use) == (None, FileUse.UNREADABLE)


def test_one_look_reads_the_file_once(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[Path] = []
    really = Path.open

    def open_counted(path: Path, *args: Any, **kwargs: Any) -> Any:
        opened.append(path)
        return really(path, *args, **kwargs)

    monkeypatch.setattr(Path, "open", open_counted)
    file.write_text("GEMINI_API_KEY=k\n")
    opened.clear()
    AllModels(Settings(file.parent, file), {}).offered()
    assert opened == [file]


@pytest.mark.parametrize(
    ("mode", "key", "said"),
    [
        (0o600, "k", None),
        (0o400, "k", None),
        (0o640, "k", "others may read it"),
        (0o604, "k", "others may read it"),
        (0o660, "k", "others may read it"),
        (0o602, None, "is not used: anybody may write it"),
        (0o666, None, "is not used: anybody may write it"),
    ],
)
def test_a_file_that_others_may_read_is_warned_of_once_and_one_that_all_may_write_is_not_used(
    file: Path, caplog: pytest.LogCaptureFixture, mode: int, key: str | None, said: str | None
) -> None:
    file.write_text("OPENAI_API_KEY=k\n")
    file.chmod(mode)
    keys = Keys(file, {})
    assert [keys.access(OPENAI).key for _ in range(2)] == [key, key]
    warned = [record.getMessage() for record in caplog.records]
    assert len(warned) == (said is not None)
    assert said is None or (said in warned[0] and str(file) in warned[0])


_LOOKS_BEFORE_A_FORK_AND_IN_IT = """
import os, sys
from pathlib import Path
from agent.providers.keys import Keys
from agent.providers.known_providers import PROVIDERS
keys = Keys(Path(sys.argv[1]), {})
keys.access(PROVIDERS["openai"])
if os.fork() == 0:
    keys.access(PROVIDERS["openai"])
    os._exit(0)
os.wait()
"""


def test_a_forked_agent_warns_of_the_file_even_if_its_parent_did(file: Path) -> None:
    file.write_text("OPENAI_API_KEY=k\n")
    file.chmod(0o602)
    command = [sys.executable, "-c", _LOOKS_BEFORE_A_FORK_AND_IN_IT, str(file)]
    said = subprocess.run(command, capture_output=True, text=True, timeout=30, check=True).stderr
    assert said.count("is not used: anybody may write it") == 2


def test_the_credentials_of_aws_in_the_file_are_given_to_litellm(file: Path) -> None:
    bedrock = variables("bedrock")
    file.write_text(
        "AWS_ACCESS_KEY_ID=id\nAWS_SECRET_ACCESS_KEY=secret\nAWS_REGION=eu-west-1\nAWS_PROFILE=\n"
    )
    credentials = {"aws_access_key_id": "id", "aws_secret_access_key": "secret"}
    region = {"aws_region_name": "eu-west-1"}
    assert dict(Keys(file, {}).access(bedrock).parameters) == {**credentials, **region}
    assert Keys(file, {}).access(OPENAI).parameters == ()
    of_the_environment = {"AWS_PROFILE": "mine", "AWS_REGION": ""}
    assert dict(Keys(file, of_the_environment).access(bedrock).parameters) == region
    assert dict(Keys(file, {"AWS_REGION_NAME": "x"}).access(bedrock).parameters) == credentials
    file.write_text("AWS_BEARER_TOKEN_BEDROCK=token\n")
    assert dict(Keys(file, {}).access(bedrock).parameters) == {"api_key": "token"}


def test_what_holds_a_key_is_printed_without_it() -> None:
    url, more = "https://me:secret@example.com", (("aws_secret_access_key", "secret"),)
    access = Access("openai", "OPENAI_API_KEY", "secret", "OPENAI_BASE_URL", url, parameters=more)
    target = Target("gpt-5.2", "openai", url, "secret", None, parameters=more)
    request = Request(url, {"Authorization": "Bearer secret"}, b"{}", "chat")
    assert repr([access, target, request]) == (
        "[Access('openai'), Target('gpt-5.2', 'openai'), Request('chat')]"
    )
