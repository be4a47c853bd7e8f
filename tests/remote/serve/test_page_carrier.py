"""What a server does with taps that are under way at once, and with one taken back under way."""

from pathlib import Path

import pytest

from acp_bridge.core.protocol import Json
from acp_bridge.core.wire.jsonrpc import RpcError
from acp_bridge.remote.page import taps
from tests.core.bridge.remote import remote_bench
from tests.core.sessions.agent import Gate, Process, until
from tests.remote.serve.page_bench import KnownLogins, page
from tests.remote.serve.test_page_taps import NAME, became, outcome, stops, talks


async def test_stops_in_two_sessions_that_the_page_does_not_show_are_both_carried_out(
    tmp_path: Path,
) -> None:
    async with remote_bench(tmp_path, talks()) as it:
        logins, seen = KnownLogins(it), dict[str, str]()
        owner = await it.remote()
        sent = {}
        for _ in range(3):
            session = await it.new(owner)
            sent[session] = owner.prompt(session, "wait")
            async with page(it, logins, session=session, client=NAME) as phone:
                seen[session] = await stops(phone)
        async with page(it, logins, client=NAME) as phone:
            await phone.told_of("may")
            for session, stop in seen.items():
                phone.sends(do="stop", prompt=stop, session=session, key=f"of {session}")
            for session in seen:
                assert await outcome(phone, f"of {session}") == ("taken", "")
        for request in sent.values():
            assert await owner.stop_reason(request) == "cancelled"


@pytest.mark.parametrize("fails", [False, True], ids=["done", "fails"])
async def test_of_a_tap_taken_back_on_its_way_the_page_is_told_what_became_of_it(
    tmp_path: Path, fails: bool
) -> None:
    agent, gate = talks(), Gate()

    async def set_mode(process: Process, params: Json) -> Json:
        await gate.passed()
        if fails:
            raise RpcError(-32603, "no such luck")
        return {}

    agent.script["session/set_mode"] = set_mode
    async with remote_bench(tmp_path, agent) as it:
        session, logins = await it.new(), KnownLogins(it)
        async with page(it, logins, session=session, client=NAME) as phone:
            await phone.has("Edit", "settings")
            server = await phone.told_of("server")
            phone.sends(do="set", kind="mode", choice="auto", was="ask", key="k")
            await until(lambda: gate.reached)
            async with page(it, logins, client=NAME + "-2") as other:
                await other.told_of("may")
                other.sends(do="back", key="k", server=server)
                other.sends(do="here")
                await other.told_of("here")
                assert became(other, "k") == []
                gate.open()
                word, line = await outcome(other, "k")
                assert word == "undone"
                assert ("no such luck" in line) is fails
                assert (line == taps.TOO_LATE) is not fails
                assert await other.told_of("done") is not fails
