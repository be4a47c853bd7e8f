"""Commands that are run by others, or given to a shell as text: a refusal finds them."""

from pathlib import Path

import pytest

from acp_bridge.core.records import replace
from acp_bridge.features.rules import decide, paths
from acp_bridge.features.rules.definitions import Call, Tool
from tests.features.rules.judging import judged, of_command, of_path, place

pytestmark = pytest.mark.hazard("A1")

DENY = 'deny = ["Bash(rm *)"]\nallow = ["Bash"]'

REFUSED = [
    # a text that a shell reads
    "bash <<< 'rm x'",
    "sh <<EOF\nrm x\nEOF",
    "bash <<'EOF'\nls\nrm x\nEOF",
    "cat <<EOF | sh\nrm x\nEOF",
    "echo 'rm x' | sh",
    "echo rm x | bash -s",
    "printf 'rm x' | sudo bash",
    "zsh < <(echo rm x)",
    "source <(echo rm x)",
    ". /dev/stdin <<< 'rm x'",
    "at now <<< 'rm x'",
    # programs that run others of their words
    "bwrap --bind / / rm x",
    "bwrap --dev-bind / / sh -c 'rm x'",
    "firejail rm x",
    "setpriv --reuid 1 rm x",
    "fakeroot rm x",
    "tmux new -d 'rm x'",
    "hyperfine 'rm x'",
    "nix-shell --run 'rm x'",
    "ssh host 'rm x'",
    "uv run rm x",
    "npm exec -- rm x",
    "direnv exec . rm x",
    "git bisect run rm x",
    "git submodule foreach 'rm x'",
    "git rebase -x 'rm x' main",
    "git -c alias.x='!rm x' x",
    "tar cf a b --to-command='rm x'",
    "tar --checkpoint-action=exec='rm x' -cf a b",
    "env --split-string='rm x'",
    "/lib64/ld-linux-x86-64.so.2 /bin/rm x",
    "coproc N { rm x; }",
    "alias ls='rm x'",
    "hash -p /bin/rm ls",
    "- rm x",
    "printf -v 'a[$(rm x)]' y",
    "test -v 'a[`rm x`]'",
    # a name that a shell makes
    "$'rm' x",
    "$'\\x72m' x",
    '$"rm" x',
    "r{m,} x",
    "rm${IFS}x",
    "rm$IFS x",
    "/bin/r? x",
    "/bin/[r]m x",
    "=rm x",
    "r\0m x",
    # a name that is not known: any word may be it
    '"$(which rm)" x',
    "`which rm` x",
    "X=rm; $X y",
    "sh -c '$1 x' _ rm",
    'echo "${x:-`rm x`}"',
]


@pytest.mark.hazard("A1.5")
@pytest.mark.parametrize("command", REFUSED, ids=lambda command: command[:40])
def test_a_refusal_finds_what_another_program_or_a_shell_would_run(command: str) -> None:
    assert of_command(DENY, command) == "deny"


@pytest.mark.parametrize(
    "command",
    [
        "echo 'rm x' && bash x.sh",
        "source .venv/bin/activate && git commit -m 'rm x'",
        "docker run --rm image",
        "npm test rm",
        "git rm x",
        "bash -c 'git rm x'",
        "$EDITOR x.rm",
        "echo $HOME/rm 'rm x'",
    ],
)
def test_what_no_shell_would_run_is_no_command_to_refuse(command: str) -> None:
    assert of_command('deny = ["Bash(rm *)"]', command) == "ask"


@pytest.mark.hazard("A1.5")
@pytest.mark.parametrize(
    "command",
    [
        # a name that is not known, before words of which all are
        "$(which rm) -rf x",
        "`which rm` -rf x",
        "x=rm; $x -rf y",
        "x=/bin/rm; ls && sudo $x -rf y",
        "${x:-rm} -rf y",
        "${x-rm -rf y}",
        "r$@m -rf x",
        "r${x}m -rf x",
        "bash -c 'x=rm; $x -rf y'",
        # a body that the grammar does not look into
        "cat <<E\n`rm -rf x`\nE",
        'cat <<E\nsaid "a"\n`rm -rf "x"`\nE',
        "cat <<-E\n\t$(rm -rf x)\n\tE",
        # more words before what is run
        "timeout .5 rm -rf x",
        "taskset 0x1 rm -rf x",
        "flock -w 5 f rm -rf x",
        "ssh -p 22 host rm -rf x",
        "bash -c -e -u -x 'rm -rf x'",
        "su --command='rm -rf x'",
        "flock f --command 'rm -rf x'",
        "npx -c 'rm -rf x'",
        "npm exec --call='rm -rf x'",
        "git -c core.pager='rm -rf x' log",
        "bash -o errexit <<< 'rm -rf x'",
        "source /proc/self/fd/0 <<< 'rm -rf x'",
        "rbash -c 'rm -rf x'",
    ],
)
def test_a_refusal_of_more_words_is_found_wherever_the_name_comes_from(command: str) -> None:
    text = 'deny = ["Bash(rm -rf *)"]\nallow = ["Bash"]'
    assert of_command(text, command) == "deny"


