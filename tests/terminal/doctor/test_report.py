"""The report: its lines, its JSON, its exit code, and what is masked in it."""

import json
import threading
from pathlib import Path

import anyio
import pytest

from acp_bridge.core.keys.masking import Mask
from acp_bridge.terminal.doctor.examination import examine
from acp_bridge.terminal.doctor.findings import (
    Finding,
    Silent,
    Subject,
    error,
    from_disk,
    ok,
    warning,
)
from acp_bridge.terminal.doctor.report import Section, as_json, as_text, exit_code, summary
from tests.terminal.doctor.subjects import subject

OK, WARNING, ERROR = (
    Section("a", (ok("well"),)),
    Section("b", (ok("well"), warning("so so", "do this"))),
    Section("c", (error("bad"), ok("well"))),
)
NOTHING = Mask([])
SECRET = "s3cret-value"


@pytest.mark.parametrize(
    ("sections", "strict", "code"),
    [
        ([], True, 0),
        ([OK], True, 0),
        ([OK, WARNING], False, 0),
        ([OK, WARNING], True, 1),
        ([WARNING, ERROR, OK], False, 2),
        ([WARNING, ERROR, OK], True, 2),
    ],
)
def test_the_exit_code_is_that_of_the_worst(
    sections: list[Section], strict: bool, code: int
) -> None:
    assert exit_code(sections, strict=strict) == code
    assert as_json(sections, NOTHING, strict=strict)["exitCode"] == code


def test_an_area_has_a_line_for_each_finding_and_what_to_do_below_it() -> None:
    assert as_text(WARNING, NOTHING, 80).splitlines() == [
        "b",
        "  ok       well",
        "  warning  so so",
        "        -> do this",
    ]


def test_long_texts_are_wrapped_and_lines_of_others_stay_apart_and_harmless() -> None:
    section = Section("a", (ok("word " * 20), ok("the end:\n  one\x1b[31m\n  two")))
    lines = as_text(section, NOTHING, 40).splitlines()
    assert max(map(len, lines)) <= 40
    assert lines[-2:] == [" " * 13 + "one\\x1b[31m", " " * 13 + "two"]


def test_the_last_line_counts() -> None:
    assert summary([OK]) == "All is well.\n"
    assert summary([OK, WARNING, WARNING, ERROR]) == "1 error, 2 warnings.\n"


def test_json_has_every_finding_with_its_data() -> None:
    found = as_json(
        [Section("a", (Finding(warning("").level, "t", "", {"ms": 1}),))], NOTHING, strict=False
    )
    assert found["level"] == "warning"
    assert found["findings"] == [
        {"area": "a", "level": "warning", "text": "t", "next": None, "data": {"ms": 1}}
    ]


def test_no_secret_is_in_text_or_json_wherever_it_stands() -> None:
    mask = Mask([SECRET])
    section = Section("a", (error(f"x{SECRET}", f"y{SECRET}", z=[{SECRET: SECRET}]),))
    assert SECRET not in as_text(section, mask, None)
    assert SECRET not in json.dumps(as_json([section], mask, strict=False))


def test_what_is_secret_in_the_environment_and_all_in_the_file_of_keys_is_masked(
    tmp_path: Path,
) -> None:
    (tmp_path / "keys.env").write_text("A_KEY='of the file'\nbare-line-key\n")
    env = {"MY_TOKEN": "t" * 9, "PWD": "/a/folder", "SSH_AUTH_SOCK": "/tmp/agent", "HOME": "/h/me"}
    mask = Mask.of(env, tmp_path)
    told = mask.text(f"of the file|bare-line-key|{'t' * 9}|/a/folder|/tmp/agent|/h/me/x|/h/mess")
    assert told == "***|***|***|/a/folder|/tmp/agent|~/x|/h/mess"


def test_secrets_among_the_arguments_of_a_command_are_masked(tmp_path: Path) -> None:
    words = ["env", "A_TOKEN=of-the-token", "x", "--api-key", "of-the-key", "--keys=several-ones"]
    mask = Mask.of({}, tmp_path, [*words, "--model", "an-ordinary-word", "--auth"])
    told = mask.text("of-the-token of-the-key several-ones an-ordinary-word")
    assert told == "*** *** *** an-ordinary-word"


def test_a_secret_of_several_lines_is_masked_line_by_line() -> None:
    assert Mask(["first-line\nsecond-line"]).text("a first-line b second-line") == "a *** b ***"


def test_what_looks_like_a_key_is_masked_though_nobody_knows_it() -> None:
    key = "sk-" + "0123456789abcdef"
    assert key[3:] not in NOTHING.text(f"bad key {key}")


async def test_a_disk_that_does_not_answer_is_given_up_and_its_thread_holds_up_no_end() -> None:
    begun, go, threads = threading.Event(), threading.Event(), list[threading.Thread]()

    def hangs() -> None:
        threads.append(threading.current_thread())
        begun.set()
        go.wait()

    with pytest.raises(Silent, match=r"within 0\.01 s"):
        await from_disk(hangs, 0.01)
    with anyio.fail_after(5):
        await anyio.to_thread.run_sync(begun.wait)
        assert threads[0].daemon
        go.set()
        await anyio.to_thread.run_sync(threads[0].join)


async def test_what_a_look_at_a_disk_returns_and_raises_comes_out() -> None:
    def fails() -> None:
        raise FileNotFoundError("x")

    assert await from_disk(lambda: 7, 5) == 7
    with pytest.raises(FileNotFoundError):
        await from_disk(fails, 5)


async def test_a_check_that_fails_is_a_finding_and_hinders_no_other(tmp_path: Path) -> None:
    async def fails(subject: Subject) -> list[Finding]:
        raise ZeroDivisionError(SECRET)

    async def works(subject: Subject) -> list[Finding]:
        return [ok("well")]

    checks = (("a", fails), ("b", works))
    first, second = [each async for each in examine(subject(tmp_path), checks)]
    assert first.findings[0].level is ERROR.findings[0].level
    assert SECRET not in first.findings[0].text
    assert second.findings == (ok("well"),)
