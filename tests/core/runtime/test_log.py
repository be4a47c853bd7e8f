"""The log: one line an event, nothing secret in it."""

import asyncio
import errno
import io
import logging
import os
import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import anyio
import anyio.abc
import pytest

from acp_bridge.core.runtime import log


@pytest.fixture
def written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.setattr(logging, "lastResort", logging.lastResort)
    file = tmp_path / "bridge.log"
    log.configure("debug", file)
    yield file
    for handler in log.logger.handlers[:]:
        handler.close()
        log.logger.removeHandler(handler)
    log.logger.propagate = True
    log.logger.setLevel(logging.NOTSET)


@pytest.mark.hazard("K5.1")
@pytest.mark.parametrize(
    "text",
    [
        "OPENAI_API_KEY=sk-verysecretvalue",
        'headers {"Authorization": "Bearer verysecretvalue"}',
        "Authorization: Bearer verysecretvalue",
        "token: verysecretvalue",
        "PASSWORD = 'verysecretvalue'",
        "bare sk-verysecretvalue in the middle",
        "bare acpb_verysecretvalue in the middle",
        "Authorization: Basic verysecretvalue",
        '{\\"Authorization\\": \\"Basic verysecretvalue\\"}',
        '{\\"api_key\\": \\"verysecretvalue\\"}',
        "DefaultEndpointsProtocol=https;AccountKey=verysecretvalue==;EndpointSuffix=x",
        "https://hooks.slack.com/services/T0/B0/verysecretvalue",
        "https://discord.com/api/webhooks/1/verysecretvalue",
        "postgres://me:verysecretvalue@db.example.org",
        "-----BEGIN PRIVATE KEY-----\nMIIE\nverysecretvalue\n-----END PRIVATE KEY-----",
        "-----BEGIN RSA PRIVATE KEY-----\\nverysecretvalue",
        "-----BEGIN PGP PRIVATE KEY BLOCK-----\nverysecretvalue",
        "aws_secret_access_key = verysecretvalue",
        "passwd=verysecretvalue",
        "clone https://verysecretvalueofatoken@forge.example.org/x.git",
        *(f"bare {kind}verysecretvalue1" for kind in ("hf_", "npm_", "gsk_", "xai-", "sk_live_")),
        "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0In0.verysecretvalue",
    ],
)
def test_what_looks_like_a_key_is_masked_in_every_line(written: Path, text: str) -> None:
    log.event("agent.stderr", agent="x", text=text)
    log.logger.error("error %s", text)
    try:
        raise ValueError(text)
    except ValueError as exc:
        log.logger.error("error id=1", exc_info=exc)
    said = written.read_text()
    assert said.count("***") >= 3
    assert "verysecretvalue" not in said


def test_an_event_is_one_line_whatever_is_in_it(written: Path) -> None:
    log.event("agent.stderr", agent="x", text="two\nlines", nothing=None)
    try:
        raise ValueError("two\nlines")
    except ValueError as exc:
        log.logger.error("error", exc_info=exc)
    lines = written.read_text().splitlines()
    assert len(lines) == 2
    assert "nothing" not in lines[0]


def test_of_a_text_without_end_the_beginning_is_logged_without_the_secrets_in_it(
    written: Path,
) -> None:
    log.event("agent.refused", what=f"token: verysecretvalue {'a ' * 1_000_000}end")
    said = written.read_text()
    assert len(said) < 30_000
    assert "token: *** a a" in said
    assert "..." in said


def test_what_agents_print_is_logged_for_debugging_only(written: Path) -> None:
    log.logger.setLevel(logging.INFO)
    log.event("agent.stderr", agent="x", text="private")
    log.event("agent.exited", agent="x", how="exit code 0")
    assert [line.split()[3] for line in written.read_text().splitlines()] == ["agent.exited"]


