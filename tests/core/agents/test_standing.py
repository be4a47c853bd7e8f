"""Requests that every process is told: what is kept, what replaces what, what is repeated."""

from typing import Any

import anyio
import pytest

from acp_bridge.core.agents.standing import StandingRequests, carries_credentials, sets_something
from acp_bridge.core.protocol import AUTHENTICATE, LOGOUT, PROVIDERS_DISABLE, PROVIDERS_SET
from acp_bridge.core.wire.jsonrpc import RpcError

Json = dict[str, Any]
LOGIN: Json = {"methodId": "gateway", "_meta": {"gateway": {"baseUrl": "https://x"}}}
A: Json = {"providerId": "a", "baseUrl": "https://a"}
B: Json = {"providerId": "b", "baseUrl": "https://b"}

pytestmark = pytest.mark.hazard("R14")


class Process:
    """A process that grants everything but what it `refuses`, or never answers a `deaf` one."""

    name = "agent"

    def __init__(self, *, refuses: str = "", deaf: str = "") -> None:
        self.refuses = refuses
        self.deaf = deaf
        self.told: list[tuple[str, Json]] = []
        #: noted by the client while the process is told of this method.
        self.meanwhile: dict[str, tuple[str, Json]] = {}
        self.standing: StandingRequests | None = None

    async def ask(self, method: str, params: Json) -> object:
        self.told.append((method, params))
        if self.standing and (more := self.meanwhile.pop(method, None)):
            self.standing.note(*more)
        if method == self.deaf:
            await anyio.sleep_forever()
        if method == self.refuses:
            raise RpcError(-32603, "no")
        return {}


async def repeated(standing: StandingRequests, process: Process | None = None) -> list[Any]:
    process = process or Process()
    process.standing = standing
    with anyio.fail_after(5):
        await standing.repeat(process)
    return process.told


@pytest.mark.hazard("R14.1")
async def test_they_are_repeated_in_the_order_in_which_they_were_given() -> None:
    standing = StandingRequests(60)
    standing.note(PROVIDERS_SET, A)
    standing.note(AUTHENTICATE, LOGIN)
    standing.note(PROVIDERS_SET, B)
    assert await repeated(standing) == [
        (PROVIDERS_SET, A),
        (AUTHENTICATE, LOGIN),
        (PROVIDERS_SET, B),
    ]


async def test_a_later_one_takes_the_place_of_an_earlier_one_about_the_same() -> None:
    standing = StandingRequests(60)
    standing.note(PROVIDERS_SET, A)
    standing.note(PROVIDERS_SET, B)
    standing.note(PROVIDERS_DISABLE, {"providerId": "a"})
    standing.note(AUTHENTICATE, LOGIN)
    standing.note(AUTHENTICATE, {"methodId": "key", "key": "abc"})
    standing.note("_x/set_theme", {"name": "light"})
    standing.note("_x/set_theme", {"name": "dark"})
    standing.note("_x/set_size", {"id": "dark"})
    assert await repeated(standing) == [
        (PROVIDERS_SET, B),
        (PROVIDERS_DISABLE, {"providerId": "a"}),
        (AUTHENTICATE, {"methodId": "key", "key": "abc"}),
        ("_x/set_theme", {"name": "dark"}),
        ("_x/set_size", {"id": "dark"}),
    ]


@pytest.mark.hazard("R14.5")
@pytest.mark.parametrize("forgets", [(LOGOUT, {}), (AUTHENTICATE, {"methodId": "browser"})])
async def test_a_logout_or_an_interactive_login_ends_the_login_that_was_kept(
    forgets: tuple[str, Json],
) -> None:
    standing = StandingRequests(60)
    standing.note(AUTHENTICATE, LOGIN)
    standing.note(PROVIDERS_SET, A)
    standing.note(*forgets)
    assert await repeated(standing) == [(PROVIDERS_SET, A)]


async def test_what_is_given_while_a_process_is_told_the_rest_is_told_too() -> None:
    standing, process = StandingRequests(60), Process()
    standing.note(AUTHENTICATE, LOGIN)
    standing.note(PROVIDERS_SET, A)
    process.meanwhile[PROVIDERS_SET] = (PROVIDERS_SET, B)
    told = await repeated(standing, process)
    assert told == [(AUTHENTICATE, LOGIN), (PROVIDERS_SET, A), (PROVIDERS_SET, B)]


