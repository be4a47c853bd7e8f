"""What `make fuzz-rules` relies on: its sandbox holds, and it finds each fault that is put back."""

import time
from collections.abc import Iterator

import pytest

from tests.fuzz_rules.bench import Bench, a_scratch, work
from tests.fuzz_rules.compare import _words, programs_of
from tests.fuzz_rules.faults import FAULTS
from tests.fuzz_rules.judge import Judge
from tests.fuzz_rules.lines import Lines
from tests.fuzz_rules.sandbox import Sandbox, Unavailable

pytestmark = pytest.mark.hazard("A1")


@pytest.fixture
def scratch() -> Iterator[str]:
    with a_scratch() as made:
        yield made


@pytest.fixture
def sandbox(scratch: str) -> Iterator[Sandbox]:
    try:
        made = Sandbox(scratch)
    except Unavailable as why:
        pytest.skip(f"no sandbox: {why}")
    yield made
    made.close()


def test_lines_follow_from_the_seed_and_a_fifth_of_them_is_allowed(scratch: str) -> None:
    one, other = Lines("1:0"), Lines("1:0")
    lines = [one.line() for _ in range(1000)]
    assert lines == [other.line() for _ in range(1000)]
    allowed = sum(map(Judge(scratch).allows, lines))
    assert allowed >= len(lines) / 5


@pytest.mark.parametrize(
    ("traced", "words"),
    [
        ("ls 'a b' ''\nls: error", ["ls", "a b", ""]),
        ("ls 'it'\\''s' $'a\\nb' x\\ y\n", ["ls", "it's", "a\nb", "x y"]),
        ("'[' $'\\303\\274' $'\\M-C\\M-<' ']'\n", ["[", "\xc3\xbc", "\xc3\xbc", "]"]),
    ],
)
def test_a_trace_is_taken_apart_into_the_words_of_a_command(traced: str, words: list[str]) -> None:
    assert _words(traced) == words


@pytest.mark.process
def test_a_line_in_the_sandbox_writes_nowhere_else_and_is_seen(
    sandbox: Sandbox, scratch: str
) -> None:
    line = (
        "echo > /x; echo > /programs/x; echo > /dev/x; ls 'a b'; echo > out/new; echo > ../home/x"
    )
    for ran in sandbox.run(line):
        assert programs_of(ran) == [(f"{scratch}/project", ("ls", "a b"))]
        wrote = {f"{scratch}/project/out/new", f"{scratch}/home/x"}
        assert set(ran.changed) == wrote, ran.shell
        assert ran.trace.lower().count(b"read-only") == 3


@pytest.mark.process
def test_a_line_ends_after_two_seconds_with_all_that_it_has_started(sandbox: Sandbox) -> None:
    began = time.monotonic()
    sandbox.run("f() { f | f & f; }; f")
    sandbox.run("while :; do :; done")
    assert [programs_of(ran)[0][1] for ran in sandbox.run("ls x")] == [("ls", "x")] * 3
    assert time.monotonic() - began < 60


@pytest.mark.process
def test_a_line_runs_as_nobody_without_network_and_processes_of_others(sandbox: Sandbox) -> None:
    line = 'echo "$UID"; echo x > /dev/tcp/127.0.0.1/9; kill -9 1; echo /proc/* /home/* /etc/*'
    bash, dash, _ = sandbox.run(line)
    assert b"echo 65534" in bash.trace
    assert b"Network is unreachable" in bash.trace
    for ran in (bash, dash):
        assert b"/proc/* /home/* /etc/*" in ran.trace.replace(b"'", b"")


#: the seeds whose lines show a fault early; of the others, 1:1.
EARLY = {
    "the grammar alone reads a blank, a newline and a backslash": "1:6",
    "the grammar alone reads `<& -push`": "1:4",
    "a bundle of options of which the first is listed": "1:0",
    "any assignment": "1:9",
    "`$f` as a program": "1:0",
    "a here-document ends where its text says": "1:0",
}


@pytest.mark.process
@pytest.mark.slow
@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_that_is_put_back_is_found(fault: str, sandbox: Sandbox) -> None:
    tally = work(EARLY.get(fault, "1:1"), 6000, fault, most=1, shorten=False)
    assert tally.found


@pytest.mark.process
@pytest.mark.slow
def test_a_line_that_differs_is_made_shorter(sandbox: Sandbox) -> None:
    [found] = work("1:0", 6000, "`$f` as a program", most=1).found
    assert len(found.short) < len(found.line)
    assert found.said


@pytest.mark.hazard("A1.2")
@pytest.mark.process
def test_what_the_two_readings_agree_on_is_what_runs(scratch: str, sandbox: Sandbox) -> None:
    bench = Bench(scratch)
    try:
        for line in (
            'cd src && ls *.py | head -2 > ../out/f; for f in "a b" c; do echo "$f $?"; done',
            "timeout 5 sh -c 'git -C src log' && [ -f x ] || CI=1 cat ü.txt",
            "git commit -m \"$(cat <<'EOF'\nit's\nEOF\n)\"",
        ):
            assert bench.judge.allows(line)
            assert bench.differs(line) is None
    finally:
        bench.sandbox.close()
