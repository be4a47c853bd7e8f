"""Lists what is harmless: programs with their options, and assignments. Words alone: rules and
the built-in agent read them, each in a way of its own.

Invariants
- An option stands here only if it is harmless with any value: it names no program, host or file to
  write, no configuration and no list of further files, and no place to work in. What is not listed
  is asked for, also if a new version of a program brings it.
- An option that follows links below a folder (`grep -R`, `ls -L`) is not listed, nor is a program
  that does so by itself (`diff`).
- The built-in agent's "always allow" holds for `KNOWN_COMMANDS`. No program of one word is added
  there: an answer to exactly that word, kept by an earlier version, would become an answer to
  everything that begins with it. `FOR_RULES` is for rules, which name each program themselves.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

_OPTION = re.compile(r"--?[A-Za-z].*")
_NUMBER = re.compile(r"-[0-9]+")
_SHORT = re.compile(r"-([A-Za-z]+)[0-9]*")

#: stands for any operands within the session's folders
OPERANDS = "..."
#: stands for an option that is a number, as in `head -20`
NUMBER = "-#"
#: stands for any name of a script or a target
ANY_NAME = "*"
#: stands for a file of the project, behind which all words are for the code in it
SCRIPT = "<script>"
#: stands behind a short option of which the value may be in the same word
ATTACHED = "*"
#: stands for any option: no version of the program has one that is not harmless
ANY_OPTION = "-*"
#: stands for one operand at most: a second one would be written
ONE = "."

_GREP = """... -a -A -B -c -C -e -E -F -h -H -i -I -l -L -m -n -o -P -q -r -s -v -w -x --color
 --context --count --exclude --exclude-dir --extended-regexp --files-with-matches --fixed-strings
 --ignore-case --include --invert-match --line-number --max-count --only-matching --recursive
 --word-regexp"""
_DIFF = """-b -C -M -p -R -s -u -U -w -W --cached --check --color --color-moved --color-words
 --compact-summary --diff-algorithm --diff-filter --dirstat --exit-code --find-copies --find-renames
 --full-index --function-context --histogram --ignore-all-space --ignore-blank-lines
 --ignore-cr-at-eol --ignore-space-at-eol --ignore-space-change --minimal --name-only --name-status
 --no-color --no-ext-diff --no-patch --no-renames --no-textconv --numstat --patch --patch-with-stat
 --patience --quiet --raw --relative --shortstat --staged --stat --summary --text --unified
 --word-diff"""
_LOG = f"""... -- -# -E -F -g -G -i -n -S --abbrev --abbrev-commit --after --all --ancestry-path
 --author --before --boundary --branches --cherry --cherry-mark --cherry-pick --committer --date
 --date-order --decorate --first-parent --follow --format --full-history --graph --grep
 --invert-grep --left-only --left-right --max-count --merge --merges --no-decorate --no-merges
 --no-walk --oneline --pretty --reflog --remotes --reverse --right-only --simplify-by-decoration
 --since --skip --source --tags --topo-order --until {_DIFF}"""
_CARGO = """... -- -F -j -p -q -v --all --all-features --all-targets --bench --benches --bin --bins
 --color --doc --example --examples --exclude --features --frozen --jobs --keep-going --lib
 --locked --message-format --no-default-features --no-fail-fast --no-run --offline --package
 --profile --quiet --release --test --tests --verbose --workspace"""
_GO = """... -bench -benchmem -count -cover -failfast -json -parallel -race -run -short -skip -tags
 -timeout -v"""
_GRADLE = "-d -i -q -s --continue --info --no-daemon --offline --quiet --rerun-tasks --stacktrace"
_MAVEN = "-B -e -o -q -U -DskipTests --batch-mode --no-transfer-progress --offline --quiet"
_SCRIPT = "... -- -s --if-present --silent"
_PYTEST = """... -# -k -l -m -n -q -ra -rA -rs -rx -s -v -x --co --collect-only --cov
 --cov-report=term --cov-report=term-missing --durations --exitfirst --failed-first --ff
 --last-failed --lf --maxfail --no-cov --no-header --no-summary --numprocesses --quiet --stepwise
 --sw --tb --verbose"""
_MYPY = """... -m -p --check-untyped-defs --disallow-untyped-defs --ignore-missing-imports --module
 --no-error-summary --no-incremental --package --pretty --show-error-codes --strict"""
_NPM = "... -- -D -E -O -P -S --legacy-peer-deps --no-save --omit --save-dev --save-exact"
_FLAKE8 = "... --count --extend-ignore --ignore --max-line-length --select --statistics"
_GH = "... -c -L -s --assignee --author --branch --comments --json --label --limit --search --state"


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


#: options by the first words, which may hold several subcommands: `a|b`
_LISTED = {
    # looking
    "cat": "... -A -b -E -e -n -s -T -t -v",
    "cmp": "... -b -l -s",
    "date": "-I -Iseconds -R -u --iso-8601 --utc +%F +%s +%T",
    "df": "... -h -T",
    "du": "... -a -c -d -h -k -m -s --max-depth --summarize",
    "echo": "... -n",
    "egrep|fgrep|grep": _GREP,
    "head": "... -# -c -n -q -v --bytes --lines",
    "ls": "... -1 -A -a -C -d -F -g -h -i -l -o -p -R -r -S -s -t -X --all --color --recursive",
    "nl": "... -b -w",
    "pwd": "-L -P",
    "realpath": "...",
    "sha256sum": "...",
    "stat": "... -c -t --format --printf",
    "tail": "... -# -c -n -q -v --bytes --lines",
    "uname": "-a -m -r -s",
    "wc": "... -c -l -L -m -w",
    "which": "... -a",
    "whoami": "",
    "apt list|search|show": "... -a --all-versions --installed --names-only --upgradable",
    "docker images|info|inspect|logs|ps|version": "... -a -n -q -t --all --format"
    " --no-trunc --since --tail --timestamps",
    "gh issue|pr|release|repo|run|workflow list": _GH,
    "gh issue|pr|release|run|workflow view": f"{_GH} --job --log --log-failed",
    "gh issue|pr status": _GH,
    "gh pr checks": _GH,
    "gh pr diff": "... --color --name-only --patch",
    "pip|pip3 check|freeze|list|show": "... --all --files --format --local --user",
    "systemctl status": "... -l -n --full --lines --no-pager",
    # git
    "git add": "... -- -A -n -u -v --all --dry-run --update --verbose",
    "git blame": "... -- -b -e -f -l -L -s -t -w",
    "git branch": "... -a -l -r -v --all --contains --format --list --merged --no-merged --remotes"
    " --show-current --sort --verbose",
    "git cat-file": "... -e -p -s -t",
    "git commit": "... -- -a -m -q -v --all --allow-empty --amend --message --no-edit"
    " --quiet --signoff",
    "git describe": "... --abbrev --all --always --dirty --exact-match --long --match --tags",
    "git diff": f"... -- --merge-base {_DIFF}",
    "git log": _LOG,
    "git ls-files": "... -- -c -d -m -o -s -t -u -z --cached --deleted --exclude-standard"
    " --modified --others --stage --unmerged",
    "git ls-tree": "... -- -d -l -r -t -z --full-tree --name-only",
    "git merge-base": "... --all --fork-point --is-ancestor",
    "git rev-list": f"{_LOG} --count --left-right",
    "git rev-parse": "... --abbrev-ref --git-dir --is-inside-work-tree --short --show-prefix"
    " --show-toplevel --symbolic-full-name --verify",
    "git shortlog": f"{_LOG} -e -s --email --numbered --summary",
    "git show": _LOG,
    "git status": "... -- -b -s -u -uall -uno -z --branch --ignored --long --porcelain"
    " --porcelain=v1 --porcelain=v2 --short --show-stash --untracked-files",
    "git tag": "... -a -l -m -n --contains --format --list --merged --message --sort",
    "rustfmt": "... --check --edition",
    # building and testing: they run the project's own code
    "bun|npm|pnpm|yarn test": _SCRIPT,
    "npm|pnpm run *": _SCRIPT,
    "bun|yarn run *": "-s --silent",  # without operands: `bun run node x.js` runs any program
    "cargo bench|build|check|metadata|tree": f"{_CARGO} -d -e -i --depth --duplicates --edges"
    " --format-version --invert --no-deps",
    "cargo clippy": f"{_CARGO} -A -D -W --no-deps",
    "cargo doc": f"{_CARGO} --document-private-items --no-deps",
    "cargo fmt": "-- -p -q -v --all --check --package",
    "cargo test": f"{_CARGO} --exact --ignored --include-ignored --nocapture --show-output"
    " --test-threads",
    "dotnet build|test": "... -c -f -v --configuration --filter --framework --no-build --nologo"
    " --no-restore --verbosity",
    "flake8": _FLAKE8,
    "go build|doc|fmt|list|test|version|vet": _GO,
    "gradle|gradlew assemble|build|check|tasks|test": _GRADLE,
    "make *": "-B -j -k -n -s --always-make --dry-run --jobs --keep-going --silent",
    "mvn|mvnw compile|package|test|validate|verify": _MAVEN,
    "mypy": _MYPY,
    "pytest": _PYTEST,
    "python -m flake8": _FLAKE8,
    "python -m mypy": _MYPY,
    "python -m pytest": _PYTEST,
    "python -m unittest": "... -b -f -k -p -q -s -v --buffer --failfast --quiet --verbose",
    "swift build|test": "... -c -v --configuration --enable-code-coverage --filter --parallel"
    " --skip-build --verbose",
    "tsc": "... --noEmit --pretty --skipLibCheck --strict",
}


#: further ones, for rules: a line each, with more lines that are indented
_FOR_RULES = """
cat|cmp|df|du|echo|egrep|fgrep|grep|head|ls|nl|pwd|realpath|sha256sum|stat|tail|uname|wc: ... -*
which|whoami: ... -*
date: -I -Iseconds -R -u --iso-8601 --utc +%F +%s +%T +%Y +%Y-%m-%d +%H:%M +%H:%M:%S +%Y%m%d
basename|cut|dirname|expr|false|id|nproc|ps|rev|seq|sleep|tac|test|tr|true|type: ... -*
base64|cksum|hexdump|md5sum|od|sha1sum|sha512sum|strings: ... -A -b -c -C -d -e -i -l -n -N -p -s -t
  -u -v -w -x --check --decode --tag
