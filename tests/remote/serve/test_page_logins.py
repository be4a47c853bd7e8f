"""The logins of pages: made for a code, used by pages alone, ended by idleness and by revoking."""

from datetime import date, timedelta
from pathlib import Path
from typing import Any

import anyio
import pytest

from acp_bridge.core.clients.rights import May
from acp_bridge.remote.page.codes import Codes
from acp_bridge.remote.page.logins import IDLE, PageLogins
from acp_bridge.remote.serve import tokens
from acp_bridge.remote.serve.tokens import Tokens, new_secret, new_token

DAY = date(2026, 11, 1)


class Days:
    def __init__(self) -> None:
        self.now = DAY

    def __call__(self) -> date:
        return self.now


async def nobody(*_: Any) -> None:
    raise AssertionError("it joins no bridge")


def logins(mine: Tokens, days: Days) -> tuple[PageLogins, Codes]:
    codes = Codes()
    return PageLogins(mine, codes, nobody, days), codes


@pytest.mark.hazard("N1")
async def test_a_code_gives_a_login_that_only_a_page_can_use(tmp_path: Path) -> None:
    with tokens.held(tmp_path) as mine:
        pages, codes = logins(mine, Days())
        code = codes.make("phone", "approve", anyio.current_time())
        assert await pages.exchange("WRONG") is None
        secret = await pages.exchange(code)
        assert secret is not None
        assert await pages.exchange(code) is None
        login = await pages.enter(secret)
        assert login is not None
        assert (login.name, login.may) == ("phone", May.APPROVE)
        assert mine.find(secret) is None  # it is no bearer at /acp
        client = new_secret()
        mine.add(new_token("laptop", May.ALL, client))
        assert await pages.enter(client) is None
        await pages.leave(client)
        await pages.leave(secret)
        assert await pages.enter(secret) is None
        assert [each.name for each in mine.all] == ["laptop"]
        assert secret not in (tmp_path / "remote/tokens.json").read_text("utf-8")


async def test_a_login_counts_until_it_was_idle_for_thirty_days(tmp_path: Path) -> None:
    days = Days()
    with tokens.held(tmp_path) as mine:
        pages, codes = logins(mine, days)
        secret = await pages.exchange(codes.make("phone", "all", anyio.current_time()))
        assert secret is not None
        days.now += timedelta(days=IDLE)
        assert await pages.enter(secret)
    with tokens.held(tmp_path) as mine:  # it is kept across an end of the server
        pages, _ = logins(mine, days)
        days.now += timedelta(days=IDLE)
        assert await pages.enter(secret)
        days.now += timedelta(days=IDLE + 1)
        assert await pages.enter(secret) is None
        assert mine.all == []


@pytest.mark.hazard("N1")
async def test_a_login_that_is_revoked_while_its_use_is_noted_counts_no_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    days = Days()
    with tokens.held(tmp_path) as mine:
        pages, codes = logins(mine, days)
        secret = await pages.exchange(codes.make("phone", "all", anyio.current_time()))
        assert secret is not None
        days.now += timedelta(days=1)
        monkeypatch.setattr(mine, "use", lambda token, day: mine.remove(token.name))
        assert await pages.enter(secret) is None


async def test_a_code_whose_name_was_taken_meanwhile_gives_nothing(tmp_path: Path) -> None:
    with tokens.held(tmp_path) as mine:
        pages, codes = logins(mine, Days())
        code = codes.make("phone", "all", anyio.current_time())
        mine.add(new_token("phone", May.LOOK, new_secret()))
        assert await pages.exchange(code) is None
