"""The door: which request comes in, and with which answer any other is sent away."""

import hmac
from http import HTTPStatus
from pathlib import Path
from typing import Any

import pytest

from acp_bridge.core.clients.rights import May
from acp_bridge.remote.serve import address, tokens
from acp_bridge.remote.serve.door import FAILURES, WITHIN, Door, Looks, Refusal, Stranger, Wrong
from acp_bridge.remote.serve.tokens import Token, new_secret, new_token

SECRET = new_secret()
TOKEN = new_token("laptop", May.ALL, SECRET)
LOCAL = address.Address("127.0.0.1", 8765)
BEARER = {"Authorization": f"Bearer {SECRET}"}


class Header(dict[str, Any]):
    """A header; a list is one that stands there several times."""

    def get_all(self, key: str) -> list[str]:
        found = self.get(key, [])
        return found if isinstance(found, list) else [found]


def door(where: address.Address = LOCAL, certified: Any = (), origin: str | None = None) -> Door:
    def find(secret: str) -> Token | None:
        return TOKEN if tokens.digest(secret) == TOKEN.hash else None

    return Door(address.names(where, frozenset(certified), origin), find)


def ask(at: Door, path: str = "/acp", now: float = 0.0, who: str = "192.0.2.1", **more: Any) -> Any:
    header = {"Host": "127.0.0.1:8765", **BEARER, **more}
    given = Header({key: value for key, value in header.items() if value is not None})
    found = at.answer(path, given, who, now)
    return found.status if isinstance(found, Refusal) else found


@pytest.mark.hazard("N1.1")
def test_who_has_the_token_comes_in_and_no_other() -> None:
    assert ask(door()) == TOKEN
    for wrong in (None, "", "Bearer", "Bearer ", "Bearer acpb_x", f"Basic {SECRET}", SECRET):
        assert ask(door(), Authorization=wrong) == HTTPStatus.UNAUTHORIZED
    assert ask(door(), Authorization=[f"Bearer {SECRET}"] * 2) == HTTPStatus.UNAUTHORIZED


@pytest.mark.parametrize("path", ["/", "/acp/", "/acp?token=x", "/ACP", "acp", ""])
def test_any_other_path_is_not_found_whatever_the_token(path: str) -> None:
    assert ask(door(), path) == HTTPStatus.NOT_FOUND


@pytest.mark.hazard("N1")
def test_health_says_ok_without_a_token_and_nothing_else() -> None:
    found = door().answer("/health", Header(Host="127.0.0.1:8765"), "192.0.2.1", 0)
    assert found == Refusal(HTTPStatus.OK, "ok", {})


@pytest.mark.hazard("N1.2")
@pytest.mark.parametrize(
    "host",
    [
        None,
        "",
        "evil.example",
        "evil.example:8765",
        "127.0.0.1",
        "127.0.0.1:80",
        "127.0.0.1:8765.evil.example",
        "192.0.2.7:8765",
        "localhost:8765",
        "LOCALHOST:8765",
        "[::1]:8765",
        ["127.0.0.1:8765", "evil.example"],
    ],
)
def test_another_host_is_misdirected_before_anything_is_said(host: Any) -> None:
    for path in ("/acp", "/health", "/nothing"):
        assert ask(door(), path, Host=host) == HTTPStatus.MISDIRECTED_REQUEST


def test_the_address_on_which_it_listens_is_the_server_s_name() -> None:
    assert ask(door(), Host="127.0.0.1:8765") == TOKEN
    assert ask(door(address.read("[::1]:8765")), Host="[::1]:8765") == TOKEN
    assert ask(door(address.read("localhost:8765")), Host="127.0.0.1:8765") == TOKEN


def test_the_names_of_a_certificate_are_the_server_s_with_a_star_for_one_label() -> None:
    at = door(address.Address("0.0.0.0", 443), ["bridge.example.org", "*.home.example"])
    for host in ("bridge.example.org", "bridge.example.org:443", "a.home.example"):
        assert ask(at, Host=host) == TOKEN
    for host in ("example.org", "a.b.home.example", "home.example", "localhost"):
        assert ask(at, Host=host) == HTTPStatus.MISDIRECTED_REQUEST


