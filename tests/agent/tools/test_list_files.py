"""list_files: what git would list, sorted and bounded."""

import os
from pathlib import Path
from typing import Any

import pytest

from agent.tools import list_files, ripgrep
from agent.tools.list_files import ListFiles
from tests.agent.tools.support import call, prepare, problem, session

pytestmark = pytest.mark.process


@pytest.fixture
def project(cwd: Path) -> Path:
    (cwd / ".git").mkdir()
    files = ["b.py", "a.py", "src/x.ts", "src/y.py", "src/deep/z.py", "notes.md", ".hidden/c.py"]
    ignored = ["nm/i.py", "src/gen.py", "src/deep/gen.py"]
    for name in (*files, *ignored, ".git/config"):
        (cwd / name).parent.mkdir(parents=True, exist_ok=True)
        (cwd / name).touch()
    (cwd / ".gitignore").write_text("nm/\ngen.py\n")
    return cwd


async def files(cwd: Path, **args: Any) -> list[str]:
    return (await call(ListFiles(), session(cwd), **args)).text.split("\n")


async def test_all_files_are_listed_sorted_without_what_git_ignores(project: Path) -> None:
    assert await files(project) == [
        ".gitignore",
        ".hidden/c.py",
        "a.py",
        "b.py",
        "notes.md",
        "src/deep/z.py",
        "src/x.ts",
        "src/y.py",
    ]


async def test_a_pattern_goes_by_the_name_or_by_the_path_and_names_nothing_ignored(
    project: Path,
) -> None:
    everywhere = [".hidden/c.py", "a.py", "b.py", "src/deep/z.py", "src/y.py"]
    for pattern, expected in {
        "*.py": everywhere,
        "**/*.py": everywhere,
        "*.{ts,md}": ["notes.md", "src/x.ts"],
        "src/*.py": ["src/y.py"],
        "/*.py": ["a.py", "b.py"],
        "./src/**/*.py": ["src/deep/z.py", "src/y.py"],
        "src/**": ["src/deep/z.py", "src/x.ts", "src/y.py"],
        "src/": ["src/deep/z.py", "src/x.ts", "src/y.py"],
        "{src,nm}/*.py": ["src/y.py"],
        "{src/*.py,*.md}": ["notes.md", "src/y.py"],
        "!*.py": [".gitignore", "notes.md", "src/x.ts"],
        "gen.py": ["[no files]"],
        "nm/*": ["[no files]"],
        "*.rs": ["[no files]"],
        "--files": ["[no files]"],
        "a:b": ["[no files]"],
        "src/x\n!src/y.py": ["[no files]"],
    }.items():
        assert await files(project, pattern=pattern) == expected, pattern


async def test_a_wrong_pattern_is_an_error_that_says_what_is_wrong(project: Path) -> None:
    for pattern in ("*.{py", "src/{*.py", "src/[", "["):
        said = await problem(ListFiles(), session(project), pattern=pattern)
        assert said.startswith("ripgrep: error parsing glob"), pattern
    assert await problem(ListFiles(), session(project), pattern="a\0b")


async def test_of_a_folder_the_paths_are_such_as_can_be_read(project: Path) -> None:
    assert await files(project, path="src/deep/..", pattern="*.py") == ["src/deep/z.py", "src/y.py"]
    assert await files(project, path="nm") == ["nm/i.py"]
    assert await files(project / "src", path="..", pattern="b.py") == [f"{project}/b.py"]


async def test_links_are_not_followed(project: Path) -> None:
    (project / "src" / "link").symlink_to(project)
    assert await files(project, path="src", pattern="b.py") == ["[no files]"]


