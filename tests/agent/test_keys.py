"""Where keys and base URLs are found."""

import logging
from pathlib import Path

import pytest

from agent.keys import Keys
from agent.providers.known import PROVIDERS

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
