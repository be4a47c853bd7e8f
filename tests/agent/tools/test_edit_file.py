"""edit_file: one exact piece, or all of them, and not a byte besides."""

import threading
from functools import partial
from pathlib import Path
from typing import Any

import anyio
import anyio.to_thread
import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.tools import ToolError, edit_file
from agent.tools.edit_file import EditFile
from agent.tools.read_file import ReadFile
from agent.tools.text_file import Text, decode, replaced
from tests.agent.tools.support import FilesClient, call, prepare, problem, run, session


async def edited(cwd: Path, before: bytes, **args: Any) -> bytes:
    (cwd / "a").write_bytes(before)
    context = session(cwd)
    await call(ReadFile(), context, path="a")
    await call(EditFile(), context, path="a", **args)
    return (cwd / "a").read_bytes()


async def refused(cwd: Path, before: str, **args: Any) -> str:
    (cwd / "a").write_text(before)
    context = session(cwd)
    await call(ReadFile(), context, path="a")
    said = await problem(EditFile(), context, path="a", **{"new": "new", **args})
    assert (cwd / "a").read_text() == before
    return said


async def test_a_piece_that_is_there_once_is_replaced(cwd: Path) -> None:
    (cwd / "a").write_text("one\ntwo\nthree\n")
    context = session(cwd)
    await call(ReadFile(), context, path="a")
    action = await prepare(EditFile(), context, path="a", old="two\nth", new="2\nTH")
    shown = {
        "type": "diff",
        "path": str(cwd / "a"),
        "oldText": "one\ntwo\nthree\n",
        "newText": "one\n2\nTHree\n",
    }
    assert action.content == (shown,)
    assert (cwd / "a").read_text() == "one\ntwo\nthree\n"
    result = await run(action)
    assert (cwd / "a").read_text() == "one\n2\nTHree\n"
    assert (result.text, result.content) == ("Edited a at line 2.", (shown,))
    assert result.raw == {"path": str(cwd / "a"), "replacements": 1, "line": 2}


async def test_all_are_replaced_if_asked_for(cwd: Path) -> None:
    after = await edited(cwd, b"x = x\nx\n", old="x", new="xx", replace_all=True)
    assert after == b"xx = xx\nxx\n"


async def test_what_is_a_pattern_elsewhere_is_none_here(cwd: Path) -> None:
    after = await edited(cwd, b"a.*(b)\\1 $x", old=".*(b)\\1 $", new="\\g<0>\\1")
    assert after == b"a\\g<0>\\1x"


async def test_a_piece_that_is_there_several_times_is_refused_with_the_lines(cwd: Path) -> None:
    said = await refused(cwd, "x\ny\nx\n", old="x")
    assert said == (
        "`old` is there 2 times, at lines 1, 3. Give more of the lines around the one you mean, "
        "or set replace_all."
    )
    assert "at lines 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, ..." in await refused(cwd, "x\n" * 11, old="x")


async def test_a_piece_that_is_not_there_is_refused_with_what_may_be_wrong(cwd: Path) -> None:
    text = "def f():\n\treturn  1\n\nlast\n"
    said = await refused(cwd, text, old="def f():\n    return 1")
    assert "At line 1 is what differs from it in spaces, tabs or line breaks only" in said
    said = await refused(cwd, text, old="     1\tdef f():\n     2\t\treturn  1")
    assert "The line numbers that read_file shows are not in the file." in said
    said = await refused(cwd, text, old="def f():\n    return 2")
    assert "only its first line is, at line 1." in said
    said = await refused(cwd, text, old="nothing")
    assert said == "`old` is not there. It must be exactly what the file has; read the file again."
    assert (await refused(cwd, text, old="\n\n\n")).startswith("`old` is not there.")


@pytest.mark.hazard("C3", "C4")
@pytest.mark.parametrize(
    ("text", "old"),
    [
        ("a\n" * 100_000, "a\n" * 5000 + "b"),
        ("x x \n" * 100_000, "x " * 5000 + "y"),
        ("a " * 1_000_000, "a " * 5000 + "b"),
        ("a" * 4_000_000, "a" * 20_000 + "b"),
        ("ab" * 2_000_000, "ba" * 20_000 + "c"),
        ("\n" * 1_000_000, "\n" * 5000 + "b"),
    ],
)
async def test_a_long_piece_that_differs_at_its_end_only_holds_nothing_up(
    cwd: Path, text: str, old: str
) -> None:
    assert (await refused(cwd, text, old=old)).startswith("`old` is not there")


