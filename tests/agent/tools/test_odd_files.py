"""Files whose bytes or kinds are odd: what can be read is read, and what is changed stays whole."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.tools import AnyTool, ToolError
from agent.tools.edit_file import EditFile
from agent.tools.read_file import ReadFile
from agent.tools.search import Search
from agent.tools.text_file import Text, replaced
from agent.tools.write_file import WriteFile
from tests.agent.tools.support import FilesClient, call, prepare, problem, run, session

#: bytes of a file with an "a", and its lines as the model reads them
READ: dict[str, tuple[bytes, list[str]]] = {
    "a mark and both line ends": (b"\xef\xbb\xbfa\r\nb\nc", ["a", "b", "c"]),
    "two marks": (b"\xef\xbb\xbf\xef\xbb\xbfa\n", ["\ufeffa"]),
    "a mark in the middle": (b"a\xef\xbb\xbfb\n", ["a\ufeffb"]),
    "UTF-16": ("a\r\nb\r\n".encode("utf-16"), ["a", "b"]),
    "UTF-16 with half a unit": ("a\n".encode("utf-16") + b"\0", ["a"]),
    "UTF-32": ("a\nb".encode("utf-32"), ["a", "b"]),
    "carriage returns alone": (b"a\rb\rc\r", ["a", "b", "c"]),
    "a carriage return among newlines": (b"a\rb\nc\n", ["a\rb", "c"]),
    "two carriage returns a line": (b"a\r\r\nb\r\r\n", ["a\r", "b\r"]),
    "separators of Unicode": ("a\u2028b\u0085c\n".encode(), ["a\u2028b\u0085c"]),
    "form feeds": (b"a\x0cb\x1cc\n", ["a\x0cb\x1cc"]),
    "no newline at the end": (b"a", ["a"]),
    "a null byte far behind": (b"a\n" + b"x\n" * 5000 + b"\0\n", ["a", *["x"] * 1999]),
    "bytes that are no UTF-8": ("a é è\n".encode() + b"\xff\n", ["a é è", "\ufffd"]),
    "half of a pair": ("a é è ü\n".encode() + b"\xed\xa0\xbd\n", ["a é è ü", "\ufffd" * 3]),
    "a null byte too long": ("a é è\n".encode() + b"\xc0\x80\n", ["a é è", "\ufffd\ufffd"]),
    "an end of DOS": (b"a\r\nb\x1a", ["a", "b\x1a"]),
    "colours": (b"\x1b[31ma\x1b[0m\n", ["\x1b[31ma\x1b[0m"]),
    "words from right to left": ("a\u202eb\n".encode(), ["a\u202eb"]),
}  # fmt: skip


@pytest.mark.parametrize(("data", "lines"), READ.values(), ids=READ.keys())
async def test_its_lines_are_read_and_an_edit_changes_nothing_else(
    cwd: Path, data: bytes, lines: list[str]
) -> None:
    (cwd / "f").write_bytes(data)
    context = session(cwd)
    said = (await call(ReadFile(), context, path="f")).text.split("\n")
    numbered = [line.partition("\t")[2] for line in said if line[:6].strip().isdecimal()]
    assert numbered == lines
    await call(EditFile(), context, path="f", old="a", new="Z")
    encoding = "utf-16" if data[:2] == b"\xff\xfe" and data[2:4] != b"\0\0" else "utf-8"
    wide = "a".encode(f"{encoding}-le") if encoding == "utf-16" else b"a"
    assert (cwd / "f").read_bytes() == data.replace(wide, wide.replace(b"a", b"Z"), 1)


async def test_lines_that_end_with_carriage_returns_alone_can_be_changed(cwd: Path) -> None:
    context = session(cwd)
    (cwd / "f").write_bytes(b"a\rb\rc\r")
    assert (await call(ReadFile(), context, path="f")).text == "     1\ta\n     2\tb\n     3\tc"
    await call(EditFile(), context, path="f", old="a\nb\n", new="x\ny\nz\n")
    assert (cwd / "f").read_bytes() == b"x\ry\rz\rc\r"
    await call(WriteFile(), context, path="f", content="q\nr\n")
    assert (cwd / "f").read_bytes() == b"q\rr\r"
    await call(EditFile(), context, path="f", old="q\nr", new="s")
    assert (cwd / "f").read_bytes() == b"s\r"


@given(
    st.lists(st.sampled_from(["a", "b", "\r", "é"]), min_size=1, max_size=12),
    st.lists(st.sampled_from(["a", "\n", "\r\n", "é"]), max_size=6),
    st.data(),
)
def test_with_carriage_returns_alone_any_replacement_is_the_one_that_the_model_sees(
    text: list[str], new: list[str], data: st.DataObject
) -> None:
    before = Text("".join(["\r", *text]))
    start = data.draw(st.integers(0, len(before.lf) - 1))
    old = before.lf[start : data.draw(st.integers(start + 1, len(before.lf)))]
    after, _ = replaced(before, old, "".join(new), everywhere=True)
    assert "\n" not in after.raw
    assert after.lf == before.lf.replace(old, "".join(new).replace("\r\n", "\n"))


@pytest.mark.parametrize("client", [FilesClient(), FilesClient(reads=True, disk=True, writes=True)])
async def test_a_null_byte_is_not_written_for_it_could_not_be_read_again(
    cwd: Path, client: FilesClient
) -> None:
    (cwd / "f").write_text("abc\n")
    context = session(cwd, client)
    await call(ReadFile(), context, path="f")
    told = "f would be a binary file: it would have a null byte."
    assert await problem(EditFile(), context, path="f", old="a", new="\0") == told
    assert await problem(WriteFile(), context, path="f", content="\0") == told
    assert (cwd / "f").read_text() == "abc\n"
    if not client.reads_files:
        assert "null byte" in await problem(WriteFile(), context, path="new", content="a\0")
    assert os.listdir(cwd) == ["f"]


def _folder(file: Path) -> None:
    file.mkdir()


def _loop(file: Path) -> None:
    file.symlink_to(file.name)


def _no_folder(file: Path) -> None:
    file.parent.rmdir()
    file.parent.write_text("x")


def _loop_above(file: Path) -> None:
    file.parent.rmdir()
    file.parent.symlink_to(file.parent.name)


def _gone(file: Path) -> None: ...


def kind_of(file: Path) -> int | None:
    try:
        return os.lstat(file).st_mode
    except OSError:
        return None


CHANGES: list[tuple[AnyTool, dict[str, Any]]] = [
    (ReadFile(), {}),
    (EditFile(), {"old": "a", "new": "x"}),
    (WriteFile(), {"content": "x"}),
]


@pytest.mark.parametrize(("tool", "args"), CHANGES)
@pytest.mark.parametrize("becomes", [_folder, os.mkfifo, _loop, _no_folder, _loop_above, _gone])
async def test_what_takes_a_file_s_place_before_the_call_runs_is_an_error_and_stays(
    cwd: Path, tool: AnyTool, args: dict[str, Any], becomes: Callable[[Path], None]
) -> None:
    file = cwd / "d" / "f"
    file.parent.mkdir()
    file.write_text("a\n")
    context = session(cwd)
    await call(ReadFile(), context, path="d/f")
    action = await prepare(tool, context, path="d/f", **args)
    file.unlink()
    becomes(file)
    kind = kind_of(file)
    with pytest.raises(ToolError, match="d/f"), anyio.fail_after(5):
        await run(action)
    assert kind_of(file) == kind


@pytest.mark.parametrize("path", ["http://x/y", "HTTPS://x", "vscode-remote://ssh/x", "s3://b/k"])
async def test_an_address_is_no_path(cwd: Path, path: str) -> None:
    for tool, args in CHANGES:
        if tool.name != "edit_file":
            assert await problem(tool, session(cwd), path=path, **args) == (
                f"{path} is an address and no path."
            )
    assert os.listdir(cwd) == []
    (cwd / "http:").mkdir()
    await call(WriteFile(), session(cwd), path="http://x", content="x")
    assert (cwd / "http:" / "x").read_text() == "x"


async def test_the_root_is_a_folder(cwd: Path) -> None:
    assert await problem(ReadFile(), session(cwd), path="/") == "/ is a folder."


async def test_a_search_for_a_null_byte_says_what_is_wrong(cwd: Path) -> None:
    said = await problem(Search(), session(cwd), pattern="a\0")
    assert said == "A null byte can't be searched for."
