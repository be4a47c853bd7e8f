"""Of a program that is known, a rule for its first words allows only what is known to be harmless.

A rule that names an option itself, or a command word for word, is the user's own decision.
"""

from pathlib import Path

import pytest

from acp_bridge.features.rules import decide
from acp_bridge.features.rules.definitions import Tool
from tests.features.rules.judging import judged, of_command, place

pytestmark = pytest.mark.hazard("A1")

ALLOWS = """allow = ["Bash(git *)", "Bash(sed *)", "Bash(sort *)", "Bash(npm *)", "Bash(find *)",
 "Bash(tar *)", "Bash(man *)", "Bash(python3 *)", "Bash(node *)", "Bash(make *)", "Bash(pytest *)",
 "Bash(uniq *)", "Bash(file *)", "Bash(rg *)", "Bash(echo *)", "Bash(cargo *)", "Bash(go *)",
 "Bash(perl *)", "Bash(docker *)", "Bash(gh *)", "Bash(jq *)", "Bash(deno *)",
 "Bash(yarn *)", "Bash(bun *)", "Bash(pnpm *)", "Bash(mvn *)", "Bash(dotnet *)", "Bash(test *)",
 "Bash(printf *)", "Bash(mine *)", "Bash(xxd *)", "Bash(zip *)", "Bash(split *)"]"""


@pytest.mark.hazard("A1.3")
@pytest.mark.parametrize(
    "command",
    [
        "sed -n 1,20p x",
        "sed -n '/a/,/b/p' x",
        "sed -E 's#a(b|c)#d#g' x y",
        "sed '$d' x",
        "git config --get user.name",
        "git rebase main",
        "git submodule update --init",
        "git log -Sabc -L1,2:f -n5",
        "git checkout -b x",
        "git push -u origin main",
        "sort -rn x",
        "sort -k2,2n -t, x",
        "find . -type f -mtime -1 -size +2k -print",
        "tar -tzf x.tgz",
        "tar tf x.tar",
        "python3 x.py -c --eval /tmp/x",
        "python3 --version",
        "docker ps --filter x",
        "gh pr view --web",
        "python3 -u src/x.py",
        "node --test t.js",
        "make -j4 test lint",
        "make test V=1",
        "pytest --tb=short -k 'a or b'",
        "pytest --reuse-db --cov=src",
        "npm run build -- --mode=production",
        "npm install x",
        "cargo test --release -p x -- --nocapture",
        "go test -race -count=1 ./...",
        "uniq -c x",
        "mine --exec anything -c x",
        "sed -n '10,40p;60,$p' x",
        "sed -n -e 1,5p -e '/a/,+3p' x",
        "sed -n '1,10!p' x",
        "sed 's/[[:space:]]*$//' x",
        "sed -n '/^[]a-z]/,/[^0-9]$/p' x",
        "sed 's#[/]#[#g' x",
        "find . -size -10k",
        "jq '.imports | .include, .\"import\"' x",
        "git log --topo-order --source -L 1,2:f",
        "git diff --histogram -M --function-context",
        "git rev-parse --abbrev-ref @{u}",
        "git config user.name",
        "git branch -D old",
        "git commit -F note",
        "git grep -n x -- '*.py'",
        "git --version",
        "rg --no-messages --max-columns 200 x",
        "npm install --save-dev x",
        "npm config get registry",
        "npm run build -w app",
        "npm -v",
        "yarn install --frozen-lockfile",
        "cargo build --target x",
        "cargo --version",
        "go test -coverprofile=c.out ./...",
        "go run ./x --config y",
        "node --test",
        "node --experimental-vm-modules x.js",
        "python3 -m json.tool x",
        "python3 -m venv .venv",
        "pytest -rN",
        "[ -t 1 ]",
        'test "$?" -eq 0',
        "printf '%-20s|%b 100%%\\n' a b",
        "printf '%d files\\n' 3",
        "printf -- '---\\n'",
    ],
)
def test_what_is_known_to_be_harmless_is_allowed_by_a_prefix(command: str) -> None:
    assert of_command(ALLOWS, command) == "allow"