@pytest.mark.parametrize(
    "command",
    [
        "$PYTHON x.py; git push; ls -f",
        "cat <<'E'\n`rm -rf x`\nE",
        "cat <<E\nrm -rf x, and $(date)\nE",
        "timeout 5 git rm -rf x",
    ],
)
def test_a_refusal_of_more_words_is_of_one_command(command: str) -> None:
    text = 'deny = ["Bash(git push -f *)", "Bash(rm -rf *)"]'
    assert of_command(text, command) == "ask"


@pytest.mark.parametrize(
    "command",
    [
        "eval 'ls > conf/x'",
        "sudo sh -c 'ls > conf/x'",
        "bash <<< 'ls > conf/x'",
        "echo 'ls > conf/x' | sh",
        "env bash -c 'bash -c \"ls > conf/x\"'",
        "cat <<E\n`ls > conf/x`\nE",
    ],
)
def test_a_file_that_a_script_in_a_line_writes_is_one_that_the_line_writes(command: str) -> None:
    assert of_command('deny = ["Edit(conf/**)"]', command) == "deny"
    guarded = decide.example(Tool.BASH, command.replace("conf/x", ".git/x"))
    assert judged('allow = ["Bash"]', guarded).protected
    assert of_command('deny = ["Edit(%s)"]', "git log --format='%h -> %s'") == "ask"


def test_programs_with_a_subcommand_that_runs_others_are_allowed_by_their_prefix() -> None:
    text = 'allow = ["Bash(npm test *)", "Bash(uv run pytest *)"]'
    assert of_command(text, "npm test -- -k x") == "allow"
    assert of_command(text, "uv run pytest -q") == "allow"


@pytest.mark.parametrize(
    ("command", "decision"),
    [
        ("bwrap " + "a " * 8000 + "rm x", "deny"),
        ("sh -c '" + "a " * 8000 + " ) rm x'", "deny"),
        ("'" + "x " * 30000 + "; rm x", "deny"),
        ("a " * 40000 + "; rm x", "ask"),
        ("env " + "-x " * 5000 + "rm x", "deny"),
        ("echo " + "{a,b}" * 3000, "ask"),
        ("sh -c " * 2000 + "'rm x'", "deny"),
        ("sed '" + " " * 15000 + "'", "ask"),
        ("cp " + "-t x " * 1500 + "y", "ask"),
    ],
    ids=["bwrap", "script", "words", "too long", "options", "braces", "shells", "sed", "cp"],
)
def test_a_line_that_is_made_to_take_long_is_judged_all_the_same(
    command: str, decision: str
) -> None:
    """The time is that of the test: it used to take minutes, and gigabytes."""
    assert of_command('deny = ["Bash(rm *)", "Bash(*zz*)"]\nallow = ["Bash"]', command) == decision


# --- paths ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("pattern", ["**/a/" * 50 + "z", "*a" * 100, "**/*a*/" * 50 + "z"])
def test_a_path_is_compared_in_one_pass_however_many_stars_a_pattern_has(pattern: str) -> None:
    text = f'deny = ["Read({pattern})"]\nallow = ["Read"]'
    assert of_path(text, Tool.READ, f"/{'a/' * 1000}") == "allow"
    assert of_path(text, Tool.READ, f"/{'a' * 250}") == "allow"


