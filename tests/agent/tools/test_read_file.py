"""read_file: lines with their numbers, bounded; images; through the client if it can."""

import base64
import os
from pathlib import Path
from typing import Any

import anyio
import pytest

from agent.content.images import IMAGE_BYTES
from agent.secrets import Secrets
from agent.tools import Grant, ToolError, read_file
from agent.tools.edit_file import EditFile
from agent.tools.files import MAX_TEXT
from agent.tools.read_file import MAX_CHARACTERS, MAX_LINE, MAX_LINES, ReadFile
from tests.agent.tools.support import FilesClient, call, prepare, problem, run, session

PNG = b"\x89PNG\r\n\x1a\n" + b"\0" * 20


async def text(cwd: Path, client: FilesClient | None = None, **args: Any) -> str:
    return (await call(ReadFile(), session(cwd, client), **args)).text


async def test_each_line_is_given_with_its_number(cwd: Path) -> None:
    (cwd / "a").write_text("one\n\ttwo\n\nfour")
    assert await text(cwd, path="a") == "     1\tone\n     2\t\ttwo\n     3\t\n     4\tfour"


async def test_lines_are_given_from_one_on_and_as_many_as_asked_for(cwd: Path) -> None:
    (cwd / "a").write_text("one\ntwo\nthree\n")
    assert await text(cwd, path="a", line=2) == "     2\ttwo\n     3\tthree"
    assert await text(cwd, path="a", line=3, limit=1) == "     3\tthree"
    cut = "     2\ttwo\n[lines 2 to 2 of 3; go on with line=3]"
    assert await text(cwd, path="a", line=2, limit=1) == cut


async def test_a_line_behind_the_end_is_an_error_that_names_the_end(cwd: Path) -> None:
    (cwd / "a").write_text("one\n")
    assert await problem(ReadFile(), session(cwd), path="a", line=2) == "a has only 1 lines."


async def test_an_empty_file_is_said_to_be_empty(cwd: Path) -> None:
    (cwd / "a").touch()
    assert await text(cwd, path="a") == "[the file is empty]"


async def test_of_many_lines_the_first_are_given_and_where_to_go_on(cwd: Path) -> None:
    (cwd / "a").write_text("x\n" * (MAX_LINES + 1))
    for limit in (MAX_LINES, MAX_LINES * 2):
        lines = (await text(cwd, path="a", limit=limit)).split("\n")
        assert lines[-1] == f"[lines 1 to {MAX_LINES} of {MAX_LINES + 1}; go on with line=2001]"
        assert len(lines) == MAX_LINES + 1
    assert await text(cwd, path="a", line=MAX_LINES + 1) == f"  {MAX_LINES + 1}\tx"


async def test_of_long_lines_fewer_are_given(cwd: Path) -> None:
    (cwd / "a").write_text(("x" * 999 + "\n") * 100)
    given = await text(cwd, path="a")
    assert MAX_CHARACTERS - 1100 < len(given) < MAX_CHARACTERS + 100
    count = given.count("\t")
    assert given.endswith(f"[lines 1 to {count} of 100; go on with line={count + 1}]")


async def test_of_a_very_long_line_the_beginning_is_given(cwd: Path) -> None:
    (cwd / "a").write_text("x" * (MAX_LINE + 1) + "\ny")
    assert await text(cwd, path="a") == f"     1\t{'x' * MAX_LINE} [the line goes on]\n     2\ty"


async def test_the_card_shows_the_lines_without_numbers_in_a_fence(cwd: Path) -> None:
    (cwd / "a.md").write_text("# a\n```\ncode\n```\n")
    result = await call(ReadFile(), session(cwd), path="a.md")
    assert result.content == (
        {
            "type": "content",
            "content": {"type": "text", "text": "````\n# a\n```\ncode\n```\n````"},
        },
    )
    about = {"path": str(cwd / "a.md"), "line": 1, "lines": 4}
    assert result.raw == {**about, "totalLines": 4, "encoding": "utf-8"}