async def test_of_many_files_the_first_are_listed_and_all_counted(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(list_files, "MAX_FILES", 2)
    result = await call(ListFiles(), session(project))
    assert result.text.split("\n") == [
        ".gitignore",
        ".hidden/c.py",
        "[2 of 8 files: narrow it with a pattern or a folder]",
    ]
    assert result.raw == {"path": str(project), "files": 2, "complete": False}
    whole = await call(ListFiles(), session(project), path="src/deep")
    assert whole.raw == {"path": str(project / "src/deep"), "files": 1, "complete": True}
    assert whole.content == (
        {"type": "content", "content": {"type": "text", "text": "```\nsrc/deep/z.py\n```"}},
    )


async def test_what_takes_too_long_is_stopped_and_said_so(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    os.mkfifo(project / "src/.ignore")  # ripgrep waits for what comes out of it
    monkeypatch.setattr(ripgrep, "_SECONDS", 0.05)
    result = await call(ListFiles(), session(project))
    assert "it took too long" in result.text
    assert result.raw["complete"] is False


async def test_what_is_no_folder_is_an_error(project: Path) -> None:
    os.mkfifo(project / "pipe")
    for path, said in {
        "a.py": "a.py is not a folder.",
        "pipe": "pipe is neither a folder nor a regular file.",
        "none": "Could not search none: No such file or directory.",
    }.items():
        assert await problem(ListFiles(), session(project), path=path) == said


def test_the_card_says_what_is_listed_and_where(cwd: Path) -> None:
    tool = ListFiles()
    assert tool.title(tool.Args()) == "List files"
    assert tool.title(tool.Args(path="src", pattern="*.py")) == "List `*.py` in src"
    assert tool.locations(tool.Args(), cwd) == []
    assert tool.locations(tool.Args(path="src"), cwd) == [{"path": str(cwd / "src")}]
    assert (tool.kind, tool.access) == ("search", "read")


async def test_an_absolute_pattern_lists_where_it_leads(
    project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    beside = tmp_path / "beside"
    (beside / "lib").mkdir(parents=True)
    (beside / "lib/l.py").touch()
    (project / "link").symlink_to("src")
    for pattern, expected in {
        f"{project}/src/*.py": ["src/y.py"],
        f"{project}/src/**/*.py": ["src/deep/z.py", "src/y.py"],
        f"{project}/**/z.py": ["src/deep/z.py"],
        f"{project}/*.py": ["a.py", "b.py"],
        f"{project}/link/*.py": ["src/y.py"],
        f"file://{project}/src/*.py": ["src/y.py"],
        f"{project}/src/y.py": ["src/y.py"],
        f"{project}/{{src,nm}}/*.py": ["src/y.py"],
        f"!{project}/src/**": [".gitignore", ".hidden/c.py", "a.py", "b.py", "notes.md"],
        "/src/*.py": ["src/y.py"],
        f"{beside}/**/*.py": [f"{beside}/lib/l.py"],
        "~/beside/*/*.py": [f"{beside}/lib/l.py"],
        "../beside/**/*.py": [f"{beside}/lib/l.py"],
        f"{tmp_path}/none/*.py": ["[no files]"],
    }.items():
        assert await files(project, pattern=pattern) == expected, pattern
    of_folder = await files(project, path="src", pattern=f"{project}/src/deep/*.py")
    assert of_folder == ["src/deep/z.py"]


async def test_a_pattern_that_leads_out_of_the_folders_is_asked_for_and_named(
    project: Path, tmp_path: Path
) -> None:
    for pattern in (f"{tmp_path}/*.py", "../*.py", f"file://{tmp_path}/*.py"):
        assert (await prepare(ListFiles(), session(project), pattern=pattern)).outside, pattern
        args = ListFiles.Args(pattern=pattern)
        assert ListFiles().locations(args, project) == [{"path": str(tmp_path)}]
    inside = await prepare(ListFiles(), session(project), pattern=f"{project}/src/*.py")
    assert not inside.outside


async def test_without_a_repository_what_gitignore_names_is_left_out_too(project: Path) -> None:
    (project / ".git/config").unlink()
    (project / ".git").rmdir()
    (project / "src/deep/.gitignore").write_text("z.py\n")
    expected = [".gitignore", ".hidden/c.py", "a.py", "b.py", "notes.md"]
    assert await files(project) == [*expected, "src/deep/.gitignore", "src/x.ts", "src/y.py"]
    below = ["src/deep/.gitignore", "src/x.ts", "src/y.py"]
    assert await files(project, path="src") == below
    assert await files(project, pattern="gen.py") == ["[no files]"]
    assert await files(project, path="nm") == ["nm/i.py"]


async def test_a_gitignore_above_the_session_s_folder_is_about_something_else(
    project: Path, tmp_path: Path
) -> None:
    (project / ".git/config").unlink()
    (project / ".git").rmdir()
    (tmp_path / ".gitignore").write_text("*\n")
    assert "src/y.py" in await files(project)
    assert "src/gen.py" not in await files(project)


async def test_in_a_repository_what_is_above_it_does_not_count(
    project: Path, tmp_path: Path
) -> None:
    (tmp_path / ".gitignore").write_text("*\n")
    assert "src/y.py" in await files(project)