def test_what_libraries_log_is_written_and_masked_too(
    written: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(logging.getLogger(), "handlers", [])  # nobody else takes it
    logging.getLogger("asyncio").warning("it failed: token=verysecretvalue")
    assert written.read_text().endswith(" WARNING it failed: token=***\n")


def test_the_log_file_is_the_users_alone(written: Path) -> None:
    assert written.stat().st_mode & 0o777 == 0o600


@pytest.mark.hazard("C4")
def test_a_log_that_nobody_reads_holds_up_nothing_and_goes_on_when_somebody_does() -> None:
    readable, writable = os.pipe()
    logger = logging.Logger("unread")
    logger.addHandler(log.StderrHandler(writable))

    def write() -> None:
        for _ in range(1000):
            logger.warning("x" * 5000)

    thread = threading.Thread(target=write)
    thread.start()
    thread.join(5)
    held_up = thread.is_alive()
    lines = b""
    if not held_up:
        lines = os.read(readable, 1 << 20)
        logger.warning("read again")
        lines += os.read(readable, 1 << 20)
    os.close(readable)  # which ends a write that waits
    thread.join(5)
    logger.warning("nobody is there")
    os.close(writable)
    assert not held_up
    assert set(lines.splitlines()) >= {b"x" * 5000, b"read again"}


class Full(io.TextIOWrapper):
    """A file on a full disk."""

    def write(self, text: str) -> int:
        raise OSError(errno.ENOSPC, "no space left")


def test_a_full_disk_under_the_log_file_is_not_told_on_stderr(
    written: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    handler = log.logger.handlers[0]
    assert isinstance(handler, logging.FileHandler)
    handler.close()
    handler.setStream(Full(io.BytesIO()))
    log.event("agent.exited", agent="x", how="exit code 0")
    assert capsys.readouterr().err == ""


@pytest.fixture
def rotated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(log, "_MOST", 1000)
    return tmp_path / "home" / "bridge.log"


def logger_to(file: Path) -> logging.Logger:
    logger = logging.Logger("rotated")
    logger.addHandler(log.RotatedFile(file))
    logger.handlers[0].setFormatter(log._Formatter("%(message)s"))
    return logger


@pytest.mark.hazard("K5")
def test_a_full_log_is_set_aside_once_whoever_of_several_bridges_sees_it(rotated: Path) -> None:
    bridges = [logger_to(rotated) for _ in range(3)]
    for number in range(30):
        bridges[number % 3].warning("%d token=verysecretvalue %s", number, "x" * 50)
    before, now = rotated.with_name("bridge.log.1"), rotated
    lines = (before.read_text() + now.read_text()).splitlines()
    assert [line.partition(" ")[0] for line in lines] == [str(each) for each in range(30)]
    assert all("token=*** " in line for line in lines)
    assert before.stat().st_size > 1000 > now.stat().st_size
    assert {path.name for path in rotated.parent.iterdir()} == {"bridge.log", "bridge.log.1"}
    for path in (before, now):
        assert path.stat().st_mode & 0o777 == 0o600
    for bridge in bridges:
        bridge.handlers[0].close()


def test_a_log_that_was_removed_is_begun_anew_and_one_that_can_not_be_costs_its_lines(
    rotated: Path,
) -> None:
    logger = logger_to(rotated)
    rotated.unlink()
    logger.warning("one")
    assert rotated.read_text() == "one\n"
    rotated.unlink()
    rotated.parent.rmdir()
    logger.warning("two")
    rotated.parent.mkdir()
    logger.warning("three")
    assert rotated.read_text() == "three\n"
    logger.handlers[0].close()


@pytest.mark.parametrize("what", ["link", "pipe", "folder"])
def test_what_an_agent_put_in_the_place_of_the_log_is_not_written_to(
    rotated: Path, what: str, tmp_path: Path
) -> None:
    rotated.parent.mkdir()
    if what == "link":
        rotated.symlink_to(tmp_path / "bashrc")
    elif what == "pipe":
        os.mkfifo(rotated)
    else:
        rotated.mkdir()
    with pytest.raises(OSError):  # noqa: PT011 - each has another number
        log.RotatedFile(rotated)
    assert not (tmp_path / "bashrc").exists()


class Records(logging.Handler):
    def __init__(self) -> None:
        super().__init__()
        self.said: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.said.append(record.getMessage())


@pytest.mark.usefixtures("written")
def test_a_read_that_is_cancelled_as_its_bytes_come_is_no_error() -> None:
    async def race() -> None:
        ours, theirs = socket.socketpair()
        with theirs, anyio.fail_after(5):
            stream = await anyio.abc.UNIXSocketStream.from_socket(ours)
            async with stream, anyio.create_task_group() as tasks:
                tasks.start_soon(stream.receive)
                await anyio.wait_all_tasks_blocked()
                loop = asyncio.get_running_loop()
                # The next round of the loop cancels the read before it looks at the byte.
                loop.call_soon(tasks.cancel_scope.cancel)
                theirs.send(b"x")
            loop.call_exception_handler({"message": "another"})

    records = Records()
    logging.getLogger("asyncio").addHandler(records)
    try:
        anyio.run(race)
    finally:
        logging.getLogger("asyncio").removeHandler(records)
    assert records.said == ["another"]