def test_a_word_with_stars_never_makes_the_bridge_walk_the_disk(tmp_path: Path) -> None:
    text = 'deny = ["Read(**/.env*)"]\nallow = ["Bash"]'
    for command in ("cat /**/x", "cat /*/*/*/*/*/*", "cat ~/**", "cat /proc/*/*/*/*"):
        assert of_command(text, command, place(tmp_path)) == "ask"
    (tmp_path / ".env").touch()
    assert of_command(text, "cat .e*", place(tmp_path)) == "deny"
    assert of_command(text, "cat x*", place(tmp_path)) == "allow"


def test_a_pattern_may_go_up_from_the_sessions_folder() -> None:
    text = 'deny = ["Edit(../secret/**)"]\nallow = ["Edit"]'
    assert of_path(text, Tool.EDIT, "/secret/x", place("/project")) == "deny"
    assert of_path(text, Tool.EDIT, "/project/../secret", place("/project")) == "deny"


@pytest.mark.parametrize(
    "path", ["/proc/self/cwd/x", "/proc/thread-self/root/project/x", "/proc/1/task/1/cwd/x"]
)
def test_a_path_that_leads_each_process_elsewhere_is_allowed_by_no_pattern(
    tmp_path: Path, path: str
) -> None:
    (tmp_path / "link").symlink_to(path.rpartition("/")[0])
    where = place(tmp_path)
    for named in (path, "link/x"):
        assert paths.depends_on_process(paths.resolved(named, where))
        assert of_path('allow = ["Read(**)", "Read(/proc/**)"]', Tool.READ, named, where) == "ask"
        denied = 'deny = ["Read(secret/**)"]\nallow = ["Read", "Bash"]'
        assert of_path(denied, Tool.READ, named, where) == "ask"
        assert of_command(denied, f"cat {named}", where) == "ask"
        assert of_command('allow = ["Bash", "Edit"]', f"tee {named}", where) == "ask"


@pytest.mark.parametrize(
    "command", ["rm .g*/config", "tee .[g]it/x", "rm /da*/keys.env", "rm /d**"]
)
def test_a_word_with_stars_that_may_be_what_guards_the_user_is_asked_about(command: str) -> None:
    assert of_command('allow = ["Bash"]', command, place("/project", "/data")) == "ask"
    assert of_command('allow = ["Bash"]', "rm *.py", place("/project", "/data")) == "allow"


def test_a_shells_own_command_that_runs_what_stands_in_a_subscript_is_not_allowed_by_prefix() -> (
    None
):
    text = 'allow = ["Bash(printf *)", "Bash(test *)"]'
    assert of_command(text, "printf -v 'a[$(rm x)]' y") == "ask"
    assert of_command(text, "printf '%s' x") == "allow"


@pytest.mark.parametrize(
    "command",
    [
        "cd / && tee data/permissions.toml",
        "cd /; cd data; tee permissions.toml",
        "cd / && rm -r ./data",
        "cd / && rm d*/permissions.toml",
        "cd / && cp -t./data x",
    ],
)
def test_behind_a_cd_what_guards_the_user_is_known_by_its_last_name(
    command: str, tmp_path: Path
) -> None:
    assert of_command('allow = ["Bash"]', command, place("/project", "/data")) == "ask"
    (tmp_path / "src").mkdir()
    assert of_command('allow = ["Bash"]', "cd src && rm *.py", place(tmp_path, "/data")) == "allow"


def test_a_command_in_a_folder_of_its_own_is_judged_there() -> None:
    in_git = Call(Tool.BASH, frozenset({Tool.BASH}), commands=("tee config",), cwd=".git")
    assert judged('allow = ["Bash"]', in_git).protected
    above = replace(in_git, commands=("tee data/x",), cwd="/")
    assert judged('allow = ["Bash"]', above, place("/project", "/data")).protected
    elsewhere = replace(in_git, cwd="src")
    assert judged('allow = ["Bash"]', elsewhere).action == "allow"
    assert judged('deny = ["Edit(src/**)"]\nallow = ["Bash"]', elsewhere).action == "deny"


def test_a_folder_above_what_guards_the_user_is_not_moved_or_deleted_by_a_rule() -> None:
    where = place("/project", "/home/me/data")
    assert of_path('allow = ["Edit"]', Tool.EDIT, "/home/me", where) == "ask"
    assert of_path('allow = ["Edit"]', Tool.EDIT, "/home/me/x", where) == "allow"
    assert of_path('allow = ["Read"]', Tool.READ, "/home/me", where) == "allow"
