"""`acp-bridge show --diff`: what a session changed, beside what its folder and git say."""

import json
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest

from acp_bridge.core.journal import Journal
from tests.core.journal.sayings import Params
from tests.terminal.shared.conftest import Said
from tests.terminal.shared.test_looking_back import SESSION, card, decided, session_in, turn


@pytest.fixture
def folder(tmp_path: Path, said: Said) -> Path:
    """The folder of the session, with a file in it."""
    (tmp_path / "project/a.txt").write_text("".join(f"n{number}\n" for number in range(20)))
    return tmp_path / "project"


def git(folder: Path, *words: str, given: str = "") -> str:
    command = ["git", "-c", "user.name=a", "-c", "user.email=a@b", *words]
    done = subprocess.run(
        command, cwd=folder, input=given, capture_output=True, text=True, check=True, timeout=30
    )
    return done.stdout


def committed(folder: Path) -> None:
    git(folder, "init", "-q")
    git(folder, "add", ".")
    git(folder, "commit", "-qm", "first")


def edit(path: Path, old: str | None, new: str, call: str = "", **more: Any) -> Params:
    """An edit of a file that is made now, as its card tells it."""
    if old is not None and path.exists():
        path.write_text(path.read_text().replace(old, new))
    else:
        path.write_text(new)
    diff = {"type": "diff", "path": str(path), "oldText": old, "newText": new}
    return card(call or f"{path}{old}", **{"kind": "edit", "content": [diff], **more})


def notes(text: str) -> list[str]:
    return [line[2:] for line in text.splitlines() if line.startswith("# ")]


async def test_where_only_edit_tools_worked_it_is_the_diff_of_git(
    said: Said, journal: Journal, folder: Path
) -> None:
    (folder / "gone.txt").write_text("gone\n")
    committed(folder)
    session = await session_in(journal, folder)
    whole = (folder / "a.txt").read_text()
    turn(session, edit(folder / "b.txt", None, "b"), edit(folder / "a.txt", "n3\nn4\n", "three\n"))
    now = whole.replace("n3\nn4\n", "three\n")
    turn(session, edit(folder / "a.txt", now, now + "20"))
    gone = edit(folder / "gone.txt", "gone\n", "", kind="delete")
    (folder / "gone.txt").unlink()
    turn(session, gone)
    code, out, err = said("show", "abcd", "--diff")
    assert (code, err) == (0, "")
    git(folder, "add", ".")
    theirs = git(folder, "diff", "--cached", "--no-color")
    # But for the names of blobs, and for the line of a function behind the range of a hunk.
    told = [line for line in theirs.splitlines() if not line.startswith("index ")]
    assert out.splitlines() == [re.sub("^(@@ .* @@).*", r"\1", line) for line in told]
    git(folder, "apply", "--cached", "-R", "--check", "-", given=out)


async def test_one_turn_has_its_own_changes_between_those_of_the_others(
    said: Said, journal: Journal, folder: Path
) -> None:
    session = await session_in(journal, folder)
    for old, new in (("n1\nn2\n", "n1\ntwo\n"), ("two\n", "zwei\n"), ("zwei\n", "deux\n")):
        turn(session, edit(folder / "a.txt", old, new))
    changed = said("show", "abcd", "--diff", "--turn", "2")[1].splitlines()
    assert changed[3] == "@@ -1,6 +1,6 @@"
    assert [line for line in changed[4:] if line[0] in "+-"] == ["-two", "+zwei"]
    assert "-n2\n+deux\n" in said("show", "abcd", "--diff")[1]
    for number in ("9", "-1"):
        code, out, err = said("show", "abcd", "--diff", "--turn", number)
        assert (code, out) == (1, "")
        assert err.startswith(f"acp-bridge show: session abcd1111 has no turn {number}: ")
        assert said("show", "abcd", "--diff", "--json", "--turn", number)[0] == 1
    code, _, err = said("show", "abcd", "--turn", "2")
    assert (code, err.splitlines()[0]) == (2, "acp-bridge show: --turn goes with --diff")