@pytest.mark.hazard("A1.3")
@pytest.mark.parametrize(
    "command",
    [
        # options that run, write or set something: bundled, abbreviated, attached
        "pytest -q=x",
        "git diff -U=x",
        "sort -o x y",
        "sort --output=x y",
        "sort --outp=x y",
        "sort -uox y",
        "sed '1e rm x' y",
        "sed 's/a/rm x/e' y",
        "sed 's/a/b/w x' y",
        "sed -n 'w x' y",
        "sed -n -i 2p f",
        "sed -l 1p '1e CMD' f",
        "sed -ne 'p;1e rm' y",
        "sed --expression='1e rm' y",
        "sed -f x y",
        "sed '1p;s/a/b/w x' y",
        "sed -e '1e x' y",
        "sed -n -e 1p -e 'w x' y",
        # it follows links
        "rg -L x",
        # jq reads x.json from anywhere
        "jq -n 'import \"./x\" as $x; $x'",
        "jq 'include \"/x\"; .' y",
        # to GNU sed the bracket holds the slash: the address ends later, and `e` or `w` follows
        "sed '/[/s/]/e rm x;: /p' y",
        "sed -n '/[/s/]/w x/p' y",
        "sed -n '/a/,/[^]/s/]/w x/p' y",
        "sed 's,[,]p,w x,p' y",
        "git clone -u 'CMD' . y",
        "git clone 'ext::CMD' y",
        "git rebase -qx 'CMD' HEAD~1",
        "git rebase -xCMD",
        "git grep -nO./evil one",
        "git grep --open-files=CMD y",
        "git log -O./evil",
        "git log --output=x",
        "git archive -o F HEAD",
        "git config core.fsmonitor ./evil get",
        "git config core.pager CMD",
        "git config --global core.pager CMD",
        "git config set core.pager CMD",
        "git bisect run CMD",
        "git submodule foreach CMD",
        "git -c core.pager=CMD log",
        "git --exec-path=. log",
        "git co x",
        "tar -I'CMD' -tf y",
        "tar xfI x CMD",
        "tar -tf y --to-command=CMD",
        "man -P'CMD' ls",
        "find . -exec CMD {} +",
        "find . -delete",
        "find *",
        "rg --pre CMD x",
        "zip -rTT CMD x y",
        "split --filter=CMD x",
        "uniq A B",
        "xxd A B",
        "file -C",
        # code on the command line or on stdin, a configuration, a folder outside
        "python3 -m timeit CODE",
        "python3 -c CODE",
        "python3 -ic CODE",
        "echo CODE | python3",
        "echo CODE | python3 -",
        "echo CODE | python3 -u",
        "python3 ../x.py",
        "python3 ~/x.py",
        "node --import 'data:x' t.js",
        "node -pe CODE",
        "node --test --import x t.js",
        "perl -ne CODE x",
        "deno eval CODE",
        "make test 'X=$(shell CMD)'",
        "make SHELL=CMD test",
        "make -f evil.mk",
        "make -C .. test",
        "npm test --userconfig=evil",
        "npm test --script-shell=CMD",
        "npm --prefix .. test",
        "npm test -- --config=evil.js",
        "npm explore p -- CMD y",
        "npm exec CMD",
        "pytest -p evil",
        "pytest -c evil",
        "pytest --rootdir=..",
        "pytest /tmp/test_x.py",
        "pytest --confcutdir src",
        "cargo test --config x",
        "go test -exec CMD",
        "go run -exec CMD .",
        "go env -w GOFLAGS=-toolexec=CMD",
        "cargo run --config CMD",
        "cargo b --config CMD",
        "bun /tmp/x.ts",
        "dotnet ../x.dll",
        "mvn exec:exec -Dexec.executable=CMD",
        "npm x CMD",
        "npm exe CMD",
        "npm exec",
        "npm pub",
        "npm config set script-shell CMD",
        "pnpm config set script-shell CMD",
        "yarn node -e CODE",
        "bun x CMD",
        "deno run x.ts",
        "echo CODE | node inspect x.js",
        "tar tf host:x",
        "tar -tf host:x",
        "git init --bare x",
        "git config edit",
        # what a shell calculates with: it may set PATH, or run what is in the brackets
        "test -v 'a[PATH=0]'",
        "[ -v 'a[PATH=0]' ]",
        "test -t PATH=0",
        "test PATH=0 -eq 0",
        "printf %d PATH=0",
        "printf '%*s' PATH=0 x",
        "printf -- %d PATH=0",
    ],
)
def test_what_is_not_known_to_be_harmless_is_allowed_word_for_word_alone(
    command: str, tmp_path: Path
) -> None:
    assert of_command(ALLOWS, command, place(tmp_path)) == "ask"
    if "|" not in command and "[" not in command and "*" not in command and "#" not in command:
        quoted = command.replace("\\", "\\\\").replace('"', '\\"')
        assert of_command(f'allow = ["Bash({quoted})"]', command, place(tmp_path)) == "allow"