comm: ... -1 -2 -3 --check-order --nocheck-order
diff: ... -# -a -b -B -c -d -E -i -N -p -q -r -s -t -u -U -w -W -y --brief --color --exclude
  --ignore-all-space --ignore-case --recursive --side-by-side --stat --unified
fd|fdfind: ... -a -d -e -E -F -g -H -i -I -l -p -q -s -t -u --absolute-path --color --exclude
  --extension --full-path --glob --hidden --ignore-case --max-depth --no-ignore --type
file: ... -b -i -k -p -z --brief --mime --mime-type
find: ... -# ! ( ) , -a -and -amin -atime -cmin -ctime -daystart -depth -empty -false -group -ilname
  -iname -inum -ipath -iregex -links -lname -ls -maxdepth -mindepth -mmin -mount -mtime -name
  -newer -nogroup -not -nouser -o -or -path -perm -print -print0 -printf -prune -quit -readable
  -regex -regextype -size -true -type -user -wholename -writable -xdev
jq: ... -c -C -e -M -n -r -s -S --arg --argjson --compact-output --exit-status --raw-output
  --slurp --sort-keys --tab
man: ... -k -f --apropos --whatis
printf: ... --
rg: ... -g* -t* -T* -# -. -a -A -B -c -C -e -F -g -i -j -l -L -m -M -n -N -o -P -q -s -S -t -T -u -U
  -v -w -x -I --after-context --before-context --case-sensitive --color --column --context --count
  --count-matches --crlf --files --files-with-matches --files-without-match --fixed-strings --glob
  --heading --hidden --iglob --ignore-case --invert-match --json --line-buffered --line-number
  --max-columns --max-count --max-depth --max-filesize --multiline --no-config --no-filename
  --no-heading --no-ignore --no-ignore-vcs --no-line-number --no-messages --only-matching --pcre2
  --pretty --quiet --smart-case --sort --sortr --stats --text --trim --type --type-list --type-not
  --vimgrep --with-filename --word-regexp
