"""read_file: inside the folder only, through the client if it can."""

import os
from pathlib import Path

import anyio
import pytest

from agent.client import ClientError
from agent.tools import ToolContext, ToolError, standard_tools
from agent.tools.read_file import _MAX_BYTES, ReadFile, ReadFileArgs
from tests.agent.support import MemoryClient


async def read(cwd: Path, path: str, client: MemoryClient | None = None, **args: int) -> str:
    context = ToolContext(cwd, client or MemoryClient())
    with anyio.fail_after(5):
        arguments = ReadFileArgs.model_validate({"path": path, **args})
        return (await ReadFile().run(arguments, context)).text


@pytest.fixture
def cwd(tmp_path: Path) -> Path:
    folder = tmp_path / "cwd"
    folder.mkdir()
    (folder / "a.txt").write_text("one\ntwo\nthree\n")
    (tmp_path / "outside.txt").write_text("secret")
    return folder


async def test_a_file_is_read_relative_or_absolute(cwd: Path) -> None:
    assert await read(cwd, "a.txt") == "one\ntwo\nthree\n"
    assert await read(cwd, str(cwd / "a.txt")) == "one\ntwo\nthree\n"


async def test_some_lines_of_it(cwd: Path) -> None:
    assert await read(cwd, "a.txt", line=2) == "two\nthree\n"
    assert await read(cwd, "a.txt", line=2, limit=1) == "two\n"
    assert await read(cwd, "a.txt", limit=2) == "one\ntwo\n"
    assert await read(cwd, "a.txt", line=9) == ""


async def test_lines_far_into_a_big_file(cwd: Path) -> None:
    (cwd / "long").write_bytes(b"x" * 60 + b"\n" + b"".join(b"%d\n" % n for n in range(99_999)))
    assert await read(cwd, "long", line=90_000, limit=2) == "89998\n89999\n"


async def test_nothing_outside_the_folder_is_read(cwd: Path) -> None:
    (cwd / "link").symlink_to(cwd.parent / "outside.txt")
    (cwd / "up").symlink_to("..")
    outside = ["../outside.txt", str(cwd.parent / "outside.txt"), "link", "up/outside.txt"]
    reading = MemoryClient()
    reading.reads_files = True
    for path in [*outside, "/etc/passwd"]:
        for client in (MemoryClient(), reading):
            with pytest.raises(ToolError, match="outside the session's folder"):
                await read(cwd, path, client)


async def test_a_folder_that_is_itself_a_link_is_inside(cwd: Path) -> None:
    (cwd.parent / "same").symlink_to(cwd)
    assert await read(cwd.parent / "same", "a.txt", limit=1) == "one\n"


async def test_the_client_reads_if_it_can_for_it_knows_what_is_not_saved(cwd: Path) -> None:
    client = MemoryClient()
    client.files[str(cwd / "a.txt")] = "unsaved"
    assert await read(cwd, "a.txt", client, limit=1) == "one\n"
    client.reads_files = True
    assert await read(cwd, "./a.txt", client) == "unsaved"


async def test_the_client_s_error_is_not_passed_on(cwd: Path) -> None:
    class Failing(MemoryClient):
        reads_files = True

        async def read_file(self, path: str, line: int | None, limit: int | None) -> str:
            raise ClientError("detail")

    client = Failing()
    client.reads_files = True
    with pytest.raises(ToolError, match="The editor could not read"):
        await read(cwd, "a.txt", client)


async def test_what_is_no_file_does_not_block(cwd: Path) -> None:
    os.mkfifo(cwd / "pipe")
    for path, problem in {"pipe": "regular", ".": "regular", "none": "No such file"}.items():
        with pytest.raises(ToolError, match=problem):
            await read(cwd, path)


async def test_a_big_or_binary_file_is_cut_and_readable(cwd: Path) -> None:
    (cwd / "big").write_bytes(b"\xff" * (_MAX_BYTES + 10))
    text = await read(cwd, "big")
    assert text.startswith("�")
    assert text.endswith(f"[cut after {_MAX_BYTES} bytes]")


def test_a_model_is_told_of_every_tool() -> None:
    specs = [spec["function"] for spec in standard_tools().specs]
    assert [spec["name"] for spec in specs] == ["read_file", "shell"]
    assert specs[1]["parameters"]["required"] == ["command"]
