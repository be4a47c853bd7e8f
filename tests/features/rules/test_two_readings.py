"""A line is allowed only if the grammar of bash and our own reading of POSIX say the same of it.

The lines are those that real agents write, and those that were found to be read in two ways.
"""

from pathlib import Path

import pytest

from tests.features.rules.judging import of_command, place

pytestmark = pytest.mark.hazard("A1")

ORDINARY = """
default = "ask"
allow = ["Read", "Bash(git status *)", "Bash(git diff *)", "Bash(git log *)", "Bash(git show *)",
  "Bash(git branch)", "Bash(git add *)", "Bash(git commit -m *)", "Bash(git stash list)",
  "Bash(ls *)", "Bash(cat *)", "Bash(head *)", "Bash(tail *)", "Bash(wc *)", "Bash(grep *)",
  "Bash(rg *)", "Bash(find . -name *)", "Bash(echo *)", "Bash(pwd)", "Bash(which *)",
  "Bash(npm test *)", "Bash(npm run lint *)", "Bash(pytest *)", "Bash(python3 -m pytest *)",
  "Bash(make test)", "Bash(make lint)", "Bash(cargo test *)", "Bash(go test *)",
  "Bash(mkdir -p *)", "Bash(cd *)", "Bash(test *)", "Edit(src/**)", "Bash(nl *)", "Bash(sed *)",
  "Bash(sort *)"]
deny = ["Bash(rm *)", "Bash(curl *)", "Bash(git push *)", "Read(**/.env)", "Read(**/.env.*)"]
ask = ["Bash(git commit --amend *)"]
"""

ALLOWED = [
    "cd {P} && npm test",
    "cd {P} && git status",
    "cd src && ls",
    "cd src && cd .. && ls",
    "cd {P}/src\nls",
    "cd src || exit 1; ls",
    "git status && git diff",
    "git --no-pager log -3",
    "git log --oneline -20",
    "git -C . status",
    "git diff HEAD~1 -- src/a.py",
    "git show HEAD --stat",
    "git show HEAD^ stash@{{0}}",
    "GIT_PAGER=cat git log -5",
    "CI=1 npm test",
    "NO_COLOR=1 pytest -q",
    "LC_ALL=C TZ=Europe/Berlin git log",
    "pytest -q tests/test_a.py::test_b -x",
    'pytest -k "a and not b" 2>&1 | tail -20',
    "pytest -q \\\n  tests",
    "pytest --benchmark-only -x",
    "python3 -m pytest -q | head -50",
    "npm test -- --watch=false",
    "npm test -- -t 'a test'",
    "npm run lint 2>&1",
    "make test",
    "make test 2>&1 | tail -n 30",
    "cargo test --lib",
    "cargo test -- --nocapture",
    "go test ./...",
    "ls -la src",
    "ls src/*.py",
    "cat src/a.py | head -40",
    "head -n 20 README.md && tail -n 5 README.md",
    'grep -rn "def main" src',
    'grep -n "main$" src/a.py',
    "grep -c x a.txt || true",
    "! grep -q x a.txt",
    "[ -f a.txt ] && cat a.txt",
    '[ "$?" = 0 ] && ls',
    "test -d src && ls src",
    'echo "done: $?"',
    'echo "done: ${{?}}"',
    'for f in src tests; do echo "$f:"; ls "${{f}}"; echo "$f: $?"; done',
    'for f in src/*.py; do [ -f "$f" ] && head -5 "$f"; done',
    "find . -name '*.py' -not -path '*/.git/*' | head -50",
    "grep -rn x . --exclude-dir=.git",
    "ls -la .git",
    "NODE_ENV=test npm test",
    'echo "a" && echo "b"',
    "# what is there\nls # all of it",
    "wc -l src/*.py",
    "find . -name '*.py' | wc -l",
    'find . -name "*.md" -not -path "./node_modules/*"',
    "find . -name '*.py' ! \\( -name a.py -o -name b.py \\)",
    "rg -n \"TODO\" src -g '*.py'",
    "rg --files",
    "mkdir -p build/out",
    "which python3",
    "pwd; ls",
    'git add src/a.py && git commit -m "Fix the parser"',
    "git commit -m \"$(cat <<'EOF'\nFix the parser (again)\n\nIt didn't end.\nEOF\n)\"",
    "git commit -m \"$(cat <<'EOF'\nFix `parse(x)`\n\nBy: A <a@b.c>\nEOF\n)\" && git status",
    'for f in src/*.py; do wc -l "$f"; done',
    'for d in src tests; do ls "${{d}}"; cat "$d/a.py"; done | head',
    "if [ -d src ]; then ls src; else ls; fi",
    "cat a.txt > /dev/null",
    "echo x > src/out.txt",
    "cat < a.txt",
    "sed -n '1,200p' src/a.py",
    "sed -n '/^## [0-9]/p' README.md",
    "sed 's/a/b/g' src/a.py",
    "nl -ba src/a.py",
    "sort -k2,2n -t: src/a.py",
    "git diff --stat | cat",
    "git commit -m 'remove rm calls'",
    'grep -rn "rm " src',
    'echo "use curl"',
    "bash -lc 'git status'",
    "timeout 60 pytest -q",
]


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / "src").mkdir()
    (tmp_path / "tests").mkdir()
    (tmp_path / "out").symlink_to("/tmp")
    (tmp_path / "src" / "link").symlink_to("/tmp")
    (tmp_path / "+0").mkdir()
    (tmp_path / ".env").touch()
    return tmp_path