sort: ... -k* -t* -b -c -C -d -f -g -h -i -k -M -m -n -r -R -s -t -u -V -z --check --field-separator
  --ignore-case --key --numeric-sort --reverse --stable --unique --version-sort
tar t|tf|tvf|tzf|tjf|tJf|tzvf|tvzf|-t|-tf|-tvf|-tzf|-tjf|-tJf|-tzvf|-tvzf|--list: ... -f -j -J -t
  -v -z --bzip2 --exclude --file --gzip --list --verbose --xz --zstd
tree: ... -a -C -d -D -f -F -h -i -I -L -n -P -p -s -t -u --dirsfirst --du --filesfirst --gitignore
  --noreport --prune
xxd: . -b -c -g -i -l -p -s -u
uniq: . -c -d -D -f -i -s -u -w -z --count --ignore-case --repeated --unique
jobs: ... -l -n -p -r -s
git add: -f -N --force --intent-to-add
git apply: ... -3 -R -v --cached --check --index --stat --summary --numstat --recount
git branch: -c -C -d -D -f -m -M -q -u --copy --delete --force --move --quiet --set-upstream-to
  --unset-upstream
git checkout|switch: ... -- -b -c -C -d -f -q -t --detach --force --no-track --orphan --quiet
  --track
git cherry-pick|revert: ... -e -m -n -x --abort --continue --mainline --no-commit --no-edit --quit
  --skip