def test_behind_a_proxy_its_origin_names_the_server_beside_the_bound_address() -> None:
    for where in (LOCAL, address.Address("", 0, Path("/run/x"))):
        at = door(where, origin="https://bridge.example.org")
        assert ask(at, Host="bridge.example.org") == TOKEN
        assert ask(at, Host="bridge.example.org:443") == TOKEN
        assert ask(at, Host="evil.example.org") == HTTPStatus.MISDIRECTED_REQUEST
    assert ask(at, Host="localhost") == TOKEN  # as nginx says it


@pytest.mark.hazard("N1.2")
@pytest.mark.parametrize(
    "origin",
    [
        "https://evil.example",
        "null",
        "",
        "http://127.0.0.1:8766",
        "http://127.0.0.1",
        "https://127.0.0.1:8765",
        "http://localhost:8765",
        ["http://127.0.0.1:8765", "http://127.0.0.1:8765"],
    ],
)
def test_a_page_of_another_origin_or_port_does_not_come_in_even_with_a_token(origin: Any) -> None:
    assert ask(door(), Origin=origin) == HTTPStatus.FORBIDDEN


def test_the_server_s_own_page_passes_and_still_needs_a_token() -> None:
    assert ask(door(), Origin="http://127.0.0.1:8765") == TOKEN
    own = "http://127.0.0.1:8765"
    assert ask(door(), Origin=own, Authorization=None) == HTTPStatus.UNAUTHORIZED
    at = door(address.Address("0.0.0.0", 443), ["bridge.example.org"])
    assert ask(at, Host="bridge.example.org", Origin="https://bridge.example.org") == TOKEN


@pytest.mark.hazard("N1.2")
def test_behind_a_proxy_the_named_origin_alone_is_the_page_s() -> None:
    at = door(origin="https://bridge.example.org")
    assert ask(at, Origin="https://bridge.example.org", Host="bridge.example.org") == TOKEN
    assert ask(at, Origin="http://127.0.0.1:8765") == HTTPStatus.FORBIDDEN


@pytest.mark.hazard("N1")
def test_after_ten_wrong_tokens_in_a_minute_an_address_is_told_to_wait() -> None:
    at = door()
    for second in range(FAILURES):
        assert ask(at, now=second, Authorization="Bearer x") == HTTPStatus.UNAUTHORIZED
    assert ask(at, now=FAILURES) == HTTPStatus.TOO_MANY_REQUESTS  # the right one, too
    assert ask(at, now=FAILURES, who="192.0.2.2") == TOKEN
    assert ask(at, now=WITHIN - 0.1) == HTTPStatus.TOO_MANY_REQUESTS
    assert ask(at, now=WITHIN) == TOKEN


def test_what_a_page_elsewhere_can_send_does_not_lock_out_the_user() -> None:
    at = door()
    for _ in range(2 * FAILURES):
        ask(at, Authorization=None)
        ask(at, Origin="https://evil.example", Authorization="Bearer x")
        ask(at, Host="evil.example", Authorization="Bearer x")
        ask(at, "/health")
    assert ask(at) == TOKEN


def test_all_addresses_of_an_ipv6_network_count_as_one_and_old_ones_are_forgotten() -> None:
    at = door()
    for number in range(FAILURES):
        ask(at, who=f"2001:db8::{number}", Authorization="Bearer x")
    assert ask(at, who="2001:db8::ffff") == HTTPStatus.TOO_MANY_REQUESTS
    assert ask(at, who="2001:db8:1::1") == TOKEN
    assert ask(at, who="::ffff:192.0.2.1") == TOKEN
    for number in range(1000):
        ask(at, who=f"10.0.{number // 250}.{number % 250}", Authorization="Bearer x")
    assert len(at._failures._times) == 1000
    assert ask(at, who="2001:db8::1") == TOKEN


