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
_NUMBER = re.compile(r"-[0-9]+[bckwMG]?")
_SHORT = re.compile(r"-([A-Za-z]+)[0-9]*")
_LETTERS = re.compile(r"-\[(\w+)\]")

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


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


#: options by the first words, which may hold several subcommands: `a|b`. Those behind `//` are for
#: rules alone. `-[abc]` are three options, `<log>` are those of another row.
_TABLE = """
<grep>: ... -[aABcCeEFhHiIlLmnoPqrsvwx] --color --context --count --exclude --exclude-dir
  --extended-regexp --files-with-matches --fixed-strings --ignore-case --include --invert-match
  --line-number --max-count --only-matching --recursive --word-regexp
<diff>: -[bCMpRsuUwW] --cached --check --color --color-moved --color-words --compact-summary
  --diff-algorithm --diff-filter --dirstat --exit-code --find-copies --find-renames --full-index
  --function-context --histogram --ignore-all-space --ignore-blank-lines --ignore-cr-at-eol
  --ignore-space-at-eol --ignore-space-change --minimal --name-only --name-status --no-color
  --no-ext-diff --no-patch --no-renames --no-textconv --numstat --patch --patch-with-stat --patience
  --quiet --raw --relative --shortstat --staged --stat --summary --text --unified --word-diff
<log>: ... -- -# -[EFgGinS] --abbrev --abbrev-commit --after --all --ancestry-path --author --before
  --boundary --branches --cherry --cherry-mark --cherry-pick --committer --date --date-order
  --decorate --first-parent --follow --format --full-history --graph --grep --invert-grep
  --left-only --left-right --max-count --merge --merges --no-decorate --no-merges --no-walk
  --oneline --pretty --reflog --remotes --reverse --right-only --simplify-by-decoration --since
  --skip --source --tags --topo-order --until <diff>
<cargo>: ... -- -[Fjpqv] --all --all-features --all-targets --bench --benches --bin --bins --color
  --doc --example --examples --exclude --features --frozen --jobs --keep-going --lib --locked
  --message-format --no-default-features --no-fail-fast --no-run --offline --package --profile
  --quiet --release --test --tests --verbose --workspace
<run>: ... -- -s --if-present --silent
<gh>: ... -[cLs] --assignee --author --branch --comments --json --label --limit --search --state
<npm>: ... -- -[DEOPS] --legacy-peer-deps --no-save --omit --save-dev --save-exact
cat: ... -[AbEensTtv]
cmp: ... -[bls]
date: -I -Iseconds -R -u --iso-8601 --utc +%F +%s +%T // +%Y +%Y-%m-%d +%H:%M +%H:%M:%S +%Y%m%d
df: ... -h -T
du: ... -[acdhkms] --max-depth --summarize
echo: ... -n
egrep|fgrep|grep: <grep>
head: ... -# -[cnqv] --bytes --lines
ls: ... -[1AaCdFghilopRrSstX] --all --color --recursive
nl: ... -b -w
pwd: -L -P
realpath: ...
sha256sum: ...
stat: ... -c -t --format --printf
tail: ... -# -[cnqv] --bytes --lines
uname: -[amrs]
wc: ... -[clLmw]
which: ... -a
whoami:
apt list|search|show: ... -a --all-versions --installed --names-only --upgradable
docker images|info|inspect|logs|ps|version: ... -[anqt] --all --format --no-trunc --since --tail
  --timestamps
gh issue|pr|release|repo|run|workflow list: <gh>
gh issue|pr|release|run|workflow view: <gh> --job --log --log-failed
gh issue|pr status, gh pr checks: <gh>
gh pr diff: ... --color --name-only --patch
pip|pip3 check|freeze|list|show: ... --all --files --format --local --user
systemctl status: ... -l -n --full --lines --no-pager
git add: ... -- -[Anuv] --all --dry-run --update --verbose // -f -N --force --intent-to-add
git blame: ... -- -[beflLstw]
git branch: ... -[alrv] --all --contains --format --list --merged --no-merged --remotes
  --show-current --sort --verbose // -[cCdDfmMqu] --copy --delete --force --move --quiet
  --set-upstream-to --unset-upstream
git cat-file: ... -[epst]
git commit: ... -- -[amqv] --all --allow-empty --amend --message --no-edit --quiet --signoff // -F
  --author --date --file --fixup
git describe: ... --abbrev --all --always --dirty --exact-match --long --match --tags
git diff: ... -- --merge-base <diff>
git log|show: <log>
git ls-files: ... -- -[cdmostuz] --cached --deleted --exclude-standard --modified --others --stage
  --unmerged
git ls-tree: ... -- -[dlrtz] --full-tree --name-only
git merge-base: ... --all --fork-point --is-ancestor
git rev-list: <log> --count --left-right
git rev-parse: ... --abbrev-ref --git-dir --is-inside-work-tree --short --show-prefix
  --show-toplevel --symbolic-full-name --verify
git shortlog: <log> -e -s --email --numbered --summary
git status: ... -- -[bsu] -uall -uno -z --branch --ignored --long --porcelain --porcelain=v1
  --porcelain=v2 --short --show-stash --untracked-files
git tag: ... -[almn] --contains --format --list --merged --message --sort
rustfmt: ... --check --edition
bun|npm|pnpm|yarn test: <run>
npm|pnpm run *: <run> // -w --include-workspace-root --workspace --workspaces
bun|yarn run *: -s --silent
cargo bench|build|check|metadata|tree: <cargo> -[dei] --depth --duplicates --edges --format-version
  --invert --no-deps
cargo clippy: <cargo> -[ADW] --no-deps
cargo doc: <cargo> --document-private-items --no-deps
cargo fmt: -- -[pqv] --all --check --package
cargo test: <cargo> --exact --ignored --include-ignored --nocapture --show-output --test-threads
dotnet build|test: ... -[cfv] --configuration --filter --framework --no-build --nologo --no-restore
  --verbosity
flake8, python -m flake8: ... --count --extend-ignore --ignore --max-line-length --select
  --statistics
go build|doc|fmt|list|test|version|vet: ... -bench -benchmem -count -cover -failfast -json -parallel
  -race -run -short -skip -tags -timeout -v
gradle|gradlew assemble|build|check|tasks|test: -[diqs] --continue --info --no-daemon --offline
  --quiet --rerun-tasks --stacktrace
make *: -[Bjkns] --always-make --dry-run --jobs --keep-going --silent // ...
mvn|mvnw compile|package|test|validate|verify: -[BeoqU] -DskipTests --batch-mode
  --no-transfer-progress --offline --quiet
mypy, python -m mypy: ... -m -p --check-untyped-defs --disallow-untyped-defs
  --ignore-missing-imports --module --no-error-summary --no-incremental --package --pretty
  --show-error-codes --strict
pytest, python -m pytest: ... -# -[klmnq] -ra -rA -rs -rx -[svx] --co --collect-only --cov
  --cov-report=term --cov-report=term-missing --durations --exitfirst --failed-first --ff
  --last-failed --lf --maxfail --no-cov --no-header --no-summary --numprocesses --quiet --stepwise
  --sw --tb --verbose // -r*
python -m unittest: ... -[bfkpqsv] --buffer --failfast --quiet --verbose
swift build|test: ... -c -v --configuration --enable-code-coverage --filter --parallel --skip-build
  --verbose
tsc: ... --noEmit --pretty --skipLibCheck --strict
cat|cmp|df|du|echo|egrep|fgrep|grep|head|ls|nl|pwd|realpath|sha256sum|stat|tail|uname|wc,
  which|whoami, basename|cut|dirname|expr|false|id|nproc|ps|rev|seq|sleep|tac|test|tr|true|type: //
  ... -*
base64|cksum|hexdump|md5sum|od|sha1sum|sha512sum|strings: // ... -[AbcCdeilnNpstuvwx] --check
  --decode --tag
comm: // ... -[123] --check-order --nocheck-order
diff: // ... -# -[abBcdEiNpqrstuUwWy] --brief --color --exclude --ignore-all-space --ignore-case
  --recursive --side-by-side --stat --unified
fd|fdfind: // ... -[adeEFgHiIlpqstu] --absolute-path --color --exclude --extension --full-path
  --glob --hidden --ignore-case --max-depth --no-ignore --type
file: // ... -[bikpz] --brief --mime --mime-type
find: // ... -# ! ( ) , -a -and -amin -atime -cmin -ctime -daystart -depth -empty -false -group
  -ilname -iname -inum -ipath -iregex -links -lname -ls -maxdepth -mindepth -mmin -mount -mtime
  -name -newer -nogroup -not -nouser -o -or -path -perm -print -print0 -printf -prune -quit
  -readable -regex -regextype -size -true -type -user -wholename -writable -xdev
jq: // ... -[cCeMnrsS] --arg --argjson --compact-output --exit-status --raw-output --slurp
  --sort-keys --tab
man: // ... -k -f --apropos --whatis
printf: // ... --
rg: // ... -g* -t* -T* -# -. -[aABcCeFgijlmMnNoPqsStTuUvwxI] --after-context --before-context
  --case-sensitive --color --column --context --count --count-matches --crlf --files
  --files-with-matches --files-without-match --fixed-strings --glob --heading --hidden --iglob
  --ignore-case --invert-match --json --line-buffered --line-number --max-columns --max-count
  --max-depth --max-filesize --multiline --no-config --no-filename --no-heading --no-ignore
  --no-ignore-vcs --no-line-number --no-messages --only-matching --pcre2 --pretty --quiet
  --smart-case --sort --sortr --stats --text --trim --type --type-list --type-not --vimgrep
  --with-filename --word-regexp
sort: // ... -k* -t* -[bcCdfghikMmnrRstuVz] --check --field-separator --ignore-case --key
  --numeric-sort --reverse --stable --unique --version-sort
tar t|tf|tvf|tzf|tjf|tJf|tzvf|tvzf|-t|-tf|-tvf|-tzf|-tjf|-tJf|-tzvf|-tvzf|--list: // ... -[fjJtvz]
  --bzip2 --exclude --file --gzip --list --verbose --xz --zstd
tree: // ... -[aCdDfFhiILnPpstu] --dirsfirst --du --filesfirst --gitignore --noreport --prune
xxd: // . -[bcgilpsu]
uniq: // . -[cdDfisuwz] --count --ignore-case --repeated --unique
jobs: // ... -[lnprs]
git apply: // ... -[3Rv] --cached --check --index --stat --summary --numstat --recount
git checkout|switch: // ... -- -[bcCdfqt] --detach --force --no-track --orphan --quiet --track
git cherry-pick|revert: // ... -[emnx] --abort --continue --mainline --no-commit --no-edit --quit
  --skip
git clean: // ... -- -[defnqxX] --dry-run --exclude --force
git clone: // ... -- -[bnqv] --bare --branch --depth --no-checkout --no-tags --quiet
  --recurse-submodules --shallow-since --single-branch
git config *: // --global --local
git config edit, bun|npm|pnpm|yarn config|create|dlx|exec|init|node|set|x, deno eval|repl|run,
  nodejs|node debug|inspect: //
git config --get|--get-all|--get-regexp|--list|-l|get|list: // ... --all --global --local
  --name-only --show-origin --show-scope
git fetch|pull: // ... -- -# -[afpqtv] --all --depth --dry-run --ff --ff-only --force --no-commit
  --no-edit --no-rebase --no-tags --prune --quiet --rebase --tags --unshallow
git for-each-ref|name-rev|show-ref|symbolic-ref|var|whatchanged: // <log> -d --count --heads
  --contains --points-at --short --sort --verify
git grep: // <grep> -- --cached --no-index --untracked --all-match --heading --break --and --or
  --not -[pWz]
git diff|log|rev-list|shortlog|show: // -G* -L -L* -S*
git init: // ... -b -q --initial-branch --quiet
git ls-remote: // ... -[hqt] --heads --refs --tags
git merge: // ... -- -[mnqv] --abort --commit --continue --ff --ff-only --message --no-commit
  --no-edit --no-ff --quiet --squash --stat
git mv: // ... -- -[fknv] --dry-run --force --verbose
git push: // ... -- -[dfnquv] --all --atomic --delete --dry-run --force --force-with-lease
  --no-verify --porcelain --prune --quiet --set-upstream --tags --verbose
git rebase: // ... -- -[iqr] --abort --autosquash --autostash --continue --edit-todo --interactive
  --no-autostash --onto --quit --rebase-merges --root --skip
git reflog: // <log>
git remote: // ... -- -[fnptv] --all --prune --push --tags --verbose
git reset|restore: // ... -- -[pqsSW] --hard --keep --merge --mixed --quiet --soft --source --staged
  --worktree
git rm: // ... -- -[fnqr] --cached --dry-run --force --ignore-unmatch --quiet
git stash: // ... -- -[akmpqu] --all --include-untracked --index --keep-index --message
  --no-keep-index --patch --quiet --staged <diff>
git submodule init|status|sync|update: // ... -- --cached --depth --force --init --quiet --recursive
  --remote
git worktree add|list|lock|move|prune|remove|unlock: // ... -[bBdfnv] --detach --dry-run --force
  --porcelain --verbose
install: // ... -[bcdDgmoptTv] --directory --group --mode --owner --verbose
rsync: // ... -[0aAcCdDEghHilLmnNoOpPqrStuvWxXz] --archive --checksum --delete --dry-run --exclude
  --human-readable --include --links --progress --recursive --stats --update --verbose
split: // ... -[abCdelntx] --additional-suffix --bytes --lines --number
wget: // ... -c -nc -np -nv -[qStT] --continue --no-clobber --no-verbose --quiet --spider --timeout
  --tries
zip: // ... -# -[9dgijqruvxy]
bun|npm|pnpm|yarn config get|list: // ... --json
npm|pnpm test: // -w --include-workspace-root --workspace --workspaces
cargo bench|build|check|clippy|doc|test|tree: // --manifest-path --target
go build|test: // -coverpkg -covermode -coverprofile -o -trimpath
go env: // ... -json
go run: // <script> -a -n -race -trimpath -v -x
make: // ... -[Bjkns] --always-make --dry-run --jobs --keep-going --silent
nodejs|node: // <script> -v --check --enable-source-maps --experimental-vm-modules --expose-gc
  --no-deprecation --no-warnings --test --trace-deprecation --trace-uncaught --trace-warnings
  --version -h --help
python -m black|compileall|isort|py_compile|ruff|venv: // ... -q
python -m json.tool: // . --indent --json-lines --no-ensure-ascii --sort-keys
python -m pip check|freeze|list|show: // ... --format --outdated
lua|perl|php|ruby: // <script> -[lnwWV] --version --help
python: // <script> -[bBEIO] -OO -[qsSuVh] --version --help
npm access|add|audit|ci|dedupe|diff|doctor|explain|fund|help|i|info|install|list, npm
  ls|outdated|pack|ping|pkg|prefix|prune|publish|query|rebuild|remove|root|run-script|search, npm
  show|start|stop|t|uninstall|un|unlink|up|update|version|view|whoami|why: // <npm>
"""