git clean: ... -- -d -e -f -n -q -x -X --dry-run --exclude --force
git clone: ... -- -b -n -q -v --bare --branch --depth --no-checkout --no-tags --quiet
  --recurse-submodules --shallow-since --single-branch
git commit: -F --author --date --file --fixup
git config *: --global --local
git config edit:
git config --get|--get-all|--get-regexp|--list|-l|get|list: ... --all --global --local --name-only
  --show-origin --show-scope
git fetch|pull: ... -- -# -a -f -p -q -t -v --all --depth --dry-run --ff --ff-only --force
  --no-commit --no-edit --no-rebase --no-tags --prune --quiet --rebase --tags --unshallow
git for-each-ref|name-rev|show-ref|symbolic-ref|var|whatchanged: <log> -d --count --heads
  --contains --points-at --short --sort --verify
git grep: <grep> -- --cached --no-index --untracked --all-match --heading --break --and --or --not
  -p -W -z
git diff|log|rev-list|shortlog|show: -G* -L -L* -S*
git init: ... -b -q --initial-branch --quiet
git ls-remote: ... -h -q -t --heads --refs --tags
git merge: ... -- -m -n -q -v --abort --commit --continue --ff --ff-only --message --no-commit
  --no-edit --no-ff --quiet --squash --stat
git mv: ... -- -f -k -n -v --dry-run --force --verbose
git push: ... -- -d -f -n -q -u -v --all --atomic --delete --dry-run --force --force-with-lease
  --no-verify --porcelain --prune --quiet --set-upstream --tags --verbose
git rebase: ... -- -i -q -r --abort --autosquash --autostash --continue --edit-todo --interactive
  --no-autostash --onto --quit --rebase-merges --root --skip