def test_the_card_names_the_file_and_the_line(cwd: Path) -> None:
    tool = ReadFile()
    whole, part = tool.Args(path="src/a.py"), tool.Args(path="src/a.py", line=7)
    assert (tool.title(whole), tool.title(part)) == ("Read src/a.py", "Read src/a.py:7")
    assert tool.locations(whole, cwd) == [{"path": str(cwd / "src/a.py")}]
    assert tool.locations(part, cwd) == [{"path": str(cwd / "src/a.py"), "line": 7}]
    long = tool.title(tool.Args(path="/a" * 100 + "/file\n.py"))
    assert len(long) < 70
    assert long.endswith("/file .py")


async def test_other_line_ends_and_encodings_are_read_as_lines_of_text(cwd: Path) -> None:
    for data in (
        b"caf\xc3\xa9\r\nb\r\n",
        b"\xef\xbb\xbfcaf\xc3\xa9\nb",
        b"caf\xe9\nb",
        "\ufeffcafé\r\nb".encode("utf-16-le"),
        "\ufeffcafé\nb".encode("utf-16-be"),
    ):
        (cwd / "a").write_bytes(data)
        assert await text(cwd, path="a") == "     1\tcafé\n     2\tb"


async def test_a_binary_file_is_refused(cwd: Path) -> None:
    for data in (
        b"a\0b",
        b"\xff\xfe\0\0\0\0a\0",
        b"\xff\xfea\0\0\0",
        b"\xe9\x01",
        b"\x1f\x8b\x08\x04",
    ):
        (cwd / "a").write_bytes(data)
        for client in (FilesClient(), FilesClient(reads=True, disk=True)):
            said = await problem(ReadFile(), session(cwd, client), path="a")
            assert said == "a is a binary file, not text."


async def test_an_image_is_given_to_the_model_and_shown(cwd: Path) -> None:
    for data, kind in {
        PNG: "image/png",
        b"\xff\xd8\xff\xe0..": "image/jpeg",
        b"GIF89a..": "image/gif",
        b"RIFF....WEBPVP8 ": "image/webp",
    }.items():
        (cwd / "picture").write_bytes(data)
        result = await call(ReadFile(), session(cwd), path="picture")
        encoded = base64.b64encode(data).decode()
        assert result.images == (f"data:{kind};base64,{encoded}",)
        block = {"type": "image", "data": encoded, "mimeType": kind}
        assert result.content == ({"type": "content", "content": block},)
        assert result.text == f"[the image picture: {kind}, {len(data)} bytes]"


async def test_an_image_that_is_too_big_is_refused(cwd: Path) -> None:
    (cwd / "picture").write_bytes(PNG.ljust(IMAGE_BYTES + 1))
    said = await problem(ReadFile(), session(cwd), path="picture")
    assert said == f"picture is an image of {IMAGE_BYTES + 1} bytes; {IMAGE_BYTES} is the most."


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> int:
    """Files longer than this are not held."""
    monkeypatch.setattr(read_file, "MAX_TEXT", 1000)
    return 1000


async def test_lines_far_into_a_huge_file_are_read_but_it_is_not_made_known(
    cwd: Path, small: int
) -> None:
    (cwd / "huge").write_bytes(b"".join(b"%7d\n" % n for n in range(1, small + 1)))
    context = session(cwd)

    async def read(**args: int) -> str:
        return (await call(ReadFile(), context, path="huge", **args)).text

    assert await read(line=999) == "   999\t    999\n  1000\t   1000"
    assert await read(limit=1) == "     1\t      1\n[lines 1 to 1; go on with line=2]"
    said = await problem(ReadFile(), context, path="huge", line=1001)
    assert said == "huge has only 1000 lines."
    assert context.seen == {}


