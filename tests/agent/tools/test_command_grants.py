"""What "always allow" would allow of a command, and never more."""

import contextlib
from pathlib import Path

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st

from acp_bridge.features.rules.known_commands import KNOWN_COMMANDS, NUMBER, OPERANDS
from agent.conversation.decisions import Key
from agent.tools import ToolContext, ToolError
from agent.tools.command_grants import first_words, grant
from agent.tools.shell import Shell, ShellArgs
from agent.turn.permissions import Permissions, Rejected
from tests.agent.support import MemoryClient
from tests.agent.tools.support import session

#: what decides from the text alone needs no folder
NOWHERE = session(Path("/nowhere/at/all"))


def covered(command: str, context: ToolContext = NOWHERE) -> str:
    """The first words that "always" would hold for; empty if it holds for the text alone."""
    key = grant(command, context).key
    return "" if key == ("shell", command) else " ".join(key[1:])


@pytest.mark.parametrize(
    ("command", "words"),
    [
        ("ls -la src", "ls"),
        ("pytest -x tests/a.py::test_b", "pytest"),
        ("  git   status --short", "git status"),
        ("git\tdiff HEAD~1 -- 'a b'", "git diff"),
        ('git commit -m "a message"', "git commit"),
        ("cargo test --all", "cargo test"),
        ("npm test", "npm test"),
        ("npm run build -- src", "npm run build"),
        ("make", ""),  # no target: not every target
        ("make check", "make check"),
        ("gh pr view 12", "gh pr view"),
        ("python -m pytest -q", "python -m pytest"),
        ("/usr/bin/git log", "/usr/bin/git log"),
        ("./gradlew build", "./gradlew build"),
        ("git log -1 --oneline HEAD..main src", "git log"),
        ("grep -rn TODO src", "grep"),
        ("go test ./...", "go test"),
        ("git log main..", "git log"),
        ("go test -run TestX -count=1 ./...", "go test"),
        ("make check -j4", "make check"),
        ("pip list", "pip list"),
        ("cargo clippy --all-targets -- -D warnings", "cargo clippy"),
        ("git commit -am 'it''s done'", "git commit"),
        ("git log --format='%h %s' --since=\"2 days ago\" -n5 HEAD~3^..", "git log"),
        ("grep -rn --include='*.py' 'a.*b$' src", "grep"),
        ("head -20 a.txt", "head"),
        ("pytest -xq --tb=short tests/a.py", "pytest"),
        ("git diff --stat -- a", "git diff"),
        ("date +%s", "date"),
        ("/usr/bin/python3.12 -m pytest", "/usr/bin/python3.12 -m pytest"),
    ],
)
def test_a_simple_command_is_known_by_its_first_words(command: str, words: str) -> None:
    assert covered(command) == words


@pytest.mark.parametrize(
    "command",
    [
        "git status; rm -rf /",
        "git status && rm x",
        "git status & rm x",
        "git status | sh",
        "git status > file",
        "git diff < file",
        "git status -s\nrm x",
        "git status -s\rrm x",
        "git log $(rm x)",
        "git log `rm x`",
        "git log $x",
        'git commit -m "$(rm x)"',
        "(git status)",
        "{ git status; }",
        "if true; then rm x; fi",
    ],
)
def test_what_the_shell_makes_more_of_is_allowed_only_as_it_is(command: str) -> None:
    assert grant(command, NOWHERE).key == ("shell", command)