git reflog: <log>
git remote: ... -- -f -n -p -t -v --all --prune --push --tags --verbose
git reset|restore: ... -- -p -q -s -S -W --hard --keep --merge --mixed --quiet --soft --source
  --staged --worktree
git rm: ... -- -f -n -q -r --cached --dry-run --force --ignore-unmatch --quiet
git stash: ... -- -a -k -m -p -q -u --all --include-untracked --index --keep-index --message
  --no-keep-index --patch --quiet --staged <diff>
git submodule init|status|sync|update: ... -- --cached --depth --force --init --quiet --recursive
  --remote
git worktree add|list|lock|move|prune|remove|unlock: ... -b -B -d -f -n -v --detach --dry-run
  --force --porcelain --verbose
install: ... -b -c -d -D -g -m -o -p -t -T -v --directory --group --mode --owner --verbose
rsync: ... -0 -a -A -c -C -d -D -E -g -h -H -i -l -L -m -n -N -o -O -p -P -q -r -S -t -u -v -W -x
  -X -z --archive --checksum --delete --dry-run --exclude --human-readable --include --links
  --progress --recursive --stats --update --verbose
split: ... -a -b -C -d -e -l -n -t -x --additional-suffix --bytes --lines --number
wget: ... -c -nc -np -nv -q -S -t -T --continue --no-clobber --no-verbose --quiet --spider
  --timeout --tries
zip: ... -# -9 -d -g -i -j -q -r -u -v -x -y
bun|npm|pnpm|yarn config|create|dlx|exec|init|node|set|x:
bun|npm|pnpm|yarn config get|list: ... --json
npm access|add|audit|ci|dedupe|diff|doctor|explain|fund|help|i|info|install|list|ls|outdated: <npm>
npm pack|ping|pkg|prefix|prune|publish|query|rebuild|remove|root|run-script|search|show|start: <npm>
npm stop|t|uninstall|un|unlink|up|update|version|view|whoami|why: <npm>
npm|pnpm test: -w --include-workspace-root --workspace --workspaces
npm|pnpm run *: -w --include-workspace-root --workspace --workspaces
deno eval|repl|run:
cargo bench|build|check|clippy|doc|test|tree: --manifest-path --target
go build|test: -coverpkg -covermode -coverprofile -o -trimpath
go env: ... -json
go run: <script> -a -n -race -trimpath -v -x
make: ... -B -j -k -n -s --always-make --dry-run --jobs --keep-going --silent
make *: ...
nodejs|node: <script> -v --check --enable-source-maps --experimental-vm-modules --expose-gc
  --no-deprecation --no-warnings --test --trace-deprecation --trace-uncaught --trace-warnings
  --version -h --help
