"""`acp-bridge key`: what is asked, kept, listed and said, and that no key is ever shown."""

import io
import os
import sys
from collections.abc import Callable
from pathlib import Path

import anyio
import pytest

from acp_bridge.core.agents import origin
from acp_bridge.terminal import cli
from acp_bridge.terminal.key import command as key
from tests.support.processes import MARK

KEY = "sk-ant-" + "0123456789abcdef"
Said = Callable[..., tuple[int, str, str]]


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return tmp_path / "home"


@pytest.fixture
def said(home: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Said:
    """Run `acp-bridge key` with a pipe for stdin: its exit code, stdout and stderr."""
    monkeypatch.setenv("ACP_BRIDGE_HOME", str(home))

    def said(*words: str, stdin: bytes = b"") -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin)))
        code = cli.run(["key", *words])
        found = capsys.readouterr()
        assert KEY[7:] not in found.out + found.err
        return code, found.out, found.err

    return said


def test_the_first_line_of_a_pipe_is_kept(said: Said, home: Path) -> None:
    code, out, err = said("anthropic", stdin=f"  {KEY} \nmore\n".encode())
    assert (code, err) == (0, "")
    assert f"ANTHROPIC_API_KEY is in {home}/keys.env" in out
    assert (home / "keys.env").read_text() == f"ANTHROPIC_API_KEY={KEY}\n"


def test_what_is_odd_is_said_and_kept(said: Said, home: Path) -> None:
    code, _, err = said("OPENAI_API_KEY", stdin=KEY.encode())
    assert code == 0
    assert "looks like a key of Anthropic" in err
    assert KEY in (home / "keys.env").read_text()


@pytest.mark.parametrize("stdin", [b"", b"\n", b"\xff\n", b"a\x00b\n", b"x" * 70_000])
def test_what_is_no_key_changes_nothing(said: Said, home: Path, stdin: bytes) -> None:
    code, out, err = said("OPENAI_API_KEY", stdin=stdin)
    assert (code, out) == (1, "")
    assert err.startswith("acp-bridge key: ")
    assert not home.exists()


@pytest.mark.parametrize(
    "words",
    [
        [KEY],
        ["OPENAI_API_KEY", KEY],
        ["OPENAI_API_KEY", f"--{KEY}"],
        [],
        ["--list", "OPENAI_API_KEY"],
        ["--remove"],
        ["--list", "--remove"],
    ],
)
def test_wrong_usage_is_refused_and_a_key_among_the_arguments_is_not_repeated(
    said: Said, home: Path, words: list[str]
) -> None:
    code, out, err = said(*words, stdin=KEY.encode())
    assert (code, out) == (2, "")
    assert err.endswith("Try 'acp-bridge key --help'.\n")
    assert not home.exists()


def test_a_key_in_the_environment_is_said_to_win(
    said: Said, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ANTHROPIC_API_KEY", "another-key-than-the-one")
    _, _, err = said("anthropic", stdin=KEY.encode())
    assert "ANTHROPIC_API_KEY is in this environment as well" in err


def test_another_variable_of_the_provider_in_the_environment_is_said_to_win(
    said: Said, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GOOGLE_API_KEY", "another-key-than-the-one")
    _, _, err = said("gemini", stdin=b"AIza0123456789abcdef")
    assert "GOOGLE_API_KEY is in this environment: where it is, that one counts" in err


@pytest.mark.parametrize(
    ("word", "meant"),
    [
        ("ANTRHOPIC", "anthropic"),
        ("opnai", "openai"),
        ("Open-Router", "openrouter"),
        ("google", "gemini"),
        ("Claude", "anthropic"),
    ],
)
def test_a_provider_that_is_nearly_known_is_named_without_the_word_itself(
    said: Said, home: Path, word: str, meant: str
) -> None:
    code, _, err = said(word, stdin=KEY.encode())
    assert (code, f"did you mean {meant}?" in err, home.exists()) == (2, True, False)
    assert word not in err


def test_an_option_that_is_nearly_one_is_named_and_is_no_argument_too_many(said: Said) -> None:
    code, _, err = said("--remov", "anthropic", stdin=b"")
    assert (code, "no such option; did you mean --remove?" in err) == (2, True)
    code, _, err = said("anthropic", KEY, stdin=b"")
    assert (code, "an argument too many" in err, KEY in err) == (2, True, False)


def test_a_provider_that_needs_no_key_is_told_so(said: Said, home: Path) -> None:
    code, _, err = said("ollama", stdin=KEY.encode())
    assert (code, "Ollama needs no key" in err, home.exists()) == (1, True, False)


def test_a_key_is_removed_once(said: Said, home: Path) -> None:
    said("anthropic", stdin=KEY.encode())
    assert said("--remove", "anthropic")[0] == 0
    assert (home / "keys.env").read_text() == ""
    code, _, err = said("anthropic", "--remove")
    assert (code, "ANTHROPIC_API_KEY is not in" in err) == (1, True)


def test_an_agent_can_change_no_key(
    said: Said, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(origin, "runs_in_agent", lambda: True)
    assert said("anthropic", stdin=KEY.encode())[0] == 1
    assert not home.exists()


def test_another_package_named_agent_is_not_asked(
    said: Said, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "site" / "agent").mkdir(parents=True)
    (tmp_path / "site" / "agent" / "__init__.py").write_text("print('not ours')")
    monkeypatch.setattr(key, "isolated_path", lambda env: [str(tmp_path / "site")])
    code, out, err = said("--list")
    assert (code, out) == (1, "")
    assert "another Python package named 'agent'" in err


@pytest.mark.process
def test_the_list_has_names_places_and_the_model_and_what_is_wrong_with_the_file(
    said: Said, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    said("anthropic", stdin=KEY.encode())
    with (home / "keys.env").open("a") as file:
        file.write(f"{KEY}\n")
    (home / "keys.env").chmod(0o644)
    monkeypatch.setenv("GROQ_API_KEY", "gsk_of_the_environment")
    code, out, err = said("--list")
    assert code == 0
    rows = [line.split() for line in out.splitlines()]
    assert rows[1:3] == [
        ["ANTHROPIC_API_KEY", "keys.env", "Anthropic"],
        ["GROQ_API_KEY", "environment", "Groq"],
    ]
    assert "model anthropic/claude" in out
    assert "chmod 600" in err
    assert "no variable a value: 2" in err


@pytest.mark.process
async def test_on_a_terminal_the_key_is_asked_for_and_not_shown(home: Path, mark: str) -> None:
    shown = b""
    master, slave = os.openpty()
    env = {**os.environ, "ACP_BRIDGE_HOME": str(home), MARK: mark}
    command = [sys.executable, "-m", "acp_bridge", "key"]
    process = await anyio.open_process(
        command, stdin=slave, stdout=slave, stderr=slave, env=env, start_new_session=True
    )
    os.close(slave)

    async def until(words: bytes) -> None:
        nonlocal shown
        while words not in shown:
            await anyio.wait_readable(master)
            shown += os.read(master, 4096)

    try:
        with anyio.fail_after(20):
            await until(b"variable: ")
            os.write(master, b"1\n")
            await until(b"(not shown): ")  # the echo is off by then
            os.write(master, f"{KEY}\n".encode())
            await until(b"next prompt")
            assert await process.wait() == 0
    finally:
        if process.returncode is None:
            process.kill()
        await process.aclose()
        os.close(master)
    assert KEY.encode() not in shown
    assert (home / "keys.env").read_text() == f"ANTHROPIC_API_KEY={KEY}\n"
