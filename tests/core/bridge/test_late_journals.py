"""What holds whenever clients come and go holds with a journal that makes its writes later, too."""

from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

import anyio
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.core.bridge import test_lagging, test_transcripts
from tests.core.bridge.test_cursors import TEXTS
from tests.support.in_memory import MEMORY
from tests.support.late_journal import late_journals

Numbers = st.integers(0, 9)


def played(play: Callable[..., Awaitable[None]], events: object) -> None:
    """Play events in a bridge whose journals are late."""
    with TemporaryDirectory(dir=MEMORY) as home, late_journals():
        anyio.run(partial(play, events, Path(home)))


@pytest.mark.hazard("V1", "V2", "T2")
@settings(max_examples=10)
@given(st.lists(st.tuples(st.sampled_from(test_transcripts.EVENTS), Numbers), max_size=25))
def test_all_clients_have_the_same_whenever_they_came(events: list[tuple[str, int]]) -> None:
    played(test_transcripts.play, events)


@pytest.mark.hazard("N5.1")
@settings(max_examples=10)
@given(st.lists(st.tuples(st.sampled_from(test_lagging.EVENTS), Numbers, TEXTS), max_size=25))
def test_whoever_is_slow_or_cut_off_has_what_a_load_shows(
    events: list[tuple[str, int, str]],
) -> None:
    played(test_lagging.play, events)