@pytest.mark.parametrize(
    "command",
    [
        "git -c alias.x=!rm x",
        "git -C /elsewhere status",
        "git config alias.st '!rm -rf x'",
        "git bisect run rm x",
        "git --exec-path=/tmp status",
        "git",
        "A=b git status",
        "PATH=/tmp:/bin git status",
        "env A=b git status",
        "sudo ls",
        "/usr/bin/sudo ls",
        "rm -r build",
        "/bin/rm -r build",
        "sh -c ls",
        "bash script.sh",
        "python -c 'import os'",
        "python3.12 script.py",
        "node -e 1",
        "npm run",
        "npm exec thing",
        "npx thing",
        "uv run thing",
        "docker run -v /:/x image",
        "find . -delete",
        "xargs rm",
        "eval ls",
        ". ./script",
        "nice rm x",
        "timeout 5 rm x",
        "flock f rm x",
        "systemd-run rm x",
        "perf record rm x",
        "rg --pre ./x .",
        "sort -o file x",
        "less +!rm x",
        "Rscript -e 1",
        "julia -e 1",
        "pwsh -c ls",
        "git difftool -x rm",
        "npm explore x -- rm y",
        "nix develop -c rm x",
        "hatch shell",
        "mvn exec:exec -Dexec.executable=rm",
        "python -m timeit 'x'",
        "'git' status",
        "g\\it status",
        "~/bin/tool x",
        "$HOME/bin/tool x",
        "git 'status'",
        "git\u00a0status",
        # a program that is not known, or a subcommand
        "./run-tests --fast",
        "tool status",
        "./git status",
        "/tmp/git status",
        "docker container run -v /:/x image",
        "docker container ls",
        "uv tool run thing",
        "uv tool",
        "hatch env run thing",
        "yarn node x.js",
        "yarn exec thing",
        "git hook run x",
        "git fetch --upload-pack=x y",
        "git push",
        "git checkout .",
        "git grep -Ox y",
        "gh extension exec x",
        "gh api x",
        "gh pr merge 1",
        "python -m coverage run x.py",
        "python -m pip install x",
        "python -m",
        "pyenv exec x",
        "pyenv local 3",
        "tox -e py",
        "bazel run x",
        "bazel test x",
        "mix test",
        "aws s3 ls",
        "ansible all -m shell -a x",
        "cargo run",
        "kubectl get pods",
        "npm install x",
        "terraform plan",
        "rake test",
        "just test",
        # a known one with options or targets that do something else
        "git diff --ext-diff",
        "git log -p --output=x",
        "git show --outp x",
        "cargo test --config x",
        "go test -exec x ./...",
        "go vet --vettool=x",
        "make check deploy",
        "make check SHELL=x",
        "make check -f x",
        "make check -kf x",
        "mvn test exec:exec",
        "gradle build deploy",
        "./gradlew build --init-script x",
        "npm test --script-shell=x",
        "mypy --python-executable=x",
        "git log -1 --format=x -*/*",
        "git log --out=x",
        "git log --out'p'ut=x",
        'git log "--output=x"',
        "git log -- --output=x",
        "git log -pO x",
        "git log -Ox",
        "git log --=x",
        "git log -l @x",
        "git log --format=@x",
        "git diff --no-index a b",
        "git cat-file --textconv HEAD:a",
        "git branch -D x",
        "git commit -F x",
        "git commit --no-verify -m x",
        "git switch -f x",
        "git status *",
        "git status [a]",
        "git status ?",
        "git status {a,b}",
        "git status $'a'",
        "git status !x",
        "git status #x",
        "git status a=~/x",
        "git status 'a\nb'",
        "git status 'a",
        "GIT_PAGER=x git log",
        "apt list x -o Dir::Bin::dpkg=./evil",
        "apt list -oDir::Bin::dpkg=./evil",
        "uv pip list --python ./x",
        "dotnet build -p:PreBuildEvent=x",
        "dotnet build /p:PreBuildEvent=x",
        "go build -ldflags=-extld=x",
        "go build -o x",
        "go list -m example.com/x@latest",
        "ruff check --output-file=x",
        "ruff check --config x",
        "mypy @file",
        "mypy -v @file",
        "systemctl status -H host",
        "systemctl status -Hhost",
        "docker ps --host=tcp://x",
        "gh pr view -R host/a/b",
        "gh repo view host/a/b",
        "pip list -f http://x",
        "pip show --find-links=x",
        "pytest -p x",
        "pytest -vpx",
        "pytest -c x",
        "pytest --basetemp=x",
        "cargo build --target-dir=x",
        "cargo build -- --target-dir x",
        "npm run build -- --config x",
        "bun run node x.js",
        "yarn run node x.js",
        "tail +5 x",
        "date -f x",
        "grep -R x .",
        "grep -rR x .",
        "ls -LR",
        "diff a b",
        "head -c5 -- -x",
        "make check -- x",
        "make -f x",
        # it leads out of the folder
        "cat /etc/passwd",
        "cat ~/.ssh/id_rsa",
        "cat '/etc'/passwd",
        'cat "/etc/passwd"',
        "cat \\/etc/passwd",
        "cat ../x",
        "cat x/../../y",
        "cat .'.'/x",
        "cat .?/x",
        "cat ?./x",
        "cat [.][.]/x",
        "cat {..,}/x",
        "ls ..",
        "grep -f/etc/passwd x",
        "grep -f../x y",
        "grep -nf/etc/passwd x",
        "ls -I..",
        "pytest @/tmp/x",
        "ls .*",
        "grep --file=/etc/passwd x",
        "ls --x=../y",
        # it names the keys
        "cat keys.env",
        "cat home/KEYS.ENV",
        "cat k'eys.e'nv",
        "cat notify.toml",
        "*",
        "-x",
        "!",
        "",
        " ",
    ],
)
def test_what_its_first_words_do_not_tell_is_allowed_only_as_it_is(command: str) -> None:
    assert covered(command) == ""


def test_a_program_elsewhere_is_another_program() -> None:
    keys = {grant(f"{program} status", NOWHERE).key for program in ("git", "/usr/bin/git", "./git")}
    assert len(keys) == 3
    assert first_words("/usr/bin/git status") == ("/usr/bin/git", "status")


def test_the_option_says_what_it_would_allow() -> None:
    assert grant("git status -s", NOWHERE).name == "`git status …`"
    assert grant("cat a |\n  wc", NOWHERE).name == "exactly `cat a | wc`"
    assert len(grant("rm " + "x" * 1000, NOWHERE).name) < 80


@given(st.text(st.characters(codec="utf-8"), min_size=1, max_size=12), st.sampled_from(["", " x"]))
def test_no_program_that_is_not_known_has_a_grant_for_more_than_its_text(
    program: str, rest: str
) -> None:
    assert first_words(f"./{program}{rest}") == ()
    assert first_words(f"a-{program}{rest}") == ()


