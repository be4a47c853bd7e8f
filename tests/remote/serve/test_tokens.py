"""Tokens at rest: hashes in a private file, which one program at a time may change."""

import json
import os
import stat
import threading
import time
from pathlib import Path

import pytest

from acp_bridge.core.clients.rights import May
from acp_bridge.core.keys.file import replace
from acp_bridge.core.records import replace as with_changes
from acp_bridge.remote.serve import tokens
from acp_bridge.remote.serve.tokens import Held, Token, Unusable, held, new_secret, new_token, read


def made(home: Path, name: str = "laptop", may: May = May.ALL) -> str:
    secret = new_secret()
    with held(home) as mine:
        mine.add(new_token(name, may, secret))
    return secret


def file(home: Path) -> Path:
    return home / "remote" / "tokens.json"


@pytest.mark.hazard("N1.5")
def test_the_file_is_private_and_has_no_secret(home: Path) -> None:
    secret = made(home)
    assert stat.S_IMODE(file(home).stat().st_mode) == 0o600
    assert stat.S_IMODE(file(home).parent.stat().st_mode) == 0o700
    for each in (home / "remote").iterdir():
        assert secret.removeprefix("acpb_") not in each.read_text()
    assert (len(secret), secret[:5]) == (48, "acpb_")
    with held(home) as mine:
        found = mine.find(secret)
        assert found
        assert (found.name, found.may) == ("laptop", "all")
        assert mine.find(found.hash) is None


def test_two_tokens_have_different_secrets_and_names(home: Path) -> None:
    assert made(home) != made(home, "phone", May.LOOK)
    assert [(each.name, each.may) for each in read(home)] == [("laptop", "all"), ("phone", "look")]
    with pytest.raises(Unusable, match="acp-bridge serve revoke laptop"):
        made(home)


def test_a_revoked_token_is_no_more(home: Path) -> None:
    secret = made(home)
    made(home, "phone")
    with held(home) as mine:
        mine.remove("laptop")
        assert mine.find(secret) is None
        with pytest.raises(Unusable, match="serve tokens lists"):
            mine.remove("laptop")
    assert [each.name for each in read(home)] == ["phone"]


@pytest.mark.parametrize("name", ["", "a b", "-x", "ü", "x" * 65, "a\n", "../x"])
def test_a_name_that_would_need_care_is_refused(name: str) -> None:
    with pytest.raises(Unusable, match="letters"):
        new_token(name, May.ALL, "x")


@pytest.mark.hazard("N1")
def test_a_revoked_token_does_not_come_back_when_another_is_used_at_the_same_time(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun, others = threading.Event(), list[threading.Thread]()

    def changed(token: Token, used: str) -> Token:
        begun.set()
        return with_changes(token, used=used)

    with tokens.held(home) as mine:
        for name in ("stolen", "phone"):
            mine.add(new_token(name, May.ALL, new_secret(), "2026-11-01"))

        def slow(path: Path, text: str) -> None:  # meanwhile the other one is used
            if not others:
                others.append(threading.Thread(target=mine.use, args=(mine.all[1], "2026-11-02")))
                others[0].start()
                begun.wait(0.2)
            replace(path, text)

        monkeypatch.setattr(tokens, "with_changes", changed)
        monkeypatch.setattr(tokens, "replace", slow)
        mine.remove("stolen")
        others[0].join(10)
        assert [(each.name, each.used) for each in mine.all] == [("phone", "2026-11-02")]
        assert [each.name for each in tokens.read(home)] == ["phone"]


def test_there_are_only_so_many(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tokens, "MOST_TOKENS", 1)
    made(home)
    with pytest.raises(Unusable, match="revoke one"):
        made(home, "phone")


@pytest.mark.hazard("N1.9")
def test_while_one_has_them_nobody_else_changes_them_and_learns_where_to_ask(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tokens, "_LOCK_WAIT", 0.0)
    with held(home) as mine:
        with pytest.raises(Held) as early:
            made(home)
        mine.tell("/run/x.sock")
        with pytest.raises(Held) as late:
            made(home)
    assert (early.value.socket, late.value.socket) == (None, "/run/x.sock")
    made(home)


def test_a_command_that_has_them_for_a_moment_is_waited_for(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mine = tokens.Tokens(home)
    monkeypatch.setattr(time, "sleep", lambda _: mine.close())  # it ends meanwhile
    made(home)
    assert [each.name for each in read(home)] == ["laptop"]


@pytest.mark.hazard("N1")
def test_what_somebody_else_writes_is_noticed_once_and_not_read(home: Path) -> None:
    secret = made(home)
    with held(home) as mine:
        assert not mine.changed_behind()
        forged = json.loads(file(home).read_text())
        forged["tokens"][0]["hash"] = tokens.digest("forged")
        file(home).write_text(json.dumps(forged))
        assert mine.find("forged") is None
        assert mine.find(secret)
        assert mine.changed_behind()
        assert not mine.changed_behind()
        mine.add(new_token("phone", May.LOOK, "x"))
        assert not mine.changed_behind()
    assert [each.name for each in read(home)] == ["laptop", "phone"]
    assert read(home)[0].hash == tokens.digest(secret)


def test_a_file_that_is_removed_is_noticed(home: Path) -> None:
    made(home)
    with held(home) as mine:
        file(home).unlink()
        assert mine.changed_behind()


@pytest.mark.hazard("N1")
@pytest.mark.parametrize("mode", [0o640, 0o606, 0o622])
def test_a_file_that_others_may_read_or_write_is_not_used(home: Path, mode: int) -> None:
    made(home)
    file(home).chmod(mode)
    with pytest.raises(Unusable, match="remove it"):
        read(home)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "{}",
        '{"tokens": 1}',
        '{"tokens": [{"name": "x", "may": "all", "made": "", "hash": "zz"}]}',
        '{"tokens": [{"name": "x", "may": "more", "made": "", "hash": "00"}]}',
        '{"tokens": [{"name": 1, "may": "all", "made": "", "hash": "00"}]}',
        "[" * 100_000,
    ],
)
def test_a_damaged_file_says_what_to_do(home: Path, text: str) -> None:
    made(home)
    file(home).write_text(text)
    with pytest.raises(Unusable, match="acp-bridge serve token NAME"):
        read(home)


def test_a_link_in_the_place_of_the_file_is_not_followed(home: Path, tmp_path: Path) -> None:
    made(home)
    file(home).rename(tmp_path / "elsewhere")
    os.symlink(tmp_path / "elsewhere", file(home))
    with pytest.raises(OSError, match="symbolic links"):
        read(home)
