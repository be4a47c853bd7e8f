"""The waiter of `--keep`, with real processes: a small program in the bridge's place."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from select import select

import pytest

pytestmark = [pytest.mark.process, pytest.mark.hazard("V7")]

PROGRAM = """
import os, select, signal, sys
from acp_bridge.core.runtime import keep
signal.signal(signal.SIGHUP, signal.SIG_DFL)
waiter = keep.detach()
def say(text):
    os.write(1, f"{text}\\n".encode())
def until_the_waiter_is_gone():
    select.select([waiter], [], [], 20)
    say("alone")
say(os.getpid())
"""


@contextmanager
def kept(code: str, *fds: int) -> Iterator[tuple[subprocess.Popen[bytes], int]]:
    """The waiter, and the id of the process that stands for the bridge."""
    process = subprocess.Popen(
        [sys.executable, "-I", "-c", PROGRAM + code],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        pass_fds=fds,
        start_new_session=True,
    )
    bridge = 0
    try:
        with process:
            try:
                bridge = int(line(process))
                yield process, bridge
            finally:
                process.kill()
    finally:
        with suppress(ProcessLookupError):
            os.kill(bridge or process.pid, signal.SIGKILL)


def line(process: subprocess.Popen[bytes]) -> str:
    """The next line on stdout, within five seconds."""
    assert process.stdout is not None
    found = b""
    while not found.endswith(b"\n"):
        assert select([process.stdout], [], [], 5)[0], f"nothing after {found!r}"
        piece = os.read(process.stdout.fileno(), 1)
        assert piece, f"the end after {found!r}"
        found += piece
    return found.decode().strip()


def test_the_bridge_is_no_child_of_the_waiter_and_has_the_streams_and_a_session_of_its_own() -> (
    None
):
    says = (
        "say(sys.stdin.readline().strip()); say(os.getsid(0)); say(os.getcwd()); say(os.getppid())"
    )
    with kept(f"{says}\nwaiter.let_go(0)") as (process, _):
        assert process.stdin is not None
        process.stdin.write(b"hello\n")
        process.stdin.flush()
        assert line(process) == "hello"
        assert int(line(process)) not in (process.pid, os.getsid(process.pid))
        assert line(process) == "/"
        assert int(line(process)) != process.pid
        assert process.wait(5) == 0


@pytest.mark.parametrize(
    ("ends", "code"),
    [
        ("waiter.let_go(7)", 7),
        ("waiter.let_go(0); waiter.let_go(3)", 0),
        ("os.kill(os.getpid(), signal.SIGKILL)", 1),
        ("os._exit(0)", 1),
    ],
)
def test_the_waiter_ends_with_the_bridge_s_exit_code(ends: str, code: int) -> None:
    with kept(ends) as (process, _):
        assert process.wait(5) == code


@pytest.mark.hazard("V7.3")
def test_a_bridge_that_has_let_go_lives_on_and_the_client_sees_the_end_of_what_it_started() -> None:
    stays = "waiter.let_go(0); os.close(0); os.close(1); signal.pause()"
    with kept(stays) as (process, bridge):
        out, _ = process.communicate(timeout=5)
        assert (process.returncode, out) == (0, b"")
        os.kill(bridge, 0)


@pytest.mark.hazard("V7.1")
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGHUP])
def test_what_ends_the_client_s_process_group_ends_the_waiter_alone_and_the_bridge_sees_it(
    number: signal.Signals,
) -> None:
    with kept("until_the_waiter_is_gone(); signal.pause()") as (process, bridge):
        os.killpg(process.pid, number)
        assert line(process) == "alone"
        assert process.wait(5) != 1
        os.kill(bridge, 0)


def test_stderr_goes_through_the_waiter_while_it_lives_and_nowhere_after() -> None:
    code = """
os.write(2, b"one"); os.write(2, b"two")
until_the_waiter_is_gone()
try:
    os.write(2, b"three")
except BrokenPipeError:
    say("nobody")
"""
    with kept(code) as (process, _):
        assert process.stderr is not None
        assert process.stderr.read(6) == b"onetwo"
        process.kill()
        assert line(process) == "alone"
        assert line(process) == "nobody"


def test_what_is_written_to_stderr_just_before_the_end_is_passed_on() -> None:
    with kept("os.write(2, b'x' * 60_000); waiter.let_go(2)") as (process, _):
        assert process.stderr is not None
        assert len(process.stderr.read()) == 60_000
        assert process.wait(5) == 2


def test_a_client_that_does_not_read_stderr_holds_nobody_up() -> None:
    with kept("os.write(2, b'x' * 1_000_000); say('on'); waiter.let_go(0)") as (process, _):
        assert line(process) == "on"
        assert process.wait(5) == 0


def test_the_bridge_keeps_no_other_descriptor_of_the_client() -> None:
    readable, writable = os.pipe()
    try:
        with kept("until_the_waiter_is_gone()", writable) as (process, _):
            os.close(writable)
            writable = -1
            process.kill()
            assert line(process) == "alone"
            assert select([readable], [], [], 5)[0]
            assert os.read(readable, 1) == b""
    finally:
        os.close(readable)


def test_standard_streams_that_are_closed_do_not_change_the_waiter_s_answer() -> None:
    code = "import os; os.close(0); os.close(1)\n" + PROGRAM.replace("say(os.getpid())", "")
    ended = subprocess.run(
        [sys.executable, "-I", "-c", code + "waiter.let_go(5)"], timeout=10, capture_output=True
    )
    assert ended.returncode == 5


def test_a_stdin_that_is_closed_stays_closed() -> None:
    code = PROGRAM.replace("say(os.getpid())", "os.set_blocking(1, True)")
    code = (
        f"import os; os.close(0)\n{code}"
        + """
try:
    os.fstat(0)
    waiter.let_go(1)
except OSError:
    waiter.let_go(7)
"""
    )
    ended = subprocess.run([sys.executable, "-I", "-c", code], timeout=10, capture_output=True)
    assert ended.returncode == 7
