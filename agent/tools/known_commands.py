"""Lists the commands that "always allow" may hold for by their first words, with their options.

Invariants
- An option stands here only if it is harmless with any value: it names no program, host or file to
  write, no configuration and no list of further files, and no place to work in. What is not listed
  is asked for, also if a new version of a program brings it.
- An option that follows links below a folder (`grep -R`, `ls -L`) is not listed, nor is a program
  that does so by itself (`diff`).
- No program of one word is added: an answer to exactly that word, kept by an earlier version, would
  become an answer to everything that begins with it.
"""

from __future__ import annotations

from collections.abc import Mapping

#: stands for any operands within the session's folders
OPERANDS = "..."
#: stands for an option that is a number, as in `head -20`
NUMBER = "-#"
#: stands for any name of a script or a target
ANY_NAME = "*"

_GREP = """... -a -A -B -c -C -e -E -F -h -H -i -I -l -L -m -n -o -P -q -r -s -v -w -x --color
 --context --count --exclude --exclude-dir --extended-regexp --files-with-matches --fixed-strings
 --ignore-case --include --invert-match --line-number --max-count --only-matching --recursive
 --word-regexp"""
_DIFF = """-b -p -s -u -U -w --cached --check --color --compact-summary --diff-filter --exit-code
 --find-renames --ignore-all-space --ignore-blank-lines --ignore-space-change --name-only
 --name-status --no-color --no-patch --no-renames --numstat --patch --quiet --raw --shortstat
 --staged --stat --summary --unified --word-diff"""
_LOG = f"""... -- -# -g -G -i -n -S --abbrev-commit --after --all --author --before --branches
 --date --decorate --first-parent --follow --format --graph --grep --max-count --merges
 --no-decorate --no-merges --oneline --pretty --remotes --reverse --since --tags --until {_DIFF}"""
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
_FLAKE8 = "... --count --extend-ignore --ignore --max-line-length --select --statistics"
_GH = "... -c -L -s --assignee --author --branch --comments --json --label --limit --search --state"

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


def _spread(first_words: str) -> list[tuple[str, ...]]:
    """Returns all combinations of a line's alternatives: `a|b c` gives (a, c) and (b, c)."""
    found: list[tuple[str, ...]] = [()]
    for choices in first_words.split():
        found = [(*words, choice) for words in found for choice in choices.split("|")]
    return found


#: the options and marks of each known command, by its first words
KNOWN_COMMANDS: Mapping[tuple[str, ...], frozenset[str]] = {
    words: frozenset(options.split())
    for first_words, options in _LISTED.items()
    for words in _spread(first_words)
}