@pytest.mark.parametrize("command", ALLOWED)
def test_an_ordinary_line_is_allowed_by_ordinary_rules(command: str, project: Path) -> None:
    assert of_command(ORDINARY, command.format(P=project), place(project)) == "allow"


#: bash, dash and zsh run another line than one of the readings sees; or each another one.
DIFFERING = [
    "git status -s \n\\rm -rf src",
    "nice git status -s \n\\rm -rf src",
    "timeout 5 git status -s \n\\rm -rf src",
    "sh -c 'git status -s \n\\rm -rf src'",
    "ls; git status -s \n\\rm -rf src",
    "ls \t\n\n\\touch X",
    "git <& -push log",
    "cat src/a <& -.env",
    "ls ] ]",
    "cat -2>/dev/null",
    "ls 10</dev/null",
    # zsh: a part of a variable's value, which it also calculates with, a pattern of numbers
    'for f in x.env; do cat "$f[2,5]"; done',
    "for b in 'n[$(ls)]'; do for n in 5; do echo \"$n[b]\"; done; done",
    'for f in a/.env; do cat "$f:t"; done',
    'echo "$?[1]"',
    "cat <-> src/f",
    "cat a<1-5>src/f",
    # what is not read at all
    "ls &",
    "ls &> src/f",
    "ls |& cat",
    "ls > src/{{a,b}}",
    "ls =ls",
    "echo a=~/x",
    "echo ~root",
    "ls $HOME",
    'ls "$HOME"',
    'ls "$x"',
    "for PATH in .; do ls; done",
    'for f in a; do for f in .env; do ls; done; cat "$f"; done',
    "for path in .; do ls; done",
    'for f in ls; do "$f"; done',
    "for f in a; do ls $f; done",
    'for f in ~/a; do cat "src/$f"; done',
    "timeout 5 [ -f a",
    "while true; do ls; done",
    "if ls; then cat; fi > src/f",
    "(ls)",
    "{{ ls; }}",
    "ls() {{ cat; }}",
    "cat <<EOF\nx\nEOF",
    "cat <<< x",
    'git commit -m "$(cat <<EOF\n`ls`\nEOF\n)"',
    'git commit -m "$(cat <<\'EOF\'\na) " b\nEOF\n)"',
    "git commit -m \"$(cat <<'EOF'\nEOF\nrm x\nEOF\n)\"",
    "git commit -m \"$(cat <<'EOF'\n(\nEOF)\n$(ls)\nEOF\n)\"",
    "git commit -m \"$(cat <<'EOF'\nx\nEOF\nrm x)\"",
    # what the bash of macOS takes for the end of such a text
    "git commit -m \"$(cat <<'EOF'\nIt's\nEOF\n)\" ')\"; rm x '",
    "git commit -m \"$(cat <<'EOF'\n`\nEOF\n)\" '`)\"; rm x #'",
    'git commit -m "$(cat <<\'EOF\'\n"(" ) " ; rm x ; "\nEOF\n)"',
    "'ls\n'",
    "ls \\\n\\rm",
    "ls\\ x",
]


