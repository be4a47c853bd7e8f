"""What loses its guard is adopted and killed; guards, and those that are being started, are not."""

import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.process

ROOT = Path(__file__).parents[3]
#: a process of its own, since whoever adopts kills every child that is no guard
ADOPTING = """
import os, signal, subprocess, threading
from acp_bridge.core.agents.orphans import Orphans
orphans = Orphans()

def sleeper():
    return subprocess.Popen(["sleep", "600"], start_new_session=True)

def orphan(session=True):
    \"\"\"Its parent has ended; returns its pid.\"\"\"
    code = "sleep 600 >/dev/null 2>&1 & echo $!"
    words = ["setsid", "sh", "-c", code] if session else ["sh", "-c", code]
    return int(subprocess.run(words, stdout=subprocess.PIPE).stdout)

def lives(pid):
    try:
        return open(f"/proc/{pid}/stat").read().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False

def children():
    own = str(os.getpid())
    return open(f"/proc/{own}/task/{own}/children").read().split()
"""


def run(code: str) -> str:
    command = [sys.executable, "-c", ADOPTING + code]
    done = subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, timeout=20, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.hazard("P1")
def test_orphans_are_killed_and_collected_and_guards_are_let_be() -> None:
    code = """
orphans.adopt()
guard = orphans.start_guard(sleeper)
left = [orphan(), orphan()]
while orphans.kill():
    pass
print([lives(pid) for pid in left], lives(guard.pid), children() == [str(guard.pid)])
guard.kill()
guard.wait()
orphans.forget_guard(guard.pid)
print(orphans.kill())
"""
    assert run(code) == "[False, False] True True\nFalse\n"


@pytest.mark.hazard("P1")
def test_a_guard_that_is_being_started_is_no_orphan() -> None:
    code = """
orphans.adopt()
begun, go = threading.Event(), threading.Event()

def slowly():
    process = sleeper()
    begun.set()
    go.wait()
    return process

started = []
thread = threading.Thread(target=lambda: started.append(orphans.start_guard(slowly)))
thread.start()
begun.wait()
print(orphans.kill())
go.set()
thread.join()
print(orphans.kill(), lives(started[0].pid))
started[0].kill()
"""
    assert run(code) == "True\nFalse True\n"


@pytest.mark.hazard("P1")
def test_what_the_process_has_started_without_a_guard_is_no_orphan() -> None:
    code = """
orphans.adopt()
other = subprocess.Popen(["sleep", "600"])
print(orphans.kill(), lives(other.pid))
other.kill()
"""
    assert run(code) == "False True\n"


@pytest.mark.hazard("P1")
def test_a_process_that_adopts_nothing_kills_nothing() -> None:
    code = """
other = sleeper()
print(orphans.kill(), lives(other.pid))
other.kill()
"""
    assert run(code) == "False True\n"
