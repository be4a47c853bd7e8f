"""The limit of open files: raised at the start, and never reached by a session that is opened."""

import os
import resource
import subprocess
import sys

import pytest

from acp_bridge.core.runtime.open_files import OpenFiles, count, limit, raise_limit
from acp_bridge.core.wire.jsonrpc import RpcError

#: what a session takes while it is opened
ONE = 16


def files(most: int, used: int) -> OpenFiles:
    return OpenFiles(lambda: most, lambda: used)


def has_room(room: OpenFiles, live: int = 0, asleep: int = 0) -> bool:
    try:
        with room.claimed(live, asleep):
            return True
    except RpcError:
        return False


@pytest.mark.hazard("P6.3")
@pytest.mark.parametrize(("most", "kept"), [(64, 16), (256, 64), (20_000, 64)])
def test_a_session_is_refused_if_it_needs_what_is_kept_for_others(most: int, kept: int) -> None:
    assert has_room(files(most, most - kept - ONE))
    assert not has_room(files(most, most - kept - ONE + 1))
    with pytest.raises(RpcError, match=f"have {most} files open") as caught:
        files(most, most).claimed(0, 0).__enter__()
    assert caught.value.code == -32603


@pytest.mark.hazard("P6.3")
def test_sessions_that_are_being_opened_and_agents_that_may_start_are_counted() -> None:
    room = files(256, 256 - 64 - 3 * ONE)
    with room.claimed(0, 0), room.claimed(0, 0):
        assert has_room(room)
        assert not has_room(room, asleep=1)
        with room.claimed(0, 0):
            assert not has_room(room)
    assert has_room(room, asleep=2)
    assert not has_room(room, asleep=3)


@pytest.mark.hazard("P6")
def test_an_agent_that_waits_for_the_session_has_what_it_takes_open_already() -> None:
    room = files(256, 256 - 64 - ONE + 4)
    assert not has_room(room)
    with room.claimed(0, 0, waits=True):
        pass
    with pytest.raises(RpcError), files(256, 20).claimed(14, 0, waits=True):
        pass


@pytest.mark.hazard("P6.3")
def test_sessions_that_have_not_taken_all_they_will_take_are_counted_as_if_they_had() -> None:
    assert has_room(files(256, 20), live=13)
    assert not has_room(files(256, 20), live=14)


@pytest.mark.hazard("P6.3")
def test_where_not_even_a_look_is_possible_there_is_no_room() -> None:
    def full() -> int:
        raise OSError(24, "Too many open files")

    assert not has_room(OpenFiles(lambda: 256, full))


def test_what_is_open_is_counted() -> None:
    before = count()
    fds = [os.open(os.devnull, os.O_RDONLY) for _ in range(5)]
    assert count() == before + 5
    for fd in fds:
        os.close(fd)
    assert limit() == resource.getrlimit(resource.RLIMIT_NOFILE)[0]


@pytest.mark.process
@pytest.mark.parametrize(
    ("soft", "hard", "raised"), [(100, 200, "200 100"), (100, 100, "100 None"), (50, 70, "70 50")]
)
def test_the_limit_is_raised_as_far_as_it_may_be(soft: int, hard: int, raised: str) -> None:
    code = (
        "import resource; from acp_bridge.core.runtime import open_files;"
        f"resource.setrlimit(resource.RLIMIT_NOFILE, ({soft}, {hard}));"
        "before = open_files.raise_limit(); print(open_files.limit(), before)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=20, check=True
    )
    assert done.stdout.strip() == raised


def test_a_limit_that_is_high_enough_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda which: (1 << 20, 1 << 20))
    assert raise_limit() is None


def test_a_system_that_refuses_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(which: int, limits: tuple[int, int]) -> None:
        raise ValueError("not allowed to raise maximum limit")

    monkeypatch.setattr(resource, "getrlimit", lambda which: (10, resource.RLIM_INFINITY))
    monkeypatch.setattr(resource, "setrlimit", refuse)
    assert raise_limit() is None
