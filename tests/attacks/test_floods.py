"""Floods of a server that runs as a process: its memory, and whether others still get through.

`make floods` makes all attacks and measures delays to the millisecond; other work on the machine
makes those longer, so here a prompt has ten times as long.
"""

import shutil
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.attacks import floods
from tests.attacks.floods import Attack, Served, guessed

pytestmark = [pytest.mark.process, pytest.mark.slow, pytest.mark.hazard("N1", "V5")]

#: seconds of each flood, and of wrong tokens.
FLOOD, GUESSING = 0.5, 1.0
#: the kinds that are sent, in clear and over TLS; `make floods` sends all.
IN_CLEAR = ("requests", "long-pings", "small-fragments", "binary", "half")
OVER_TLS = ("requests", "half")


@pytest.fixture(params=[False, True], ids=["clear", "tls"])
def it(request: pytest.FixtureRequest) -> Iterator[Served]:
    """A server, over TLS too."""
    if request.param and not shutil.which("openssl"):
        pytest.skip("openssl is not installed")
    with (
        tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder,
        floods.served(Path(folder), tls=request.param) as served,
    ):
        yield served


def test_a_server_stays_small_while_it_is_flooded_and_gives_memory_back_and_others_get_through(
    it: Served,
) -> None:
    tls = bool(it.cafile)
    attacks = [
        *(Attack(kind, False, 16, tls, "after") for kind in (OVER_TLS if tls else IN_CLEAR)),
    ]
    if not tls:
        attacks.append(Attack("requests", True, 16, tls, "page"))
        attacks.append(Attack("half", False, 1, tls, "before"))
    with floods.prompting(it) as other:
        for _ in range(20):
            other.prompt()
        it.rest = floods.settled(it)
        seen = {str(attack): floods.attacked(it, other, attack, FLOOD) for attack in attacks}
    assert all(each.told["answers"].get("101") for each in seen.values()), seen
    assert {name: each.above for name, each in seen.items() if each.above > floods.MOST_ABOVE} == {}
    slow = 10 * floods.MOST_DELAY
    assert {name: each.delays for name, each in seen.items() if each.delay > slow} == {}
    time.sleep(floods.REST)
    assert it.rss() - it.rest < floods.MOST_LEFT


def test_the_user_s_page_and_client_log_in_while_a_process_sends_wrong_tokens() -> None:
    with (
        tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder,
        floods.served(Path(folder), tls=False) as served,
    ):
        for how in floods.GUESSES:
            times, told = guessed(served, how, GUESSING)
            assert told["tried"] > 5, how
            assert len(times) >= 2, how
            assert max(times) < floods.MOST_LOGIN, how
