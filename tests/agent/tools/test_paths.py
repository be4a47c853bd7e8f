"""Where a path leads: inside of the session's folders or not, through whatever links."""

import os
from pathlib import Path
from typing import Any

import pytest

from acp_bridge.core.records import replace
from agent.tools import AnyTool, Grant, ToolContext, ToolError, paths
from agent.tools.edit_file import EditFile
from agent.tools.files import MAX_TEXT
from agent.tools.list_files import ListFiles
from agent.tools.paths import Place, follow, locate, still
from agent.tools.read_file import ReadFile
from agent.tools.search import Search
from agent.tools.write_file import WriteFile
from tests.agent.tools.support import FilesClient, call, prepare, problem, run, session


async def outside(context: ToolContext, path: str) -> bool:
    return (await locate(path, context)).outside


async def test_a_path_is_relative_to_the_session_s_folder_or_absolute(cwd: Path) -> None:
    context = session(cwd)
    for path in ("a/b", "./a/../a/b", str(cwd / "a/b")):
        assert await locate(path, context) == Place(path, cwd / "a/b", str(cwd / "a/b"), False)


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "home"
    folder.mkdir()
    monkeypatch.setenv("HOME", str(folder))
    return folder


async def test_the_home_folder_is_meant_by_its_usual_names(cwd: Path, home: Path) -> None:
    context = session(cwd)
    for path in ("~/x", "$HOME/x", "${HOME}/x", f"file://{home}/x"):
        place = await locate(path, context)
        assert (place.real, place.outside) == (home / "x", True), path
    assert (await locate("~", context)).real == home
    assert (await locate("~nobody-of-this-name/x", context)).real == cwd / "~nobody-of-this-name/x"
    assert (await locate("./~/x", context)).real == cwd / "~/x"
    for path in ("~x", "a~", "a/~/x", "$HOMEX", "#~"):
        assert (await locate(path, context)).real == cwd / path
    assert WriteFile().locations(WriteFile.Args(path="~/x", content=""), cwd) == [
        {"path": str(home / "x")}
    ]


async def test_a_name_that_begins_with_a_tilde_and_is_there_is_that_file(cwd: Path) -> None:
    (cwd / "~root").write_text("x")
    assert (await locate("~root", session(cwd))).real == cwd / "~root"


async def test_writing_into_the_home_folder_makes_no_folder_in_the_project(
    cwd: Path, home: Path
) -> None:
    action = await prepare(WriteFile(), session(cwd), path="~/notes.txt", content="x")
    assert action.outside
    await run(action)
    assert (home / "notes.txt").read_text() == "x"
    assert os.listdir(cwd) == []


async def test_a_file_address_is_its_path(cwd: Path, home: Path) -> None:
    name = "a b#é.txt"
    (cwd / name).write_text("x")
    (home / "h").write_text("x")
    encoded = f"{cwd}/a%20b%23%C3%A9.txt"
    for path in (
        f"file://{encoded}",
        f"file:{encoded}",
        f"FILE://localhost{encoded}",
        f"file://{encoded}#L3",
        f"file://{encoded}?x=1",
        f"file://{cwd}/{name}",
        "file:a%20b%23%C3%A9.txt",
        "file:./a%20b%23%C3%A9.txt",
    ):
        assert (await locate(path, session(cwd))).real == cwd / name, path
    for path in ("file://~/h", "file:~/h", f"file://{home}/h"):
        assert (await locate(path, session(cwd))).real == home / "h", path
    assert "     1\tx" in (await call(ReadFile(), session(cwd), path=f"file://{encoded}")).text
    args = ReadFile.Args(path=f"file://{encoded}")
    assert ReadFile().locations(args, cwd) == [{"path": str(cwd / name)}]


async def test_a_file_address_of_another_machine_and_one_that_is_none_are_said_so(
    cwd: Path,
) -> None:
    said = await problem(ReadFile(), session(cwd), path="file://elsewhere.example/etc/hosts")
    assert said == (
        "file://elsewhere.example/etc/hosts names a file on another machine, elsewhere.example."
    )
    assert await problem(ReadFile(), session(cwd), path="file:///a%00b") == "That is not a path."
    args = ReadFile.Args(path="file://elsewhere.example/x")
    assert len(ReadFile().locations(args, cwd)) == 1


async def test_a_file_whose_name_looks_like_an_address_is_that_file(cwd: Path) -> None:
    (cwd / "file:x").write_text("x")
    assert (await locate("file:x", session(cwd))).real == cwd / "file:x"


async def test_what_leads_out_of_the_folders_is_told(cwd: Path) -> None:
    (cwd / "out").symlink_to("..")
    (cwd / "file").symlink_to(cwd.parent / "secret")
    (cwd / "dangling").symlink_to("/nowhere/at/all")
    context = session(cwd)
    leading_out = ["..", "../x", "/etc/passwd", "out", "out/new", "out/new/er", "file", "dangling"]
    for path in [*leading_out, f"{cwd}-beside"]:
        assert await outside(context, path), path
    for path in (".", "new", "new/er", "out/cwd/x"):
        assert not await outside(context, path), path


