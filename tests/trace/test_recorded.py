"""The traces that are kept in fixtures/traces."""

from pathlib import Path

import pytest

from acp_bridge.core.runtime.log import masked
from tests.support.trace_reader import read_trace

FILES = sorted((Path(__file__).parents[2] / "fixtures" / "traces").glob("*.jsons"))


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_a_trace_that_is_kept_is_whole_and_names_neither_a_secret_nor_a_place(file: Path) -> None:
    trace, text = read_trace(file), file.read_text()
    assert trace.answers("session/prompt", "Agent")
    assert masked(text) == text
    assert not [place for place in ("/tmp/", "/home/", "/root", "/var/") if place in text]
    assert len(text) < 60_000