def test_an_option_that_the_users_own_rule_names_is_the_users() -> None:
    assert of_command('allow = ["Bash(pytest -p mine *)"]', "pytest -p mine -q x") == "allow"
    assert of_command('allow = ["Bash(pytest -p mine *)"]', "pytest -p mine -p evil x") == "ask"
    assert of_command('allow = ["Bash(sort -o out *)"]', "sort -o out x") == "allow"
    assert of_command('allow = ["Bash(python3 -m mytool *)"]', "python3 -m mytool x") == "allow"
    assert of_command('allow = ["Bash(python3 x.py *)"]', "python3 x.py -c /tmp") == "allow"
    assert of_command('allow = ["Bash(tar czf *)"]', "tar czf x.tgz src") == "allow"


@pytest.mark.hazard("A1.7")
@pytest.mark.parametrize(
    "command",
    [
        "git clone -u 'rm x' . y",
        "git rebase -qx 'rm x' HEAD~1",
        "man -P'rm x' ls",
        "tar -I'rm x' -tf y",
        "npm explore p -- rm y",
        "make test 'X=$(shell rm x)'",
        "sort --compress-program='rm x' y",
        "git log -O'rm x'",
        "mine -I'rm x'",
        "mine --with='rm x'",
        "node --import 'rm x' t.js",
    ],
)
def test_the_command_of_a_deny_in_an_option_that_is_not_known_is_a_persons_to_allow(
    command: str,
) -> None:
    text = 'deny = ["Bash(rm *)"]\nallow = ["Bash"]'
    judgement = judged(text, decide.example(Tool.BASH, command))
    assert judgement.deny or (judgement.protected and judgement.ask)


def test_a_program_whose_every_word_may_be_code_is_the_users_where_the_users_rule_names_it() -> (
    None
):
    assert of_command('allow = ["Bash(npm exec *)"]', "npm exec tsc -p x") == "allow"
    assert of_command('allow = ["Bash(deno run *)"]', "deno run x.ts") == "allow"
    assert of_command('allow = ["Bash(npm config set *)"]', "npm config set x y") == "allow"


def test_a_loop_gives_printf_and_test_no_words_that_nobody_has_read() -> None:
    text = 'allow = ["Bash(printf *)", "Bash(test *)", "Bash(ls *)"]'
    assert of_command(text, 'for i in *; do printf "$i" PATH=0; done') == "ask"
    assert of_command(text, 'for i in *; do test "$i" x; done') == "ask"
    assert of_command(text, 'for i in *; do [ -f "$i" ] && ls; done') == "allow"
    assert of_command(text, 'for i in 1 2; do printf "%d" "$i"; done') == "allow"


@pytest.mark.parametrize(
    ("command", "decision"),
    [
        ('for f in push; do git "$f" origin; done', "deny"),
        ('for f in publish; do mine "$f"; done', "deny"),
        ('for f in rm; do mine --with "$f" x; done', "ask"),
        ("mine publis?", "ask"),
        ("mine p*", "ask"),
        ('for f in p*; do mine "$f"; done', "ask"),
        ("cp *", "ask"),  # one may be named `-rf`
        ("cp *.txt x", "allow"),
        ('for f in a b; do git add "$f"; done', "allow"),
    ],
)
def test_a_deny_is_found_in_what_a_loop_and_the_names_of_files_make_of_a_word(
    command: str, decision: str
) -> None:
    denied = '"Bash(git push *)", "Bash(mine publish *)", "Bash(rm *)", "Bash(cp -rf *)"'
    allowed = '"Bash(git *)", "Bash(mine *)", "Bash(cp *)"'
    assert of_command(f"deny = [{denied}]\nallow = [{allowed}]", command) == decision