@pytest.mark.hazard("N1.6")
def test_every_token_is_compared_in_constant_time_whichever_fits(
    home: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    compared = list[str]()
    whole = hmac.compare_digest

    def compare(one: str, other: str) -> bool:
        compared.append(one)
        return whole(one, other)

    monkeypatch.setattr(hmac, "compare_digest", compare)
    with tokens.held(home) as mine:
        secrets = [new_secret() for _ in range(3)]
        for number, secret in enumerate(secrets):
            mine.add(new_token(f"t{number}", May.LOOK, secret))
        for secret in (*secrets, "x", "\udc80", "é" * 10_000):
            mine.find(secret)
    assert compared == [each.hash for each in mine.all] * 6


def file(path: str) -> Refusal | None:
    return Refusal(HTTPStatus.OK, "a file", {}) if path == "/" else None


@pytest.mark.hazard("N1", "S30")
def test_a_page_comes_from_this_server_s_own_origin_and_proves_its_login_afterwards() -> None:
    names = address.names(LOCAL, frozenset[str](), None)
    at = Door(names, lambda _: None, file)
    own = "http://127.0.0.1:8765"
    assert ask(at, "/", Authorization=None) == HTTPStatus.OK
    assert ask(at, "/", Authorization=None, Host="evil.example") == HTTPStatus.MISDIRECTED_REQUEST
    assert ask(at, "/page", Authorization=None, Origin=own) == Stranger()
    for other in (None, "http://127.0.0.1:9999", "null", "https://127.0.0.1:8765", [own, own]):
        assert ask(at, "/page", Authorization=None, Origin=other) == HTTPStatus.FORBIDDEN
    for _ in range(FAILURES):
        at.failed("192.0.2.1", 0)
    assert ask(at, "/page", Origin=own) == HTTPStatus.TOO_MANY_REQUESTS
    assert ask(at, "/page", Origin=own, now=WITHIN) == Stranger()


@pytest.mark.hazard("N1")
def test_of_this_machine_it_is_told_later_whom_a_wrong_token_counts_against() -> None:
    at, wrong = door(), {"Authorization": "Bearer x"}
    header = Header({"Host": "127.0.0.1:8765", **wrong})
    found = at.answer("/acp", header, None, 0)
    assert isinstance(found, Wrong)
    for _ in range(3 * FAILURES):
        assert at.answer("/acp", header, None, 0) == found
    for _ in range(FAILURES):
        assert at.wrong(found, "process 12 345", 0).status == HTTPStatus.UNAUTHORIZED
    assert at.wrong(found, "process 12 345", 0).status == HTTPStatus.TOO_MANY_REQUESTS
    assert at.wrong(found, "process 12 346", 0).status == HTTPStatus.UNAUTHORIZED
    assert at.too_many("process 12 345", WITHIN) is None
    assert at.answer("/acp", Header({"Host": "127.0.0.1:8765", **BEARER}), None, 0) == TOKEN


def test_a_wrong_token_of_nobody_knows_whom_counts_for_nobody_and_none_at_all_is_not_counted() -> (
    None
):
    at = door()
    for _ in range(2 * FAILURES):
        assert at.wrong(Wrong("no"), None, 0).status == HTTPStatus.TOO_MANY_REQUESTS
        none = at.answer("/acp", Header(Host="127.0.0.1:8765"), None, 0)
        assert isinstance(none, Wrong)
        assert at.wrong(none, None, 0).status == HTTPStatus.UNAUTHORIZED
    assert not at.has_failures_here


def test_processes_of_this_machine_do_not_have_an_address_forgotten() -> None:
    at = door()
    for _ in range(FAILURES):
        ask(at, Authorization="Bearer x")
    for number in range(3000):
        at.wrong(Wrong("no"), f"process {number} 1", 0)
    assert ask(at) == HTTPStatus.TOO_MANY_REQUESTS


def test_looks_at_those_with_wrong_tokens_take_a_tenth_of_the_time() -> None:
    looks, taken, now = Looks(), 0.0, 1000.0
    while now < 1100.0:
        if looks.may(now):
            looks.took(0.05)
            taken += 0.05
            now += 0.05
        else:
            now += 0.001
    assert taken == pytest.approx(0.1 * 100 + 1, abs=0.1)  # a second was saved up
