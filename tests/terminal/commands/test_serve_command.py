"""`acp-bridge serve`: what is refused before anything listens, each time with what to do."""

from collections.abc import Sequence
from pathlib import Path

import pytest

from acp_bridge.core.agents import origin
from acp_bridge.remote.serve import tokens
from acp_bridge.terminal.cli import own_agent
from acp_bridge.terminal.commands import serve


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("ACP_BRIDGE_HOME", str(tmp_path / "home"))
    return tmp_path / "home"


def ran(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str, str]:
    """The exit code of a command, and what it has printed."""
    code = 0
    try:
        code = serve.main(words)
    except SystemExit as exc:
        code = exc.code if isinstance(exc.code, int) else -1
    out, err = capsys.readouterr()
    return code, out, err


@pytest.mark.hazard("N1")
@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["0.0.0.0:0"], "--tls CERT KEY"),
        (["[::]:0"], "--behind-proxy ORIGIN"),
        (["0.0.0.0:0", "--behind-proxy", "https://x.example"], "--tls CERT KEY"),
        (["unix:/tmp/x"], "--behind-proxy ORIGIN"),
        (["127.0.0.1:0", "--behind-proxy", "x"], "https://bridge.example.org"),
        (["127.0.0.1:0", "--tls", "/no/cert", "/no/key"], "there is no file /no/cert"),
        (["127.0.0.1:0", "--tls", "a", "b", "--behind-proxy", "https://x"], "--tls and"),
        (["127.0.0.1"], "127.0.0.1:8765"),
        (["127.0.0.1:0", "--root", "/no/folder"], "there is no folder /no/folder"),
        (["127.0.0.1:0", "laptop"], "serve token NAME"),
        (["127.0.0.1:0", "--may", "look"], "serve token NAME"),
        (["token"], "name of a token"),
        (["revoke"], "name of a token"),
        (["tokens", "x"], "no name of a token"),
        (["token", "x", "--may", "shell"], "look, approve, all"),
        (["token", "x", "--", "agent"], "starts no agent"),
        (["127.0.0.1:0", "--alow-local"], "did you mean --allow-local"),
    ],
)
def test_what_can_not_be_is_wrong_usage_that_says_what_can(
    capsys: pytest.CaptureFixture[str], words: Sequence[str], told: str
) -> None:
    code, out, err = ran(capsys, *words)
    assert (code, out) == (2, "")
    assert told in err


def test_without_the_extra_one_line_names_it(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(own_agent, "missing", lambda packages, _: packages)
    code, _, err = ran(capsys, "127.0.0.1:0")
    assert code == 1
    assert err.count("\n") == 1
    assert "'acp-stdio-bridge[remote]'" in err


@pytest.mark.hazard("N1.4", "N1.5")
def test_a_token_alone_goes_to_stdout_and_is_kept_as_its_hash(
    capsys: pytest.CaptureFixture[str], home: Path
) -> None:
    code, out, err = ran(capsys, "token", "--may", "look", "phone")
    assert code == 0
    assert "look on, and no more" in err
    assert out.strip() not in err
    (token,) = tokens.read(home)
    assert (token.name, token.may, token.hash) == ("phone", "look", tokens.digest(out.strip()))
    assert ran(capsys, "token", "laptop")[2].startswith("The token laptop may all that you may")
    listed = ran(capsys, "tokens")[1]
    assert [line.split()[:2] for line in listed.splitlines()[1:]] == [
        ["phone", "look"],
        ["laptop", "all"],
    ]
    assert token.hash not in listed
    assert ran(capsys, "revoke", "phone") == (
        0,
        "The token phone is revoked; no connections of it have ended.\n",
        "",
    )
    assert ran(capsys, "revoke", "phone")[0] == 1


@pytest.mark.hazard("N1.9", "V6")
def test_an_agent_makes_and_revokes_no_token(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, home: Path
) -> None:
    ran(capsys, "token", "laptop")
    monkeypatch.setattr(origin, "runs_in_agent", lambda: True)
    for words in (["token", "mine"], ["revoke", "laptop"]):
        code, out, err = ran(capsys, *words)
        assert (code, out) == (1, "")
        assert "an agent can't change tokens" in err
    assert [each.name for each in tokens.read(home)] == ["laptop"]


def test_a_file_of_tokens_that_can_not_be_used_is_said(
    capsys: pytest.CaptureFixture[str], home: Path
) -> None:
    ran(capsys, "token", "laptop")
    (home / "remote/tokens.json").chmod(0o644)
    for words in (["tokens"], ["token", "x"]):
        code, _, err = ran(capsys, *words)
        assert code == 1
        assert "remove it" in err