@given(
    st.text(st.sampled_from("gitrmsudo -cx=;&|$`\n\t'\"\\./()<>"), max_size=30),
    st.sampled_from([";", "&", "|", "\n", "`", "$(", ">", "<", "&&", "||"]),
    st.text(st.sampled_from("rm -f/x'\" "), max_size=10),
)
def test_no_command_with_a_second_one_in_it_has_the_key_of_a_simple_one(
    before: str, operator: str, after: str
) -> None:
    command = f"{before}{operator}{after}"
    assert grant(command, NOWHERE).key == ("shell", command)


# where its words lead


def test_a_path_is_followed_before_it_is_covered(cwd: Path) -> None:
    """A link of the repository's leads out, to the keys or nowhere, whatever its name says."""
    secret = cwd.parent / "secret"
    secret.write_text("s")
    (cwd / "l").symlink_to("..")
    (cwd / "s.txt").symlink_to(secret)
    (cwd / "k").symlink_to("keys.env")
    (cwd / "inside").symlink_to("a.txt")
    context = session(cwd)
    for command in (
        "cat l/secret",
        "cat s.txt",
        "cat k",
        "ls l",
        "grep -r x l",
        "ls -a l/",
        "cat a l",
    ):
        assert covered(command, context) == "", command
    for command in (
        "git diff s.txt",
        "git log --since=l/x",
        "pytest l/secret::a",
        "pytest --cov=l",
    ):
        assert covered(command, context) == "", command
    for command in ("cat inside", f"cat {cwd}/a.txt", "cat l/cwd/a.txt", "ls new/er"):
        assert covered(command, context), command
    extra = session(cwd, None, cwd.parent)
    assert covered("cat l/secret", extra) == "cat"


def test_a_folder_that_git_may_take_for_a_repository_has_its_configuration_edited_unasked(
    cwd: Path,
) -> None:
    """Git reads `config` beside a `HEAD`, and runs what it names."""
    below = cwd / "below"
    below.mkdir()
    (cwd / ".git").mkdir()
    assert covered("git status", session(below))
    (below / "HEAD").write_text("ref: refs/heads/main\n")
    assert covered("git status", session(below)) == ""
    assert covered("git status", session(cwd))


# what a session keeps of it


class Owner:
    """Calls the shell's permission as a turn does, without running anything."""

    def __init__(self, cwd: Path, choice: str, kept: dict[Key, bool] | None = None) -> None:
        self.client = MemoryClient(choice)
        self.permissions = Permissions(kept)
        self._context = session(cwd)

    async def asked(self, command: str) -> bool:
        before = len(self.client.asked)
        with anyio.fail_after(5):
            action = await Shell().prepare(ShellArgs(command=command), self._context)
            with contextlib.suppress(Rejected):
                await self.permissions.check(Shell(), action, {"title": command}, self.client)
        return len(self.client.asked) > before


@pytest.mark.hazard("C18")
async def test_a_file_named_like_an_option_is_asked_about_though_git_log_is_always_allowed(
    cwd: Path,
) -> None:
    (cwd / "--output=.git").mkdir()
    (cwd / "--output=.git" / "config").touch()
    owner = Owner(cwd, "allow_always")
    assert [await owner.asked(f"git {word} -s") for word in ("log", "status")] == [True, True]
    assert [await owner.asked(f"git {word}") for word in ("log", "status")] == [False, False]
    attack = "git log -1 --format=%B -*/*"
    assert await owner.asked(attack)
    assert not await owner.asked(attack)
    assert await owner.asked("git log -1 --format=%B -x/y")


@pytest.mark.hazard("C18")
async def test_what_an_earlier_version_kept_covers_no_more_than_a_new_answer(cwd: Path) -> None:
    (cwd / "l").symlink_to("..")
    kept: dict[Key, bool] = {
        ("execute", False, str(cwd), "shell", *words.split()): True
        for words in ("git log", "cat", "uv pip list", "brew info", "git log *")
    }
    owner = Owner(cwd, "reject_once", kept)
    assert not await owner.asked("git log -1")
    assert not await owner.asked("cat a.txt")
    for command in ("git log --output=x", "git log *", "cat l/x", "uv pip list", "brew info x.rb"):
        assert await owner.asked(command), command


async def test_a_rejection_holds_for_the_first_words_whatever_follows(cwd: Path) -> None:
    owner = Owner(cwd, "reject_always")
    assert await owner.asked("git status -s")
    owner.permissions.mode = "auto"
    for command in ("git status", "git status --odd", "git status; ls", "git  status *"):
        with pytest.raises(ToolError, match="reject this always"):
            await owner.asked(command)
    assert not await owner.asked("git log")


@pytest.mark.parametrize("words", sorted(KNOWN_COMMANDS))
def test_no_listed_option_is_a_pattern(words: tuple[str, ...]) -> None:
    """Each is compared whole: `--out` is not `--output`, and a new option is not listed."""
    for option in KNOWN_COMMANDS[words] - {OPERANDS, NUMBER}:
        assert option.isascii()
        assert option[0] in "-+"
        assert not set("*?[]") & set(option)
