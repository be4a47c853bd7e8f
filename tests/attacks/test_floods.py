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

SECONDS = 2.0


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
        *(Attack(kind, False, 16, tls, "after") for kind in floods.KINDS),
        *(Attack(kind, True, 16, tls, "page") for kind in ("requests", "small-fragments")),
        *(Attack(kind, False, 1, tls, "before") for kind in ("long-pings", "half")),
    ]
    with floods.prompting(it) as other:
        for _ in range(20):
            other.prompt()
        it.rest = floods.settled(it)
        seen = {str(attack): floods.attacked(it, other, attack, SECONDS) for attack in attacks}
    assert all(each.told["answers"].get("101") for each in seen.values()), seen
    assert {name: each.above for name, each in seen.items() if each.above > floods.MOST_ABOVE} == {}
    slow = 10 * floods.MOST_DELAY
    assert {name: each.delays for name, each in seen.items() if each.delay > slow} == {}
    time.sleep(floods.REST)
    assert it.rss() - it.rest < floods.MOST_LEFT


@pytest.mark.parametrize("how", floods.GUESSES)
def test_the_user_s_page_and_client_log_in_while_a_process_sends_wrong_tokens(how: str) -> None:
    with (
        tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder,
        floods.served(Path(folder), tls=False) as served,
    ):
        times, told = guessed(served, how, SECONDS)
        assert told["tried"] > 20
        assert len(times) > 2
        assert max(times) < floods.MOST_LOGIN