async def test_what_was_refused_or_failed_changes_nothing(
    said: Said, journal: Journal, folder: Path
) -> None:
    session = await session_in(journal, folder)
    content = [{"type": "diff", "path": "a.txt", "oldText": "1", "newText": "2"}]
    turn(
        session,
        card("failed", kind="edit", content=content, status="failed"),
        card("open", kind="edit", content=content, status="in_progress"),
        decided("denied", "deny", "rule"),
        card("denied", kind="edit", content=content),
    )
    assert said("show", "abcd", "--diff")[1] == "# No tool call tells of a change.\n"


async def test_a_change_counts_though_the_calls_end_tells_words_in_its_place(
    said: Said, journal: Journal, folder: Path
) -> None:
    session = await session_in(journal, folder)
    begun = edit(folder / "a.txt", "n19\n", "nineteen\n", "e", status="in_progress")
    words = [{"type": "content", "content": {"type": "text", "text": "done"}}]
    end = {"sessionUpdate": "tool_call_update", "toolCallId": "e", "status": "completed"}
    turn(session, begun, {"update": {**end, "content": words}})
    assert said("show", "abcd", "--diff")[1].endswith("-n19\n+nineteen\n")


async def test_a_file_that_a_calls_input_has_whole_counts_without_a_diff(
    said: Said, journal: Journal, folder: Path
) -> None:
    session = await session_in(journal, folder)
    (folder / "b.txt").write_text("new\n")
    given = {"filePath": str(folder / "b.txt"), "content": "new\n"}
    words = [{"type": "content", "content": {"type": "text", "text": "Wrote file successfully."}}]
    turn(
        session,
        card("w", kind="edit", rawInput=given, content=words),
        card("r", kind="read", rawInput={**given, "filePath": "other"}),
        card("odd", kind="edit", rawInput={"filePath": 3, "content": "x"}),
    )
    assert said("show", "abcd", "--diff")[1].splitlines() == [
        "diff --git a/b.txt b/b.txt",
        "new file mode 100644",
        "--- /dev/null",
        "+++ b/b.txt",
        "@@ -0,0 +1 @@",
        "+new",
    ]
    committed(folder)
    (folder / "b.txt").write_text("newer\n")
    turn(session, card("w2", kind="edit", rawInput={**given, "content": "newer\n"}))
    assert "-new\n+newer\n" in said("show", "abcd", "--diff", "--turn", "2")[1]


async def test_commands_and_calls_that_tell_no_change_are_named_beside_it(
    said: Said, journal: Journal, folder: Path
) -> None:
    committed(folder)
    session = await session_in(journal, folder)
    command = card("c", kind="execute", rawInput={"command": "make\x1b all"})
    moved = card("m", kind="move", locations=[{"path": str(folder / "moved.txt")}])
    (folder / "made.txt").write_text("by make")
    turn(session, edit(folder / "a.txt", "n5\n", "five\n"), command, moved)
    assert notes(said("show", "abcd", "--diff")[1]) == [
        "moved.txt: changed by a tool call that does not tell how",
        "made.txt: changed, and no tool call names it",
        "Commands that were run, and may have changed more:",
        "  make\\x1b all",
    ]


async def test_a_fragment_without_a_place_is_marked_and_git_may_give_it_one(
    said: Said, journal: Journal, folder: Path
) -> None:
    (folder / "a.txt").write_text("a\nb\n")
    session = await session_in(journal, folder)
    change = edit(folder / "a.txt", "b\n", "a\n")
    turn(session, change)
    told = said("show", "abcd", "--diff")[1]
    assert "# a.txt: a fragment without a place\n#   -b\n#   +a\n" in told
    assert "@@" not in told
    (folder / "a.txt").write_text("a\nb\n")
    committed(folder)
    (folder / "a.txt").write_text("a\na\n")
    assert "@@ -1,2 +1,2 @@\n a\n-b\n+a\n" in said("show", "abcd", "--diff")[1]


@pytest.mark.parametrize(
    ("then", "named"),
    [
        ("commit", "a.txt: git shows no change: it is as in the last commit"),
        ("remove", "a.txt: the folder has no such file any more"),
        ("write", "a.txt: the folder has it otherwise than the last of its changes left it"),
        ("bytes", "a.txt: it can't be read as a text, so it was not compared"),
        (
            "before",
            "a.txt: git shows another change: not all since the last commit is the session's",
        ),
    ],
)
async def test_each_difference_to_the_folder_and_to_git_is_named(
    said: Said, journal: Journal, folder: Path, then: str, named: str
) -> None:
    file = folder / "a.txt"
    committed(folder)
    if then == "before":
        file.write_text(file.read_text() + "mine\n")
    session = await session_in(journal, folder)
    turn(session, edit(file, "n7\n", "seven\n"))
    assert (notes(said("show", "abcd", "--diff")[1]) == []) is (then != "before")
    match then:
        case "commit":
            git(folder, "commit", "-qam", "second")
        case "remove":
            file.unlink()
        case "write":
            file.write_text("other\n")
        case "bytes":
            file.write_bytes(b"\xff")
    assert notes(said("show", "abcd", "--diff")[1])[0] == named