#: programs that a rule trusts whole, though the built-in agent has rows of theirs
_WHOLE = _words("apt docker gh pip pip3 systemctl")
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


_Rows = dict[tuple[str, ...], frozenset[str]]


def _options(text: str, rows: _Rows) -> frozenset[str]:
    """Returns the options of a part of a row; `rows`: those before it."""
    found: set[str] = set()
    for each in text.split():
        letters = _LETTERS.fullmatch(each)
        found |= rows.get((each,), {f"-{one}" for one in letters[1]} if letters else {each})
    return frozenset(found)


def _read() -> tuple[_Rows, _Rows]:
    """Returns the rows of the table for the built-in agent, and those for rules."""
    mine: _Rows = {}
    for_rules: _Rows = {}
    for row in _TABLE.replace("\n  ", " ").strip().splitlines():
        heads, _, options = row.partition(":")
        listed, only_rules, further = options.partition("//")
        own, whole = _options(listed, for_rules), _options(f"{listed} {further}", for_rules)
        for words in (words for head in heads.split(", ") for words in _spread(head)):
            if listed.strip() or not only_rules:
                mine[words] = own
            if words[0] not in _WHOLE:
                for_rules[words] = for_rules.get(words, frozenset()) | whole
    for words in [words for words in for_rules if words[0].startswith("<")]:
        del mine[words], for_rules[words]
    return mine, for_rules


#: the options and marks of each known command, by its first words; and with what is for rules
KNOWN_COMMANDS: Mapping[tuple[str, ...], frozenset[str]]
FOR_RULES: Mapping[tuple[str, ...], frozenset[str]]
KNOWN_COMMANDS, FOR_RULES = _read()


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