@pytest.mark.hazard("A1.2")
@pytest.mark.parametrize("command", DIFFERING, ids=lambda command: repr(command)[:40])
def test_a_line_that_two_readings_differ_about_is_allowed_by_no_rule(
    command: str, project: Path
) -> None:
    text = 'allow = ["Bash", "Edit"]\ndeny = ["Bash(rm *)", "Bash(git push *)"]'
    assert of_command(text, command.format(), place(project)) != "allow"


@pytest.mark.parametrize(
    "command",
    [
        "NODE_ENV=production npm test",
        "RUST_LOG=debug npm test",
        "RUST_BACKTRACE=full npm test",
        "PYTHONUNBUFFERED=x npm test",
        "PYTEST_ADDOPTS='-p evil' pytest",
        "GIT_PAGER=./evil git log",
        "PATH=.:/bin ls",
        "NODE_OPTIONS='--import data:x' npm test",
        "LD_PRELOAD=./x.so ls",
        "IFS=x; ls",
        "TERM=../x ls",
        "TZ=:/etc/passwd ls",
        "TZ=../x ls",
    ],
)
def test_an_assignment_that_may_make_a_program_do_more_is_asked_about(
    command: str, project: Path
) -> None:
    assert of_command('allow = ["Bash"]', command, place(project)) == "ask"


# --- cd ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "command",
    [
        "cd nosuch; cat a",
        "cd nosuch && ls",
        "cd src | cat x",
        "(cd src); cat x",
        "cd out && cat ../x",
        "cd src/link && ls",
        "cd - && ls",
        "cd +0 && ls",
        "cd && ls",
        "cd .. && ls",
        "cd / && ls",
        "cd src tests && ls",
        "cd -P src && ls",
        "ls || cd src; ls",
        "! cd src; ls",
        "if cd src; then ls; fi",
        "pushd src && ls",
        "timeout 5 cd src",
        "git -C .. status",
        "git -C out status",
        "CDPATH=/ cd src && ls",
    ],
)
def test_a_cd_that_may_lead_elsewhere_is_asked_about(command: str, project: Path) -> None:
    assert of_command('allow = ["Bash"]', command, place(project)) == "ask"


@pytest.mark.parametrize(
    ("command", "decision"),
    [
        ("cd src && cat x", "deny"),
        ("cd src && cat ../x", "allow"),
        ("cd src; cat ../x", "allow"),
        ("cd src; cat x", "deny"),
        ("cat x && cd src", "allow"),
        ("cd src || cat x", "deny"),
        ("cd src && cd .. && cat x", "allow"),
        ("git -C src add x", "deny"),
        ("cd src && echo a > y", "allow"),
        ("cd src; echo a > y", "ask"),
        ("cd tests && echo a > ../src/y", "allow"),
        ("sh -c 'cd src && ls'; cat x", "allow"),
        ("sh -c 'cd src && cat x'", "deny"),
    ],
)
def test_behind_a_cd_paths_are_in_the_new_folder_and_in_both_where_it_may_have_failed(
    command: str, decision: str, project: Path
) -> None:
    text = 'deny = ["Read(src/x)"]\nallow = ["Bash", "Edit(src/y)"]'
    assert of_command(text, command, place(project)) == decision


# --- paths ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("command", "decision"),
    [
        ("cat src/a", "allow"),
        ("cat src/a/b", "allow"),
        ("cat src/../../x", "ask"),
        ("cat src/..", "ask"),
        ("cat src/link/x", "ask"),
        ("cat src/*", "ask"),  # one of them is a link that leads out
        ("cd tests && cat src/a", "ask"),
        ("./scripts/x", "allow"),
        ("cd tests && ./scripts/x", "ask"),
        ("./scripts/../evil", "ask"),
        ("curl https://example.org/../x", "allow"),
    ],
)
def test_a_word_that_matches_a_star_beside_a_slash_stays_below_it(
    command: str, decision: str, project: Path
) -> None:
    rules = '["Bash(cat src/**)", "Bash(cd *)", "Bash(./scripts/*)", "Bash(curl https://example.org/*)"]'
    assert of_command(f"allow = {rules}", command, place(project)) == decision


@pytest.fixture
def outside(project: Path) -> Path:
    """A file beside the session's folder, with a folder in which patterns may begin."""
    (project / "src" / ".hidden").mkdir()
    (project / "src" / "a.py").touch()
    far = project.parent / "far"
    far.mkdir(exist_ok=True)
    (far / "x.py").touch()
    return far