nodejs|node debug|inspect:
pytest: -r*
python -m pytest: -r*
python -m black|compileall|isort|py_compile|ruff|venv: ... -q
python -m json.tool: . --indent --json-lines --no-ensure-ascii --sort-keys
python -m pip check|freeze|list|show: ... --format --outdated
lua|perl|php|ruby: <script> -l -n -w -W -V --version --help
python: <script> -b -B -E -I -O -OO -q -s -S -u -V -h --version --help
"""

#: programs that run the code of the project: a rule for them allows whatever it says
OF_THE_PROJECT = _words("""
bun cargo deno dotnet flake8 go gradle gradlew lua make mvn mvnw mypy node nodejs npm perl php
pnpm pytest python ruby rustfmt swift tsc yarn
""")
#: programs that only read what their words name, or do nothing with it
READING = _words("""
echo printf true false : test [ cd chdir pushd popd pwd ls dir tree stat file du df cat tac nl
head tail wc grep egrep fgrep zgrep rg cut tr rev fold fmt diff cmp comm md5sum sha1sum sha256sum
sha512sum cksum b2sum basename dirname realpath readlink which whereis type man info help apropos
whatis tldr date seq expr ps pgrep pkill kill killall id whoami groups uname hostname sleep wait
return exit hexdump xxd od strings nproc uptime free lsof jq getent find fd fdfind
""")
#: programs that write or keep what they are given, and run none of their words
KEEPING = _words("""
mkdir rmdir touch cp mv ln rm unlink install chmod chown chgrp truncate tee dd sort uniq split
csplit paste join tar zip unzip gzip gunzip bzip2 xz zstd rsync patch mktemp curl wget sponge
shred base64 column mkfifo export unset set local declare typeset readonly shift umask ulimit
history git gh glab svn helm brew pip pip3 pipx uv poetry pdm conda npm pnpm yarn rustup gem
composer pytest ruff mypy black eslint prettier tsc systemctl journalctl aws gcloud az terraform
""")
#: programs that a rule trusts whole, though the built-in agent has rows of theirs
_WHOLE = _words("apt docker gh pip pip3 systemctl")
#: programs of which nothing is harmless that is not listed
LISTED_ALONE = _words("git npm tar")
#: options of git before a subcommand that change nothing that a rule is about
GIT_GLOBALS = _words("--no-pager -P --no-optional-locks --literal-pathspecs")
#: variables that may be set before a command to a plain word, beside LC_*
ASSIGNMENTS = _words("CI COLUMNS FORCE_COLOR LANG NO_COLOR TERM TZ")
#: variables that may be set to these values alone
SET_TO = {
    "GIT_PAGER": ("", "cat"),
    "PAGER": ("", "cat"),
    "NODE_ENV": ("test",),
    "PYTHONDONTWRITEBYTECODE": ("1",),
    "PYTHONUNBUFFERED": ("1",),
    "RUST_BACKTRACE": ("1",),
}


def _spread(first_words: str) -> list[tuple[str, ...]]:
    """Returns all combinations of a line's alternatives: `a|b c` gives (a, c) and (b, c)."""
    found: list[tuple[str, ...]] = [()]
    for choices in first_words.split():
        found = [(*words, choice) for words in found for choice in choices.split("|")]
    return found


def _for_rules() -> dict[tuple[str, ...], frozenset[str]]:
    found = {words: row for words, row in KNOWN_COMMANDS.items() if words[0] not in _WHOLE}
    parts = {"<log>": _LOG, "<diff>": _DIFF, "<grep>": _GREP, "<npm>": _NPM}
    for row in _FOR_RULES.replace("\n ", " ").strip().splitlines():
        first_words, _, options = row.partition(":")
        listed = {one for each in options.split() for one in parts.get(each, each).split()}
        for words in _spread(first_words):
            found[words] = found.get(words, frozenset()) | listed
    return found


#: the options and marks of each known command, by its first words
KNOWN_COMMANDS: Mapping[tuple[str, ...], frozenset[str]] = {
    words: frozenset(options.split())
    for first_words, options in _LISTED.items()
    for words in _spread(first_words)
}
#: the same, and what is added for rules
FOR_RULES: Mapping[tuple[str, ...], frozenset[str]] = _for_rules()


def is_option(word: str, options: frozenset[str]) -> bool:
    """Return True if a word is one or more of these options, perhaps with a value."""
    if word in options:
        return word not in (OPERANDS, NUMBER, ONE, SCRIPT)
    name, joined, value = word.partition("=")
    if joined and len(name) > 2 and _OPTION.fullmatch(name) and name in options:
        return not value.startswith("@")
    if NUMBER in options and _NUMBER.fullmatch(word):
        return True
    if len(word) > 2 and f"{word[:2]}{ATTACHED}" in options:
        return True
    short = _SHORT.fullmatch(word)
    return short is not None and all(f"-{letter}" in options for letter in short[1])


def is_operand(word: str) -> bool:
    """Return True if a program takes a word as an operand, not as an option or a list."""
    return not word.startswith(("-", "+", "@"))
