"""write_file: whole files; what the model has not read, or not as it is, stays."""

import errno
import os
import stat
import sys
from pathlib import Path
from typing import Any

import anyio
import pytest

from acp_bridge.core.records import replace
from agent.client import ClientError, NotOffered
from agent.tools import ToolContext, ToolError
from agent.tools.edit_file import EditFile
from agent.tools.files import MAX_TEXT
from agent.tools.read_file import ReadFile
from agent.tools.write_file import WriteFile
from tests.agent.tools.support import FilesClient, call, prepare, problem, run, session


async def seen(cwd: Path, path: str = "a", client: FilesClient | None = None) -> ToolContext:
    context = session(cwd, client)
    await call(ReadFile(), context, path=path)
    return context


async def test_a_new_file_is_made_with_its_folders(cwd: Path) -> None:
    result = await call(WriteFile(), session(cwd), path="x/y/new.py", content="a\nb\n")
    assert (cwd / "x/y/new.py").read_bytes() == b"a\nb\n"
    path = str(cwd / "x/y/new.py")
    assert result.text == "Created x/y/new.py: 2 lines."
    assert result.raw == {"path": path, "created": True, "lines": 2}
    assert result.content == ({"type": "diff", "path": path, "oldText": None, "newText": "a\nb\n"},)


async def test_nothing_is_changed_before_it_runs_and_the_diff_is_shown(cwd: Path) -> None:
    (cwd / "a").write_text("old\n")
    context = await seen(cwd)
    action = await prepare(WriteFile(), context, path="a", content="new\n")
    diff = {"type": "diff", "path": str(cwd / "a"), "oldText": "old\n", "newText": "new\n"}
    assert action.content == (diff,)
    assert (cwd / "a").read_text() == "old\n"
    assert (await prepare(WriteFile(), context, path="n/b", content="")).content[0]["newText"] == ""
    assert sorted(os.listdir(cwd)) == ["a"]
    result = await run(action)
    assert (cwd / "a").read_text() == "new\n"
    assert (result.text, result.content) == ("Wrote a: 1 lines.", (diff,))


async def test_a_file_that_was_not_read_is_not_overwritten(cwd: Path) -> None:
    (cwd / "a").write_text("x")
    said = await problem(WriteFile(), session(cwd), path="a", content="y")
    assert said == "a was not read yet. Read it with read_file first."
    assert (cwd / "a").read_text() == "x"


async def test_a_file_that_changed_since_it_was_read_is_not_overwritten(cwd: Path) -> None:
    (cwd / "a").write_text("x")
    context = await seen(cwd)
    (cwd / "a").write_text("changed")
    said = await problem(WriteFile(), context, path="a", content="y")
    assert said == "a has changed since it was read. Read it again."
    await call(ReadFile(), context, path="a")
    await call(WriteFile(), context, path="a", content="y")
    assert (cwd / "a").read_text() == "y"


async def test_a_file_that_changed_while_the_user_was_asked_is_not_overwritten(cwd: Path) -> None:
    (cwd / "a").write_text("x")
    context = await seen(cwd)
    actions = [await prepare(WriteFile(), context, path=p, content="y") for p in ("a", "new")]
    (cwd / "a").write_text("changed")
    (cwd / "new").write_text("made")
    for action in actions:
        with pytest.raises(ToolError, match=r"changed since|not read"):
            await run(action)
    assert ((cwd / "a").read_text(), (cwd / "new").read_text()) == ("changed", "made")


async def test_a_call_does_not_undo_what_another_wrote_after_it_was_prepared(cwd: Path) -> None:
    (cwd / "a").write_text("x")
    context = await seen(cwd)
    first, second = [await prepare(WriteFile(), context, path="a", content=c) for c in "12"]
    await run(first)
    with pytest.raises(ToolError, match="changed since the edit was made"):
        await run(second)


async def test_what_it_wrote_it_may_write_again(cwd: Path) -> None:
    context = session(cwd)
    for content in ("one", "two\r\n", "three"):
        await call(WriteFile(), context, path="a", content=content)
    assert (cwd / "a").read_text() == "three"


