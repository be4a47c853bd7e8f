"""What "always allow" would allow of a command, and never more."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.tools.command_grants import first_words, grant


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
        ("npm run build -- --watch", "npm run build"),
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
        ("go build -o bin/x", "go build"),
        ("make check -j4", "make check"),
        ("uv pip list", "uv pip list"),
        ("/usr/bin/python3.12 -m pytest", "/usr/bin/python3.12 -m pytest"),
    ],
)
def test_a_simple_command_is_known_by_its_first_words(command: str, words: str) -> None:
    assert " ".join(first_words(command)) == words


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
    assert first_words(command) == ()
    assert grant(command).key == ("shell", command)


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
        "*",
        "-x",
        "!",
        "",
        " ",
    ],
)
def test_what_its_first_words_do_not_tell_is_allowed_only_as_it_is(command: str) -> None:
    assert first_words(command) == ()


def test_a_program_elsewhere_is_another_program() -> None:
    keys = {grant(f"{program} status").key for program in ("git", "/usr/bin/git", "./git")}
    assert len(keys) == 3
    assert first_words("/usr/bin/git status") == ("/usr/bin/git", "status")


def test_the_option_says_what_it_would_allow() -> None:
    assert grant("git status -s").name == "`git status …`"
    assert grant("cat a |\n  wc").name == "exactly `cat a | wc`"
    assert len(grant("rm " + "x" * 1000).name) < 80


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
    assert grant(f"{before}{operator}{after}").key == ("shell", f"{before}{operator}{after}")