async def test_many_places_hold_nothing_up_and_make_no_endless_file(cwd: Path) -> None:
    (cwd / "a").write_text("a\n" * 200_000)
    context = session(cwd)
    await call(ReadFile(), context, path="a")
    args = {"path": "a", "old": "a", "replace_all": True}
    result = await call(EditFile(), context, **args, new="b")
    assert result.raw["replacements"] == 200_000
    said = await problem(EditFile(), context, **{**args, "old": "b"}, new="x" * 1_000_000)
    assert "would be longer than" in said


async def test_a_cancel_does_not_wait_for_a_search_in_a_long_text(
    cwd: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (cwd / "a").write_text("x")
    context = session(cwd)
    await call(ReadFile(), context, path="a")
    begun, let_go = threading.Event(), threading.Event()

    def slow(*args: object, **more: object) -> None:
        begun.set()
        let_go.wait(5)

    monkeypatch.setattr(edit_file, "replaced", slow)
    with anyio.fail_after(3):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(partial(prepare, EditFile(), context, path="a", old="x", new="y"))
            await anyio.to_thread.run_sync(begun.wait, 3)
            tasks.cancel_scope.cancel()
        let_go.set()


async def test_a_replacement_by_the_same_is_refused(cwd: Path) -> None:
    assert await refused(cwd, "x", old="x", new="x") == "`old` and `new` are the same."


async def test_a_file_that_is_not_there_is_refused(cwd: Path) -> None:
    said = await problem(EditFile(), session(cwd), path="a", old="x", new="y")
    assert said == "There is no file a. To make one, use write_file."


async def test_a_file_that_was_not_read_or_has_changed_since_is_refused(cwd: Path) -> None:
    (cwd / "a").write_text("x")
    context = session(cwd)
    args = {"path": "a", "old": "x", "new": "y"}
    assert "was not read yet" in await problem(EditFile(), context, **args)
    await call(ReadFile(), context, path="a")
    (cwd / "a").write_text("x!")
    assert "has changed since it was read" in await problem(EditFile(), context, **args)


async def test_a_file_that_changed_while_the_user_was_asked_is_not_edited(cwd: Path) -> None:
    (cwd / "a").write_text("x")
    context = session(cwd)
    await call(ReadFile(), context, path="a")
    action = await prepare(EditFile(), context, path="a", old="x", new="y")
    (cwd / "a").write_text("x!")
    with pytest.raises(ToolError, match="changed since"):
        await run(action)
    assert (cwd / "a").read_text() == "x!"


async def test_line_ends_that_changed_while_the_user_was_asked_are_not_changed_back(
    cwd: Path,
) -> None:
    (cwd / "a").write_bytes(b"x\r\ny\r\n")
    context = session(cwd)
    await call(ReadFile(), context, path="a")
    action = await prepare(EditFile(), context, path="a", old="x", new="z")
    (cwd / "a").write_bytes(b"x\ny\n")
    with pytest.raises(ToolError, match="changed since"):
        await run(action)
    await call(EditFile(), context, path="a", old="x", new="z")
    assert (cwd / "a").read_bytes() == b"z\ny\n"


async def test_edits_follow_one_another(cwd: Path) -> None:
    (cwd / "a").write_text("1")
    context = session(cwd)
    await call(ReadFile(), context, path="a")
    for n in range(1, 4):
        await call(EditFile(), context, path="a", old=str(n), new=str(n + 1))
    assert (cwd / "a").read_text() == "4"


async def test_line_ends_are_kept_and_the_model_s_become_the_file_s(cwd: Path) -> None:
    for old, new in (("a\nb", "x\ny\nz"), ("a\r\nb", "x\r\ny\r\nz")):
        assert await edited(cwd, b"a\r\nb\r\nc", old=old, new=new) == b"x\r\ny\r\nz\r\nc"
        assert await edited(cwd, b"a\nb\nc", old=old, new=new) == b"x\ny\nz\nc"


async def test_of_mixed_line_ends_each_stays_as_it_is(cwd: Path) -> None:
    before = b"a\r\nb\nc\r\nd\r\n"
    assert await edited(cwd, before, old="b", new="B") == b"a\r\nB\nc\r\nd\r\n"
    assert await edited(cwd, before, old="b\nc", new="B\nC") == b"a\r\nB\nC\r\nd\r\n"
    assert await edited(cwd, before, old="b", new="B\nB") == b"a\r\nB\r\nB\nc\r\nd\r\n"


async def test_the_end_of_the_file_stays_as_it_is(cwd: Path) -> None:
    assert await edited(cwd, b"a\nb", old="a", new="x") == b"x\nb"
    assert await edited(cwd, b"a\nb\n\n", old="a", new="x") == b"x\nb\n\n"
    assert await edited(cwd, b"a\r\nb\r\n", old="b\n", new="b") == b"a\r\nb"


async def test_encoding_and_mark_are_kept(cwd: Path) -> None:
    for form in ("utf-8", "utf-8-sig", "latin-1", "utf-16"):
        before, after = "thé\r\ncafé\r\n".encode(form), "thé\r\nCAFÉ\r\n".encode(form)
        assert await edited(cwd, before, old="café", new="CAFÉ") == after


async def test_what_the_encoding_lacks_is_refused(cwd: Path) -> None:
    (cwd / "a").write_bytes(b"caf\xe9")
    context = session(cwd)
    await call(ReadFile(), context, path="a")
    with pytest.raises(ToolError, match=r"^The file's encoding, latin-1, has no '\\u20ac'\.$"):
        await prepare(EditFile(), context, path="a", old="caf", new="€")


async def test_what_is_not_saved_is_edited_where_it_is(cwd: Path) -> None:
    (cwd / "a").write_bytes(b"saved\r\n")
    client = FilesClient(reads=True, writes=True)
    client.buffers[str(cwd / "a")] = "not saved\n"
    context = session(cwd, client)
    await call(ReadFile(), context, path="a")
    await call(EditFile(), context, path="a", old="not saved", new="edited\ntwice")
    assert client.buffers[str(cwd / "a")] == "edited\ntwice\n"
    assert (cwd / "a").read_bytes() == b"saved\r\n"


async def test_saving_a_buffer_makes_no_difference(cwd: Path) -> None:
    (cwd / "a").write_bytes(b"a\r\nb\r\n")
    client = FilesClient(reads=True)
    client.buffers[str(cwd / "a")] = "a\nb\n"
    context = session(cwd, client)
    await call(ReadFile(), context, path="a")
    client.reads_files = False
    await call(EditFile(), context, path="a", old="b", new="c")
    assert (cwd / "a").read_bytes() == b"a\r\nc\r\n"


def test_the_card_names_the_file(cwd: Path) -> None:
    args = EditFile.Args(path="src/a.py", old="x", new="y")
    assert EditFile().title(args) == "Edit src/a.py"
    assert EditFile().locations(args, cwd) == [{"path": str(cwd / "src/a.py")}]
    assert (EditFile.kind, EditFile.access) == ("edit", "edit")


_PIECES = st.lists(st.sampled_from(["a", "b", "\n", "\r\n", " ", "é"]), min_size=1, max_size=12)


@given(_PIECES, _PIECES, st.data())
def test_any_replacement_is_the_one_that_the_model_sees(
    text: list[str], new: list[str], data: st.DataObject
) -> None:
    before = Text("".join(text))
    start = data.draw(st.integers(0, len(before.lf) - 1))
    old = before.lf[start : data.draw(st.integers(start + 1, len(before.lf)))]
    after, lines = replaced(before, old, "".join(new), everywhere=True)
    assert after.lf == before.lf.replace(old, "".join(new).replace("\r\n", "\n"))
    assert len(lines) == before.lf.count(old)


@given(st.binary(max_size=40), st.sampled_from([b"", b"\xef\xbb\xbf", b"\xff\xfe", b"\xfe\xff"]))
def test_whatever_is_read_as_text_is_written_as_it_was(data: bytes, mark: bytes) -> None:
    text = decode(mark + data)
    assert text is None or text.encode() == mark + data


# bytes that are not of the file's encoding

ODD = "thé →\r\n".encode() + b"odd \xe9 \xff\r\n" + "naïve\r\n".encode()


async def test_in_utf_8_with_an_odd_byte_the_byte_stays_and_the_rest_is_utf_8(cwd: Path) -> None:
    after = await edited(cwd, ODD, old="naïve", new="→ é 中")
    assert after == ODD.replace("naïve".encode(), "→ é 中".encode())


async def test_an_odd_byte_that_the_model_repeats_stays(cwd: Path) -> None:
    after = await edited(cwd, ODD, old="odd \ufffd \ufffd\nna", new="ODD \ufffd-\ufffd\nNA")
    assert after == ODD.replace(b"odd \xe9 \xff\r\nna", b"ODD \xe9-\xff\r\nNA")
    assert await edited(cwd, ODD, old="odd \ufffd \ufffd", new="é") == ODD.replace(
        b"odd \xe9 \xff", "é".encode()
    )


async def test_where_it_is_not_clear_which_odd_byte_is_meant_nothing_is_changed(cwd: Path) -> None:
    (cwd / "a").write_bytes(ODD)
    context = session(cwd)
    await call(ReadFile(), context, path="a")
    said = await problem(EditFile(), context, path="a", old="\ufffd \ufffd", new="\ufffd")
    assert "2 bytes are" in said
    for new in ("\ud800", "\udce9"):
        assert "half a character" in await problem(
            EditFile(), context, path="a", old="naïve", new=new
        )
    assert (cwd / "a").read_bytes() == ODD


async def test_the_card_and_the_model_get_no_half_characters(cwd: Path) -> None:
    (cwd / "a").write_bytes(ODD)
    context = session(cwd)
    result = await call(ReadFile(), context, path="a")
    assert "odd \ufffd \ufffd" in result.text
    assert "stands for a byte" in result.text
    action = await prepare(EditFile(), context, path="a", old="naïve", new="x")
    str((result, action.content)).encode()


async def test_odd_bytes_stay_in_files_with_a_mark(cwd: Path) -> None:
    for before in (
        b"\xef\xbb\xbfcaf\xe9 x \xe2\x86",
        "\ufeffcafé x ".encode("utf-16-le") + b"\x00\xd8y\x00",
        "\ufeffcafé x ".encode("utf-16-le") + b"y",
        "\ufeffcafé x ".encode("utf-16-be") + b"\xdc\x01",
        "\ufeffcafé x 中".encode("utf-32-le"),
        "\ufeffcafé x 中".encode("utf-32-be"),
        "\ufeffcafé x 中".encode("gb18030"),
    ):
        (cwd / "a").write_bytes(before)
        text = decode(before)
        assert text is not None, before
        after = await edited(cwd, before, old=" x ", new=" → ")
        assert after == before.replace(" x ".encode(text.encoding), " → ".encode(text.encoding))


async def test_a_file_that_is_half_latin_1_is_utf_8_and_keeps_those_bytes(cwd: Path) -> None:
    before = "thé\n".encode() * 3 + "café\n".encode("latin-1") * 4 + b"end\n"
    assert await edited(cwd, before, old="end", new="é→") == before.replace(b"end", "é→".encode())


def test_text_of_another_encoding_is_not_taken_for_utf_8() -> None:
    latin = "«LIBERTÉ», déjà vu, été, où, ça".encode("latin-1")
    chinese = "中文的文件有很多字符在里面".encode("gbk")
    for data in (latin, chinese, "日本語のファイルです".encode("shift-jis"), b"caf\xe9"):
        text = decode(data)
        assert text is not None
        assert text.encoding == "latin-1", data


@given(st.lists(st.sampled_from(["é", "→", "a", "\n", "\udce9", "\udcff", "\ufffd"]), max_size=20))
def test_whatever_odd_bytes_a_file_has_an_edit_beside_them_changes_nothing_else(
    parts: list[str],
) -> None:
    data = ("".join(parts) + "HERE é é é é é").encode("utf-8", "surrogateescape")
    before = decode(data)
    assert before is not None
    after, _ = replaced(before, "HERE", "→", everywhere=False)
    if before.encoding == "utf-8":
        assert after.encode() == data.replace(b"HERE", "→".encode())
    assert before.rewritten(before.lf).encode() == data


async def test_odd_bytes_do_not_pass_through_a_client(cwd: Path) -> None:
    (cwd / "a").write_bytes(ODD)
    client = FilesClient(reads=True, writes=True, disk=True)
    context = session(cwd, client)
    await call(ReadFile(), context, path="a")
    await call(EditFile(), context, path="a", old="naïve", new="x")
    assert (cwd / "a").read_bytes() == ODD.replace("naïve".encode(), b"x")
    assert client.written == []