async def test_a_file_that_was_removed_may_be_made_again(cwd: Path) -> None:
    (cwd / "a").write_text("x")
    context = await seen(cwd)
    (cwd / "a").unlink()
    result = await call(WriteFile(), context, path="a", content="y")
    assert result.text == "Created a: 1 lines."


async def test_line_ends_encoding_and_mark_are_kept(cwd: Path) -> None:
    for before, after in (
        (b"a\r\nb\r\n", b"caf\xc3\xa9\r\nc\r\n"),
        (b"\xef\xbb\xbfa\n", b"\xef\xbb\xbfcaf\xc3\xa9\nc\n"),
        (b"\xe9\r\n", b"caf\xe9\r\nc\r\n"),
        ("\ufeffa\r\n".encode("utf-16-le"), "\ufeffcafé\r\nc\r\n".encode("utf-16-le")),
        ("\ufeffa\n".encode("utf-16-be"), "\ufeffcafé\nc\n".encode("utf-16-be")),
    ):
        (cwd / "a").write_bytes(before)
        await call(WriteFile(), await seen(cwd), path="a", content="café\nc\n")
        assert (cwd / "a").read_bytes() == after


async def test_line_ends_given_as_crlf_are_not_doubled(cwd: Path) -> None:
    (cwd / "a").write_bytes(b"a\r\n")
    await call(WriteFile(), await seen(cwd), path="a", content="x\r\ny\n")
    assert (cwd / "a").read_bytes() == b"x\r\ny\r\n"


async def test_a_new_file_has_the_line_ends_it_was_given(cwd: Path) -> None:
    await call(WriteFile(), session(cwd), path="a", content="x\r\ny\n")
    assert (cwd / "a").read_bytes() == b"x\r\ny\n"


async def test_what_the_encoding_lacks_is_refused(cwd: Path) -> None:
    (cwd / "a").write_bytes(b"\xe9")
    context = await seen(cwd)
    with pytest.raises(ToolError, match=r"^The file's encoding, latin-1, has no '\\u20ac'\.$"):
        await prepare(WriteFile(), context, path="a", content="€")
    with pytest.raises(ToolError, match=r"^The file's encoding, utf-8, has no '\\ud800'\.$"):
        await prepare(WriteFile(), context, path="new", content="\ud800")


async def test_the_mode_is_kept_and_a_new_file_has_the_usual_one(cwd: Path) -> None:
    (cwd / "a").write_text("x")
    (cwd / "a").chmod(0o750)
    await call(WriteFile(), await seen(cwd), path="a", content="y")
    assert stat.S_IMODE((cwd / "a").stat().st_mode) == 0o750
    await call(WriteFile(), session(cwd), path="new", content="y")
    (cwd / "usual").touch()
    assert (cwd / "new").stat().st_mode == (cwd / "usual").stat().st_mode


async def test_a_write_protected_file_is_not_replaced(cwd: Path) -> None:
    (cwd / "a").write_text("x")
    (cwd / "a").chmod(0o444)
    said = await problem(WriteFile(), await seen(cwd), path="a", content="y")
    assert said == "Could not write a: it is write-protected."


async def test_a_link_stays_and_its_target_is_written(cwd: Path) -> None:
    (cwd / "target").write_text("x")
    (cwd / "a").symlink_to("target")
    await call(WriteFile(), await seen(cwd), path="a", content="y")
    assert (cwd / "a").is_symlink()
    assert (cwd / "target").read_text() == "y"
    (cwd / "b").symlink_to("later")
    await call(WriteFile(), session(cwd), path="b", content="z")
    assert (cwd / "b").is_symlink()
    assert (cwd / "later").read_text() == "z"


async def test_a_link_that_leads_out_is_told_and_if_allowed_its_target_written(
    cwd: Path, tmp_path: Path
) -> None:
    (cwd / "a").symlink_to("../outside")
    action = await prepare(WriteFile(), session(cwd), path="a", content="y")
    assert action.outside
    await run(action)
    assert (tmp_path / "outside").read_text() == "y"