#: dash and older versions of bash put `..` in the place of some of these, or options make them.
PARENTS = [".*", ".?", "..*", ".[.]", "[.]*", "[.][.]", ".[a.]", ".[!a]", ".[^a]", ".[+-/]", "'.'*"]


@pytest.mark.parametrize("piece", PARENTS)
def test_a_pattern_that_may_stand_for_the_folder_above_leads_out(
    piece: str, project: Path, outside: Path
) -> None:
    here, far = place(project), f"src/{piece}/{piece}/far/x.py"
    of_src = 'allow = ["Bash(cat src/**)", "Bash(./src/**)"]'
    assert of_command(of_src, f"cat src/{piece}", here) == "ask"
    assert of_command(of_src, f"cat src/{piece}/a.py", here) == "ask"
    assert of_command(of_src, f"cat {far}", here) == "ask"
    assert of_command('allow = ["Bash(pytest *)"]', f"pytest {far}", here) == "ask"
    looped = f'for d in {piece}; do cat "src/$d/x.py"; done'
    assert of_command(of_src, looped, here) == "ask"
    refused = f'allow = ["Bash"]\ndeny = ["Read({outside}/**)"]'
    assert of_command(refused, f"cat {far}", here) != "allow"
    assert of_command(refused, "cat src/.hidde*", here) == "allow"
    guarded = place(project, outside)
    assert of_command('allow = ["Bash"]', f"tee {far}", guarded) == "ask"
    assert of_command('allow = ["Bash"]', "tee src/.hidde*", guarded) == "allow"


def test_a_pattern_with_too_many_folders_above_in_it_is_asked_about(project: Path) -> None:
    text = 'allow = ["Bash"]\ndeny = ["Read(/etc/**)"]'
    assert of_command(text, f"cat {'.*/' * 30}etc/passwd", place(project)) == "ask"


def test_a_pattern_is_compared_with_the_files_of_the_folder_in_which_it_is_used(
    project: Path, outside: Path
) -> None:
    here = place(project, outside / "rules")
    (project / "tests" / "src").mkdir()
    (project / "tests" / "src" / "a.py").touch()
    allowed = ("cat src/**", "cd *", "pytest *", "tee *", "rm *")
    text = "allow = [{}]".format(", ".join(f'"Bash({each})"' for each in allowed))
    assert of_command(text, "cat src/a*", here) == "allow"
    assert of_command(text, "cd tests && cat src/a*", here) == "ask"
    assert of_command(text, "cat src/no*", here) == "allow"
    assert of_command(text, "cd tests && cat src/no*", here) == "ask"
    assert of_command(text, "pytest src/lin*/x.py", here) == "ask"
    assert of_command(text, "cat 'src/lin*/x.py'", here) == "allow"
    for ordinary in ("src/a*", "-k '.*/x'", "'src/**/*.py'", "tests/**/*.py"):
        assert of_command(text, f"pytest {ordinary}", here) == "allow"
    (outside / "rules").mkdir()
    assert of_command(text, "tee ../fa?/rules/x", here) == "ask"
    assert of_command(text, "rm -r ../fa*", here) == "ask"
    assert of_command(text, "rm -r src/a*", here) == "allow"


#: what some shells take for all but these characters, by the place or as they are, and others not.
@pytest.mark.parametrize("bracket", ["[^v]", "[^x]", "[a-z]", "[A-Z]", "[!a-c]", "[.-z]", "[^!]"])
def test_brackets_that_shells_read_differently_are_read_in_each_way(
    bracket: str, project: Path
) -> None:
    text = 'allow = ["Bash"]\ndeny = ["Read(**/.env)", "Bash(git vv *)", "Bash(vv *)"]'
    here = place(project)
    assert of_command(text, f"cat .en{bracket}", here) != "allow"
    assert of_command(text, f"git v{bracket} x", here) != "allow"
    assert of_command(text, f"./v{bracket} x", here) != "allow"
    guarded = place(project, project / ".env")
    assert of_command('allow = ["Bash"]', f"tee .en{bracket}", guarded) == "ask"
    out = 'allow = ["Bash(cat src/**)"]'
    assert of_command(out, f"cat src/lin{bracket}/x", here) != "allow"


def test_brackets_that_all_shells_read_alike_stand_for_these_characters(project: Path) -> None:
    text = 'allow = ["Bash"]\ndeny = ["Read(**/.env)"]'
    for bracket in ("[xy]", "[!v]", "[0-9]", "[x_.]"):
        assert of_command(text, f"cat .en{bracket}", place(project)) == "allow"
    for bracket in ("[xv]", "[!x]"):
        assert of_command(text, f"cat .en{bracket}", place(project)) == "deny"