async def test_a_further_root_is_inside(cwd: Path, tmp_path: Path) -> None:
    root = tmp_path / "root"
    root.mkdir()
    context = session(cwd, None, root)
    assert not await outside(context, str(root / "x"))
    assert not await outside(context, "../root/x")
    assert await outside(context, "../rootless")


async def test_a_folder_that_is_itself_a_link_is_inside_and_named_as_the_client_does(
    cwd: Path, tmp_path: Path
) -> None:
    (tmp_path / "same").symlink_to(cwd)
    place = await locate("a", session(tmp_path / "same"))
    assert place == Place("a", cwd / "a", str(tmp_path / "same" / "a"), False)


async def test_what_can_be_no_path_is_said_to_be_none(cwd: Path) -> None:
    for path in ("a\0b", "\ud800"):
        assert await problem(ReadFile(), session(cwd), path=path) == "That is not a path."


async def test_a_path_that_leads_elsewhere_by_now_is_not_followed(cwd: Path) -> None:
    (cwd / "a").mkdir()
    (cwd / "a" / "f").write_text("x")
    context = session(cwd)
    calls = [
        await prepare(ReadFile(), context, path="a/f"),
        await prepare(WriteFile(), context, path="a/new", content="x"),
        await prepare(ListFiles(), context, path="a"),
        await prepare(Search(), context, path="a", pattern="x"),
    ]
    (cwd / "a").rename(cwd / "b")
    (cwd / "a").symlink_to("..")
    for action in calls:
        assert not action.outside
        with pytest.raises(ToolError, match="leads elsewhere now"):
            await run(action)