async def test_a_logout_reaches_a_process_that_is_just_being_told_the_login() -> None:
    standing, process = StandingRequests(60), Process()
    standing.note(AUTHENTICATE, LOGIN)
    standing.note(PROVIDERS_SET, A)
    process.meanwhile[AUTHENTICATE] = (LOGOUT, {})
    assert await repeated(standing, process) == [
        (AUTHENTICATE, LOGIN),
        (LOGOUT, {}),
        (PROVIDERS_SET, A),
    ]


async def test_a_login_after_a_logout_is_told_again_though_it_is_the_same() -> None:
    standing, process = StandingRequests(60), Process()
    standing.note(AUTHENTICATE, LOGIN)
    process.meanwhile[AUTHENTICATE] = (LOGOUT, {})
    process.meanwhile[LOGOUT] = (AUTHENTICATE, LOGIN)
    told = await repeated(standing, process)
    assert told == [(AUTHENTICATE, LOGIN), (LOGOUT, {}), (AUTHENTICATE, LOGIN)]


@pytest.mark.hazard("R14.5")
@pytest.mark.parametrize("when", ["before", "after the rest"])
async def test_a_logout_is_told_to_no_process_that_was_not_logged_in(when: str) -> None:
    standing, process = StandingRequests(60), Process()
    standing.note(PROVIDERS_SET, A)
    if when == "before":
        standing.note(AUTHENTICATE, LOGIN)
        standing.note(LOGOUT, {})
    else:
        process.meanwhile[PROVIDERS_SET] = (LOGOUT, {})
    assert await repeated(standing, process) == [(PROVIDERS_SET, A)]


@pytest.mark.parametrize(
    ("earlier", "later", "kept"),
    [
        ((AUTHENTICATE, LOGIN), (LOGOUT, {}), []),
        ((AUTHENTICATE, LOGIN), (AUTHENTICATE, {"methodId": "browser"}), []),
        ((PROVIDERS_SET, A), (PROVIDERS_DISABLE, {"providerId": "a"}), [PROVIDERS_DISABLE]),
        ((PROVIDERS_SET, A), (PROVIDERS_SET, B), [PROVIDERS_SET, PROVIDERS_SET]),
    ],
)
async def test_of_two_the_one_that_was_sent_last_counts_whichever_was_granted_first(
    earlier: tuple[str, Json], later: tuple[str, Json], kept: list[str]
) -> None:
    standing = StandingRequests(60)
    first, second = standing.number(), standing.number()
    assert standing.note(*later, second)
    assert standing.note(*earlier, first) == (len(kept) == 2)
    assert standing.counts(second)
    assert standing.counts(first) == (len(kept) == 2)
    assert [method for method, _ in await repeated(standing)] == kept


@pytest.mark.parametrize("process", [Process(refuses=AUTHENTICATE), Process(deaf=AUTHENTICATE)])
async def test_one_that_is_refused_or_not_answered_keeps_no_other_one_back(
    process: Process,
) -> None:
    standing = StandingRequests(0.01)
    standing.note(AUTHENTICATE, LOGIN)
    standing.note(PROVIDERS_SET, A)
    assert await repeated(standing, process) == [(AUTHENTICATE, LOGIN), (PROVIDERS_SET, A)]


@pytest.mark.hazard("R14.6")
@pytest.mark.parametrize(
    ("params", "carries"),
    [
        ({"methodId": "m"}, False),
        ({"methodId": "m", "_meta": None}, False),
        ({"methodId": "m", "_meta": {}, "args": [], "token": ""}, False),
        ({"methodId": "m", "_meta": {"k": 1}}, True),
        ({"methodId": "m", "token": "x"}, True),
        ({"methodId": "m", "n": 0}, True),
    ],
)
def test_a_login_that_carries_no_more_than_its_method_is_interactive(
    params: Json, carries: bool
) -> None:
    assert carries_credentials(params) is carries


@pytest.mark.parametrize(
    ("method", "sets"),
    [
        (PROVIDERS_SET, True),
        (PROVIDERS_DISABLE, True),
        ("_x/set_model", True),
        ("_x/y/enable", True),
        ("_configure", False),
        ("configure", True),
        ("providers/list", False),
        ("_x/settings", False),
        ("_x/get", False),
    ],
)
def test_a_request_is_known_by_its_verb_as_one_that_sets_something(method: str, sets: bool) -> None:
    assert sets_something(method) is sets