@pytest.mark.parametrize(
    "command",
    [
        "git show HEAD:.env",
        "git show ':(icase).ENV'",
        "git log -L1,1:.env",
        "git log -p -- '.en*'",
        "git add '*env'",
        "grep -rh --include='.e*' KEY .",
        "rg -g '.e*' KEY",
        "rg -g.e* KEY",
        "rg -g '**/.{env}' KEY",
        r"rg -g '.e\nv' KEY",
        r"git grep KEY -- '.e\nv'",
    ],
)
def test_a_path_is_found_in_the_ways_in_which_git_and_grep_name_one(
    command: str, project: Path
) -> None:
    text = 'deny = ["Read(**/.env)"]\nallow = ["Bash"]'
    assert of_command(text, command, place(project)) in ("ask", "deny")
    assert of_command(text, "git add '*.py' && rg -g '*.py' x", place(project)) == "allow"


def test_a_pattern_that_begins_with_a_star_may_name_a_hidden_file_that_a_rule_names_so_far(
    project: Path,
) -> None:
    text = 'deny = ["Read(**/.env*)"]\nallow = ["Bash"]'
    for command in ("git log -p -- '*nv'", "rg -g '*env' x", "git grep x -- ':(glob)**/*nv'"):
        assert of_command(text, command, place(project)) == "ask"
    assert of_command(text, "git add '*.py' && rg -g '*.py' x", place(project)) == "allow"


def test_a_star_stands_for_hidden_files_in_few_shells_so_a_person_is_asked(project: Path) -> None:
    (project / ".env").touch()
    text = 'deny = ["Read(**/.env*)"]\nallow = ["Bash"]'
    for command in ("ls *", "wc -l *", "cat ./?env", "cat [.]env"):
        assert of_command(text, command, place(project)) == "ask"
    for command in ("cat .e*", "cat .??v"):
        assert of_command(text, command, place(project)) == "deny"
    assert of_command(text, "cat src/*", place(project)) == "allow"


def test_a_folder_that_is_a_repository_without_its_name_is_guarded_as_one(project: Path) -> None:
    bare = project / "src" / "bare"
    for name in ("objects", "refs"):
        (bare / name).mkdir(parents=True)
    for command in (
        "echo x > src/bare/HEAD && cd src/bare && git status",
        "cp src/HEAD src/bare",
        "mv src/x src/bare/HEAD",
        "cd src/bare && tee HEAD",
    ):
        assert of_command('allow = ["Bash", "Edit(src/**)"]', command, place(project)) == "ask"
    assert of_command('allow = ["Bash"]', "git reset HEAD", place(project)) == "allow"
    text = 'allow = ["Bash", "Edit(src/**)"]'
    assert of_command(text, "echo x > src/bare/config", place(project)) == "allow"
    (bare / "HEAD").touch()
    assert of_command(text, "echo x > src/bare/config", place(project)) == "ask"
    assert of_command(text, "tee src/bare/hooks/x", place(project)) == "ask"
    assert of_command(text, "cd src/bare && git status", place(project)) == "ask"
    assert of_command(text, "git -C src/bare status", place(project)) == "ask"
    assert of_command(text, "cd src/bare && ls", place(project)) == "allow"
    assert of_command(text, f"git push file://{bare} main", place(project)) == "ask"
    assert of_command('allow = ["Bash(git *)"]', "git log", place(bare)) == "ask"


@pytest.mark.parametrize(
    ("rule", "command", "decision"),
    [
        ("./run.sh", "./run.sh", "allow"),
        ("./run.sh", "cd src && ./run.sh", "ask"),
        ("sh x.sh", "sh x.sh", "allow"),
        ("sh x.sh", "cd src && sh x.sh", "ask"),
        ("make test", "cd src && make test", "allow"),
        ("./build*", "./build.sh", "allow"),
        ("./build*", "./build/../evil", "ask"),
        ("cat docs*", "cat docs/../../x", "ask"),
    ],
)
def test_a_rule_names_a_program_of_the_sessions_folder_and_no_other_of_that_name(
    rule: str, command: str, decision: str, project: Path
) -> None:
    text = f'allow = ["Bash({rule})", "Bash(cd *)"]'
    assert of_command(text, command, place(project)) == decision