async def test_a_write_that_fails_leaves_the_file_and_nothing_beside_it(
    cwd: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (cwd / "a").write_text("x")
    context = await seen(cwd)

    def full(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("agent.tools.written.os.replace", full)
    said = await problem(WriteFile(), context, path="a", content="y")
    assert said == "Could not write a: No space left on device."
    assert os.listdir(cwd) == ["a"]
    assert (cwd / "a").read_text() == "x"


async def test_what_is_no_file_is_not_written(cwd: Path) -> None:
    os.mkfifo(cwd / "pipe")
    (cwd / "a").write_text("x")
    for path, said in {
        "pipe": "pipe is not a regular file.",
        ".": ". is a folder.",
        "a/b": "Could not read a/b: Not a directory.",
    }.items():
        assert await problem(WriteFile(), session(cwd), path=path, content="") == said


async def test_more_than_can_be_read_again_is_not_written(cwd: Path) -> None:
    said = await problem(WriteFile(), session(cwd), path="a", content="x" * (MAX_TEXT + 1))
    assert said == f"a would be longer than {MAX_TEXT} bytes."


async def test_of_a_long_text_the_diff_is_what_differs(cwd: Path) -> None:
    lines = [f"{n:09}\n" for n in range(10_000)]
    (cwd / "a").write_text("".join(lines))
    new = "".join([*lines[:5000], "changed\n", *lines[5001:]])
    action = await prepare(WriteFile(), await seen(cwd), path="a", content=new)
    diff = action.content[0]
    assert diff["oldText"] == "".join(lines[4990:5011])
    assert diff["newText"] == "".join([*lines[4990:5000], "changed\n", *lines[5001:5011]])


async def test_the_client_writes_if_it_can(cwd: Path) -> None:
    (cwd / "a").write_text("disk")
    client = FilesClient(reads=True, writes=True)
    client.buffers[str(cwd / "a")] = "not saved"
    context = await seen(cwd, "a", client)
    action = await prepare(WriteFile(), context, path="a", content="y")
    assert action.content[0]["oldText"] == "not saved"
    await run(action)
    await call(WriteFile(), context, path="x/new", content="z")
    assert client.buffers == {str(cwd / "a"): "y", str(cwd / "x/new"): "z"}
    assert (cwd / "a").read_text() == "disk"
    assert (cwd / "x").is_dir()


async def test_a_client_gets_the_line_ends_and_the_mark_that_it_gave(cwd: Path) -> None:
    (cwd / "a").write_bytes(b"\xef\xbb\xbfa\r\nb\r\n")
    client = FilesClient(reads=True, writes=True)
    for buffer, after in {"a\nb\n": "x\ny\n", "\ufeffa\r\n": "\ufeffx\r\ny\r\n"}.items():
        client.buffers[str(cwd / "a")] = buffer
        await call(WriteFile(), await seen(cwd, "a", client), path="a", content="x\ny\n")
        assert client.buffers[str(cwd / "a")] == after


async def test_a_buffer_that_changed_since_it_was_read_is_not_overwritten(cwd: Path) -> None:
    client = FilesClient(reads=True, writes=True)
    client.buffers[str(cwd / "a")] = "x"
    context = await seen(cwd, "a", client)
    client.buffers[str(cwd / "a")] = "typed meanwhile"
    said = await problem(WriteFile(), context, path="a", content="y")
    assert said == "a has changed since it was read. Read it again."


async def test_a_buffer_that_was_never_saved_nor_read_is_not_overwritten(cwd: Path) -> None:
    client = FilesClient(reads=True, writes=True)
    client.buffers[str(cwd / "new")] = "typed"
    said = await problem(WriteFile(), session(cwd, client), path="new", content="y")
    assert said == "new was not read yet. Read it with read_file first."


async def test_a_file_in_an_encoding_the_client_does_not_know_is_written_on_the_disk(
    cwd: Path,
) -> None:
    (cwd / "a").write_bytes(b"caf\xe9")
    client = FilesClient(reads=True, writes=True, disk=True)
    await call(WriteFile(), await seen(cwd, "a", client), path="a", content="th\u00e9")
    assert (cwd / "a").read_bytes() == b"th\xe9"
    assert client.written == []


async def test_a_client_that_only_writes_is_given_no_other_encoding(cwd: Path) -> None:
    (cwd / "a").write_bytes(b"caf\xe9")
    (cwd / "b").write_bytes(b"caf\xc3\xa9\r\n")
    client = FilesClient(writes=True)
    for path in ("a", "b"):
        await call(WriteFile(), await seen(cwd, path, client), path=path, content="th\u00e9\n")
    assert client.buffers == {str(cwd / "b"): "th\u00e9\r\n"}
    assert (cwd / "a").read_bytes() == b"th\xe9\n"


async def test_a_client_that_has_no_files_after_all_is_no_reason_not_to_write(cwd: Path) -> None:
    (cwd / "a").write_text("x")
    client = FilesClient(reads=True, writes=True, missing=True)
    await call(WriteFile(), await seen(cwd, "a", client), path="a", content="y")
    assert (cwd / "a").read_text() == "y"


class Refusing(FilesClient):
    """Refuses every write; reads it does not have, or it refuses them too."""

    async def read_file(self, path: str, line: int | None, limit: int | None) -> str:
        raise NotOffered("detail")

    async def write_file(self, path: str, content: str) -> None:
        raise ClientError("detail", "the project is read-only")


@pytest.mark.hazard("K8")
async def test_a_client_that_reads_nothing_is_still_asked_before_a_file_is_written(
    cwd: Path,
) -> None:
    (cwd / "a").write_text("x")
    client = Refusing(reads=True, writes=True)
    context = await seen(cwd, "a", client)
    said = await problem(WriteFile(), context, path="a", content="y")
    assert said == "The editor refused to write a: the project is read-only"
    assert (cwd / "a").read_text() == "x"


@pytest.mark.hazard("K8.1")
async def test_what_the_client_refuses_to_write_inside_is_not_written(cwd: Path) -> None:
    client = Refusing(writes=True)
    said = await problem(WriteFile(), session(cwd, client), path="a", content="x")
    assert said == "The editor refused to write a: the project is read-only"
    assert not (cwd / "a").exists()


@pytest.mark.hazard("K8.1")
async def test_what_the_client_refuses_to_write_outside_is_not_written_either(
    cwd: Path, tmp_path: Path
) -> None:
    client = Refusing(writes=True)
    said = await problem(WriteFile(), session(cwd, client), path="../a", content="x")
    assert said == "The editor refused to write ../a: the project is read-only"
    assert not (tmp_path / "a").exists()


def test_the_card_names_the_file(cwd: Path) -> None:
    args = WriteFile.Args(path="src/a.py", content="x")
    assert WriteFile().title(args) == "Write src/a.py"
    assert WriteFile().locations(args, cwd) == [{"path": str(cwd / "src/a.py")}]
    assert (WriteFile.kind, WriteFile.access) == ("edit", "edit")


# files that can't be replaced by new ones


async def linked(cwd: Path, tmp_path: Path) -> tuple[Path, ToolContext]:
    """The second name, outside, of a file that the model has read."""
    other = tmp_path / "config"
    other.write_text("old\n")
    (cwd / "a").hardlink_to(other)
    return other, await seen(cwd)


async def test_a_file_with_more_names_is_a_person_s_to_allow_and_stays_one_file(
    cwd: Path, tmp_path: Path
) -> None:
    other, context = await linked(cwd, tmp_path)
    action = await prepare(WriteFile(), context, path="a", content="new\n")
    assert action.only_person
    assert "2 names" in action.content[1]["content"]["text"]
    assert other.read_text() == "old\n"
    await run(action)
    assert (other.read_text(), (cwd / "a").read_text()) == ("new\n", "new\n")
    assert other.stat().st_ino == (cwd / "a").stat().st_ino
    assert os.listdir(cwd) == ["a"]
    edit = {"path": "a", "old": "new", "new": "newer"}
    assert (await prepare(EditFile(), context, **edit)).only_person
    (cwd / "one").write_text("x")
    assert not (await prepare(WriteFile(), session(cwd), path="new", content="")).only_person


@pytest.mark.parametrize("through_client", [False, True])
async def test_a_file_that_got_another_name_after_it_was_looked_at_is_not_written(
    cwd: Path, tmp_path: Path, through_client: bool
) -> None:
    (cwd / "a").write_text("old\n")
    client = FilesClient(reads=True, writes=True, disk=True) if through_client else None
    context = await seen(cwd, client=client)
    action = await prepare(WriteFile(), context, path="a", content="new\n")
    assert not action.only_person
    (tmp_path / "other").hardlink_to(cwd / "a")
    with pytest.raises(ToolError, match="another name"):
        await run(action)
    assert (cwd / "a").read_text() == "old\n"


def _with_attributes(path: Path) -> dict[str, bytes]:
    try:
        os.setxattr(path, "user.note", b"kept")
    except (AttributeError, OSError):
        pytest.skip("this file system has no extended attributes")
    return {name: os.getxattr(path, name) for name in os.listxattr(path)}


async def test_extended_attributes_are_kept(cwd: Path) -> None:
    (cwd / "a").write_text("old")
    before = _with_attributes(cwd / "a")
    inode = (cwd / "a").stat().st_ino
    await call(WriteFile(), await seen(cwd), path="a", content="new and longer")
    assert (cwd / "a").read_text() == "new and longer"
    assert {name: os.getxattr(cwd / "a", name) for name in os.listxattr(cwd / "a")} == before
    assert (cwd / "a").stat().st_ino == inode
    assert os.listdir(cwd) == ["a"]


async def test_what_a_folder_gives_to_new_files_alone_is_not_given_to_an_old_one(
    cwd: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As a folder's default ACL would."""
    (cwd / "a").write_text("old")
    context = await seen(cwd)
    inode = (cwd / "a").stat().st_ino
    monkeypatch.setattr(
        "agent.tools.written._attributes", lambda fd: {"acl": b"%d" % os.fstat(fd).st_ino}
    )
    await call(WriteFile(), context, path="a", content="new")
    assert ((cwd / "a").read_text(), (cwd / "a").stat().st_ino) == ("new", inode)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file to another user")
async def test_the_owner_is_kept(cwd: Path) -> None:
    (cwd / "a").write_text("old, and longer than the new")
    os.chown(cwd / "a", 12345, 12346)
    (cwd / "a").chmod(0o640)
    await call(WriteFile(), await seen(cwd), path="a", content="new")
    found = (cwd / "a").stat()
    assert (found.st_uid, found.st_gid, stat.S_IMODE(found.st_mode)) == (12345, 12346, 0o640)
    assert (cwd / "a").read_text() == "new"


@pytest.mark.parametrize("error", [errno.EBUSY, errno.EXDEV, errno.EPERM, errno.EACCES])
async def test_what_can_not_be_replaced_is_written_where_it_is(
    cwd: Path, monkeypatch: pytest.MonkeyPatch, error: int
) -> None:
    """A mount on the file, a folder with a sticky bit, an overlay."""
    (cwd / "a").write_text("old")
    context = await seen(cwd)

    def refused(*_: object, **__: object) -> None:
        raise OSError(error, os.strerror(error))

    monkeypatch.setattr("agent.tools.written.os.replace", refused)
    await call(WriteFile(), context, path="a", content="new")
    assert (cwd / "a").read_text() == "new"
    assert os.listdir(cwd) == ["a"]


async def test_a_folder_that_takes_no_new_file_does_not_keep_its_files_from_being_written(
    cwd: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (cwd / "a").write_text("old")
    context = replace(await seen(cwd), records=(tmp_path / "records", tmp_path / "more"))
    _no_new_files(monkeypatch)
    await call(WriteFile(), context, path="a", content="new")
    assert (cwd / "a").read_text() == "new"
    assert list((tmp_path / "records/before-edits").iterdir()) == []


def _no_new_files(monkeypatch: pytest.MonkeyPatch) -> None:
    real = os.open

    def no_new_file(path: Any, flags: int, mode: int = 0o777, *, dir_fd: Any = None) -> int:
        if flags & os.O_CREAT and dir_fd is not None:
            raise OSError(errno.EACCES, os.strerror(errno.EACCES))
        return real(path, flags, mode, dir_fd=dir_fd)

    monkeypatch.setattr("agent.tools.written.os.open", no_new_file)


def _full(monkeypatch: pytest.MonkeyPatch, times: int) -> None:
    """The disk is full for so many writes, each of which comes to its half."""
    real, failures = os.pwrite, iter(range(times))

    def half(fd: int, data: bytes, offset: int) -> int:
        if next(failures, None) is None:
            return real(fd, data, offset)
        real(fd, data[: len(data) // 2], offset)
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr("agent.tools.written.os.pwrite", half)


async def test_a_write_in_place_that_fails_in_its_middle_puts_the_old_content_back(
    cwd: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other, context = await linked(cwd, tmp_path)
    _full(monkeypatch, 1)
    said = await problem(WriteFile(), context, path="a", content="new content\n")
    assert said == "Could not write a: No space left on device. It is as it was."
    assert other.read_text() == "old\n"
    assert os.listdir(cwd) == ["a"]


@pytest.mark.parametrize("beside", [True, False])
async def test_if_the_old_content_can_not_be_put_back_it_is_said_where_it_is(
    cwd: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, beside: bool
) -> None:
    _, context = await linked(cwd, tmp_path)
    context = replace(context, records=(tmp_path / "records",))
    with monkeypatch.context() as away:
        if not beside:
            _no_new_files(away)
        _full(away, 2)
        said = await problem(WriteFile(), context, path="a", content="new content\n")
    (kept,) = (cwd if beside else tmp_path / "records/before-edits").glob("*before-edit")
    assert said.endswith(f"what it held before is in {kept}.")
    assert kept.read_text() == "old\n"
    assert stat.S_IMODE(kept.stat().st_mode) == 0o600
    assert f"what it held before is in {kept}]" in (await call(ReadFile(), context, path="a")).text
    await call(WriteFile(), context, path="a", content="whole\n")
    assert kept.read_text() == "old\n"


async def test_if_the_old_content_can_not_be_kept_nothing_is_written(
    cwd: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other, context = await linked(cwd, tmp_path)
    (tmp_path / "records").write_text("no folder")
    context = replace(context, records=(tmp_path / "records",))
    _no_new_files(monkeypatch)
    assert "Could not write a: " in await problem(WriteFile(), context, path="a", content="new")
    assert other.read_text() == "old\n"


_KILLED = """
import os, sys
from pathlib import Path
import anyio
from agent.tools.read_file import ReadFile
from agent.tools.write_file import WriteFile
from tests.agent.tools.support import call, session

def killed(fd, data, offset):
    os.write(fd, data[:3])
    os.kill(os.getpid(), 9)

async def main(cwd):
    context = session(Path(cwd))
    await call(ReadFile(), context, path="a")
    os.pwrite = killed
    await call(WriteFile(), context, path="a", content="new content")

anyio.run(main, sys.argv[1])
"""


@pytest.mark.process
async def test_after_a_kill_in_the_middle_the_next_read_says_where_the_old_content_is(
    cwd: Path, tmp_path: Path
) -> None:
    await linked(cwd, tmp_path)
    with anyio.fail_after(30):
        ended = await anyio.run_process([sys.executable, "-c", _KILLED, str(cwd)], check=False)
    assert ended.returncode == -9
    kept = cwd / ".a.before-edit"
    assert kept.read_text() == "old\n"
    text = (await call(ReadFile(), session(cwd), path="a")).text
    assert f"what it held before is in {kept}]" in text