@pytest.mark.parametrize("with_git", [False, True])
async def test_what_agents_tell_of_odd_paths_and_texts_hides_nothing(
    said: Said, journal: Journal, folder: Path, with_git: bool
) -> None:
    if with_git:
        committed(folder)
    session = await session_in(journal, folder)
    odd: list[Any] = [
        {"type": "diff", "path": "a\0b\n", "oldText": 3, "newText": "\x1b"},
        {"type": "diff", "path": 7, "newText": []},
        {"type": "diff", "path": "\ud800", "newText": "x"},
        {"type": "diff", "path": str(folder), "oldText": "x", "newText": "y"},
        {"type": "diff", "path": "/dev/stdin", "oldText": "x", "newText": "y"},
        "?",
    ]
    turn(session, card("odd", content=odd), edit(folder / "a.txt", "n9\n", "nine\n"))
    code, out, _ = said("show", "abcd", "--diff")
    assert code == 0
    assert "-n9\n+nine\n" in out
    assert "\x1b" not in out
    assert "\0" not in out


@pytest.mark.parametrize("name", ["a b", 'q"\\', "n\nl", "t\tb", "\x1b[31m", "\u202e\u00e4"])
async def test_git_takes_the_patch_of_a_file_whatever_its_name_and_the_ends_of_its_lines(
    said: Said, journal: Journal, folder: Path, name: str
) -> None:
    (folder / name).write_bytes(b"1\r\n2\r\n")
    committed(folder)
    session = await session_in(journal, folder)
    diff = {"type": "diff", "path": str(folder / name), "oldText": "1\r\n", "newText": "one\r\n"}
    (folder / name).write_bytes(b"one\r\n2\r\n")
    turn(session, card("odd", kind="edit", content=[diff]))
    out = said("show", "abcd", "--diff")[1]
    assert notes(out) == []
    assert not {"\x1b", "\u202e"} & set(out)
    git(folder, "apply", "-R", "-", given=out)
    assert (folder / name).read_bytes() == b"1\r\n2\r\n"


async def test_an_empty_new_file_and_lines_that_were_taken_out_need_no_note(
    said: Said, journal: Journal, folder: Path
) -> None:
    committed(folder)
    session = await session_in(journal, folder)
    turn(session, edit(folder / "e.py", None, ""), edit(folder / "a.txt", "n3\n", ""))
    out = said("show", "abcd", "--diff")[1]
    assert notes(out) == []
    assert "diff --git a/e.py b/e.py\nnew file mode 100644\n" in out
    git(folder, "add", ".")
    git(folder, "apply", "--cached", "-R", "--check", "-", given=out)


async def test_a_patch_with_escapes_in_its_lines_says_so(
    said: Said, journal: Journal, folder: Path
) -> None:
    session = await session_in(journal, folder)
    turn(session, edit(folder / "b.txt", None, "\x1b[31m\n"))
    out = said("show", "abcd", "--diff")[1]
    assert notes(out) == ["b.txt: its patch has escapes for characters that are not shown"]
    assert "+\\x1b[31m\n" in out


async def test_as_json_each_file_is_a_line_with_its_patch_as_it_is(
    said: Said, journal: Journal, folder: Path
) -> None:
    session = await session_in(journal, folder)
    turn(session, edit(folder / "b.txt", None, "\x1b\r\n"))
    told = [json.loads(line) for line in said("show", "abcd", "--diff", "--json")[1].splitlines()]
    assert told[0]["sessionId"] == SESSION
    assert told[0]["path"] == "b.txt"
    assert told[0]["patch"].endswith("@@ -0,0 +1 @@\n+\x1b\r\n")
    assert told[1] == {"sessionId": SESSION, "commands": [], "untold": [], "others": []}