async def test_a_huge_line_is_one_line(cwd: Path, small: int) -> None:
    (cwd / "huge").write_bytes(b"x" * 200_000 + b"\r\nend\r\n")
    lines = (await text(cwd, path="huge")).split("\n")
    assert lines == [f"     1\t{'x' * MAX_LINE} [the line goes on]", "     2\tend"]


async def test_a_huge_binary_file_is_refused(cwd: Path, small: int) -> None:
    (cwd / "huge").write_bytes(b"x\0" * small)
    assert (
        await problem(ReadFile(), session(cwd), path="huge") == "huge is a binary file, not text."
    )


async def test_a_file_too_long_to_be_held_can_not_be_changed(cwd: Path) -> None:
    (cwd / "huge").write_bytes(b"x\n" * (MAX_TEXT // 2) + b"x")
    context = session(cwd)
    assert (await call(ReadFile(), context, path="huge", limit=1)).raw["tooLongToChange"]
    said = await problem(EditFile(), context, path="huge", old="x", new="y")
    assert said == "huge was not read yet. Read it with read_file first."


async def test_reading_a_huge_file_ends_when_it_is_cancelled(
    cwd: Path, small: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    (cwd / "huge").write_bytes(b"x\n" * small)
    action = await prepare(ReadFile(), session(cwd), path="huge", line=10**9)
    began = anyio.Event()
    check = anyio.from_thread.check_cancelled

    def check_for_ever() -> None:
        anyio.from_thread.run_sync(began.set)
        while True:
            check()

    monkeypatch.setattr("agent.tools.read_file.from_thread.check_cancelled", check_for_ever)
    with anyio.fail_after(5):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(run, action)
            await began.wait()
            tasks.cancel_scope.cancel()


async def test_what_is_no_file_is_an_error_and_blocks_nothing(cwd: Path) -> None:
    os.mkfifo(cwd / "pipe")
    context = session(cwd, FilesClient(reads=True))
    assert await problem(ReadFile(), context, path="pipe") == "pipe is not a regular file."
    assert await problem(ReadFile(), context, path="/dev/zero") == (
        "/dev/zero is not a regular file."
    )
    assert await problem(ReadFile(), context, path=".") == ". is a folder."
    assert await problem(ReadFile(), context, path="none") == "There is no file none."
    (cwd / "loop").symlink_to("loop")
    assert (await problem(ReadFile(), context, path="loop")).startswith("Could not read loop: ")


async def test_what_becomes_a_pipe_as_it_is_opened_blocks_nothing(
    cwd: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (cwd / "a").touch()
    os.mkfifo(cwd / "pipe")
    action = await prepare(ReadFile(), session(cwd), path="a")
    stat = os.stat

    def stat_and_replace(path: Path | str, **options: Any) -> os.stat_result:
        result = stat(path, **options)
        if path == "a" and (cwd / "pipe").exists():
            (cwd / "pipe").rename(cwd / "a")
        return result

    monkeypatch.setattr("agent.tools.files.os.stat", stat_and_replace)
    with pytest.raises(ToolError, match="a is not a regular file"):
        await run(action)


async def test_a_file_that_may_not_be_read_is_an_error_without_detail(
    cwd: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (cwd / "a").touch()

    def refuse(*_: object, **__: object) -> int:
        raise PermissionError(13, "Permission denied", "/some/path")

    monkeypatch.setattr("agent.tools.files.os.open", refuse)
    said = await problem(ReadFile(), session(cwd), path="a")
    assert said == "Could not read a: Permission denied."


async def test_the_client_is_read_for_it_knows_what_is_not_saved(cwd: Path) -> None:
    (cwd / "a").write_text("saved\n")
    client = FilesClient(reads=True)
    client.buffers[str(cwd / "a")] = "not saved\n"
    context = session(cwd, client)
    for path in ("a", "./x/../a", str(cwd / "a")):
        assert (await call(ReadFile(), context, path=path)).text == "     1\tnot saved"


async def test_a_file_that_was_never_saved_is_read_from_the_client(cwd: Path) -> None:
    client = FilesClient(reads=True)
    client.buffers[str(cwd / "new")] = "never saved"
    assert await text(cwd, client, path="new") == "     1\tnever saved"


async def test_a_file_that_is_nowhere_is_missing_also_if_the_client_calls_it_empty(
    cwd: Path,
) -> None:
    client = FilesClient(reads=True)
    client.buffers[str(cwd / "none")] = ""
    assert await problem(ReadFile(), session(cwd, client), path="none") == "There is no file none."


@pytest.mark.hazard("K8.1")
async def test_what_the_client_refuses_to_read_inside_is_not_read_and_the_model_told_why(
    cwd: Path,
) -> None:
    (cwd / "a").write_text("disk")
    said = await problem(ReadFile(), session(cwd, FilesClient(reads=True)), path="a")
    assert said == "The editor refused to give a: it is private"


async def test_what_the_client_refuses_to_read_outside_is_read_from_the_disk(
    cwd: Path, tmp_path: Path
) -> None:
    (tmp_path / "a").write_text("disk")
    assert await text(cwd, FilesClient(reads=True), path="../a") == "     1\tdisk"


@pytest.mark.hazard("K8.2")
async def test_a_client_that_has_no_files_after_all_is_no_reason_not_to_read(cwd: Path) -> None:
    (cwd / "a").write_text("disk")
    assert await text(cwd, FilesClient(reads=True, missing=True), path="a") == "     1\tdisk"


async def test_a_client_that_does_not_know_the_encoding_is_not_believed(cwd: Path) -> None:
    (cwd / "a").write_bytes(b"caf\xe9")
    assert await text(cwd, FilesClient(reads=True, disk=True), path="a") == "     1\tcafé"


async def test_a_file_outside_is_read_only_when_it_is_run(cwd: Path, tmp_path: Path) -> None:
    action = await prepare(ReadFile(), session(cwd), path="../later")
    assert action.outside
    (tmp_path / "later").write_text("x")
    assert (await run(action)).text == "     1\tx"


async def test_a_path_that_became_a_link_elsewhere_is_not_read(cwd: Path, tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("secret")
    (cwd / "a").write_text("x")
    action = await prepare(ReadFile(), session(cwd), path="a")
    (cwd / "a").unlink()
    (cwd / "a").symlink_to("../secret")
    with pytest.raises(ToolError, match="leads elsewhere"):
        await run(action)


@pytest.mark.hazard("K5.1", "K7.1")
@pytest.mark.parametrize("padding", [0, MAX_TEXT])
async def test_no_half_of_a_secret_is_left_where_a_long_line_is_cut(
    cwd: Path, padding: int
) -> None:
    line = "x" * (MAX_LINE - 6) + "SECRETVALUE" + "y" * 3000
    (cwd / "a").write_text(f"{line}\n" + "z\n" * (padding // 2))
    context = session(cwd, secrets=Secrets(["SECRETVALUE"]))
    result = await call(ReadFile(), context, path="a", limit=1)
    assert "xxx*** [the line goes on]" in result.text
    assert "SECRET" not in result.text


@pytest.mark.hazard("K7")
@pytest.mark.parametrize("name", ["keys.env", "notify.toml"])
async def test_a_file_of_secrets_is_shown_only_if_the_user_says_so(cwd: Path, name: str) -> None:
    (cwd / name).write_text("A_KEY=abc")
    (cwd / "link").symlink_to(name)
    for path in (name, "link"):
        action = await prepare(ReadFile(), session(cwd), path=path)
        assert (action.shows_keys, action.outside) == (True, False)
        assert action.grant == Grant(("read", str(cwd / name)), f"reading {name}")
    assert not (await prepare(ReadFile(), session(cwd), path="a.env")).shows_keys