@pytest.mark.hazard("V9.10")
@pytest.mark.process
async def test_a_folder_that_is_exchanged_for_a_link_after_the_last_look_gives_no_file_outside(
    cwd: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The exchange comes when the path has been resolved for the last time."""
    outside = cwd.parent / "outside"
    outside.mkdir()
    context = session(cwd)
    calls: list[tuple[AnyTool, dict[str, Any]]] = [
        (ReadFile(), {"path": "a/f"}),
        (ReadFile(), {"path": "a/long"}),
        (EditFile(), {"path": "a/f", "old": "needle", "new": "changed"}),
        (WriteFile(), {"path": "a/f", "content": "changed"}),
        (WriteFile(), {"path": "a/new", "content": "changed"}),
        (WriteFile(), {"path": "a/b/new", "content": "changed"}),
        (ListFiles(), {"path": "a"}),
        (Search(), {"path": "a", "pattern": "needle"}),
        (Search(), {"path": "a/f", "pattern": "needle"}),
    ]
    for folder in (cwd / "a", outside):
        folder.mkdir(exist_ok=True)
        (folder / "f").write_text("needle\n")
        (folder / "long").write_text("needle\n" * (MAX_TEXT // 7 + 1))
    await call(ReadFile(), context, path="a/f")

    def exchanging(path: str, context: ToolContext) -> Place:
        place = follow(path, context)
        (cwd / "a").rename(cwd / "moved")
        (cwd / "a").symlink_to(outside)
        return place

    for tool, args in calls:
        action = await prepare(tool, context, **args)
        with monkeypatch.context() as exchange:
            exchange.setattr(paths, "follow", exchanging)
            with pytest.raises(ToolError, match="Could not") as refused:
                await run(action)
        assert "is a link now" in str(refused.value), (tool.name, args)
        (cwd / "a").unlink()
        (cwd / "moved").rename(cwd / "a")
    assert (outside / "f").read_text() == "needle\n"
    assert {file.name for file in outside.iterdir()} == {"f", "long"}


@pytest.mark.hazard("V9.11")
async def test_a_folder_that_is_a_link_when_the_client_has_read_gives_no_file_outside(
    cwd: Path,
) -> None:
    """The client follows links itself."""
    outside = cwd.parent / "outside"
    outside.mkdir()
    for folder in (cwd / "a", outside):
        folder.mkdir(exist_ok=True)
        (folder / "f").write_text(f"in {folder.name}")

    class Exchanging(FilesClient):
        async def read_file(self, path: str, line: int | None, limit: int | None) -> str:
            (cwd / "a").rename(cwd / "moved")
            (cwd / "a").symlink_to(outside)
            return await super().read_file(path, line, limit)

    client = Exchanging(reads=True, disk=True)
    assert "leads elsewhere now" in await problem(ReadFile(), session(cwd, client), path="a/f")


async def test_a_path_that_leads_where_it_did_is_followed(cwd: Path) -> None:
    context = session(cwd)
    await still(await locate("a", context), context)


async def test_a_grant_names_the_file_s_folder_and_what_is_done_there(cwd: Path) -> None:
    context = session(cwd)

    async def grant(tool: type, path: str, **args: str) -> tuple[tuple[str, ...], str]:
        action = await prepare(tool(), context, path=path, **args)
        return action.grant.key, action.grant.name

    assert await grant(WriteFile, "src/a", content="") == (
        ("edit", str(cwd / "src")),
        "edits in src",
    )
    assert await grant(WriteFile, "a", content="") == (("edit", str(cwd)), "edits in cwd")
    assert await grant(ReadFile, "/etc/hosts") == (("read", "/etc"), "reading files in /etc")
    assert await grant(Search, "/etc", pattern="x") == (("search", "/etc"), "searches below /etc")
    assert await grant(ListFiles, "/etc") == (("search", "/etc"), "searches below /etc")


async def test_a_link_in_the_folder_grants_where_it_leads(cwd: Path, tmp_path: Path) -> None:
    (cwd / "link").symlink_to(tmp_path / "elsewhere")
    action = await prepare(WriteFile(), session(cwd), path="link", content="x")
    assert action.outside
    assert action.grant.key == ("edit", str(tmp_path))


async def test_the_client_is_asked_for_the_file_behind_a_link(cwd: Path) -> None:
    (cwd / "real").write_text("disk")
    (cwd / "link").symlink_to("real")
    client = FilesClient(reads=True)
    client.buffers[str(cwd / "real")] = "unsaved"
    assert (await call(ReadFile(), session(cwd, client), path="link")).text == "     1\tunsaved"


async def test_a_change_of_what_git_runs_and_believes_is_asked_for_like_one_outside(
    cwd: Path,
) -> None:
    """A hook, or a setting such as core.fsmonitor, runs with the next `git status`."""
    (cwd / ".git/hooks").mkdir(parents=True)
    (cwd / "hooks").symlink_to(".git/hooks")
    context = session(cwd)
    asked = [".git/hooks/pre-commit", ".git/config", "hooks/x", "sub/.GIT/config"]
    free = [".gitignore", ".github/CODEOWNERS", "a.git/x"]
    for path in asked + free:
        args = {"path": path, "content": "x"}
        assert (await prepare(WriteFile(), context, **args)).outside == (path in asked), path
    assert not (await prepare(ReadFile(), context, path=".git/config")).outside


TRUSTED = [
    *(".vscode/tasks.json", ".vscode/a/b", ".zed/tasks.json", ".ZED/settings.json", ".idea/x"),
    *(".husky/pre-commit", ".devcontainer/devcontainer.json", ".envrc", "sub/.envrc"),
    *(".acp_bridge/hooks.toml", "hooks.toml", "trusted-hooks/x.json"),
    *(".pre-commit-config.yaml", "lefthook.yml", ".mise.toml", ".github/workflows/ci.yml"),
    *(".github/actions/x/action.yml", ".gitea/workflows/x.yaml", ".gitlab-ci.yml"),
    *(".gitlab-ci-deploy.yaml", ".circleci/config.yml", ".travis.yml", "azure-pipelines.yml"),
    *("Jenkinsfile", "bitbucket-pipelines.yml", ".buildkite/pipeline.yml", "all.code-workspace"),
    *(".exrc", ".dir-locals.el", "linked/tasks.json"),
]
NOT_TRUSTED = [
    *("vscode/x", "a.vscode/x", ".vscodes/x", "workflows/ci.yml", ".github/ISSUE_TEMPLATE/x.md"),
    *(".env", "envrc", "src/Jenkins.py", "Makefile"),
]


@pytest.mark.parametrize("path", TRUSTED + NOT_TRUSTED)
async def test_a_change_of_what_others_act_on_unasked_is_asked_for_like_one_outside(
    path: str, cwd: Path
) -> None:
    """An editor, a shell, a hook or a build server runs what stands there."""
    (cwd / "linked").symlink_to(".vscode")
    context = session(cwd)
    for given in (path, str(cwd / path)):
        action = await prepare(WriteFile(), context, path=given, content="x")
        assert action.outside == (path in TRUSTED)
    assert not (await prepare(ReadFile(), context, path=path)).outside


async def test_a_trusted_name_that_is_a_link_is_asked_for_and_one_above_the_folder_is_not(
    cwd: Path, tmp_path: Path
) -> None:
    (cwd / "conf").mkdir()
    (cwd / ".vscode").symlink_to("conf")
    assert (await prepare(WriteFile(), session(cwd), path=".vscode/x", content="")).outside
    inside = tmp_path / ".github" / "workflows"
    inside.mkdir(parents=True)
    assert not (await prepare(WriteFile(), session(inside), path="x", content="")).outside


@pytest.mark.hazard("R13")
async def test_a_change_of_what_is_kept_of_sessions_is_asked_for_like_one_outside(
    cwd: Path,
) -> None:
    """What the user always allowed stands there."""
    (cwd / "home/agent").mkdir(parents=True)
    (cwd / "linked").symlink_to("home/agent")
    context = replace(session(cwd), records=(cwd / "home/agent", cwd / "home/sessions"))
    asked = ["home/agent/1.jsonl", "home/agent/new/x", "linked/1.jsonl", "home/sessions/1.db"]
    for path in (*asked, "home/x", "home/agents/x"):
        action = await prepare(WriteFile(), context, path=path, content="x")
        assert action.outside == (path in asked), path


async def test_a_grant_for_a_trusted_file_is_for_that_file_alone(cwd: Path) -> None:
    action = await prepare(WriteFile(), session(cwd), path=".envrc", content="")
    assert action.grant == Grant(("edit", str(cwd / ".envrc")), "edits of .envrc")
