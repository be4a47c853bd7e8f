"""Finds the name of an agent in the command that starts it.

- The name survives upgrades: versions of packages, folders and images are left out.
- It tells agents apart: a program that only starts another one (`npx`, `node`, `bash`, `docker`) is
  left out, and the package, script or image that it starts gives the name.
- It holds no option, setting or address, since these may hold secrets.
"""

import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from acp_bridge.core.agents.identity import file_without_version, without_version

_Launcher = tuple[str, Mapping[str, str]]


def _set(words: str) -> frozenset[str]:
    return frozenset(words.split())


#: launchers whose first argument is a duration, a folder or a host; what they start follows it.
_OWN_WORD: Final = _set("timeout direnv ssh")
_SHELLS: Final = _set("bash sh zsh dash ksh fish cmd pwsh powershell")
_CONTAINERS: Final = _set("docker podman nerdctl")
#: options of `docker run` and `docker exec` without a value; all others have one.
_DOCKER_FLAGS: Final = _set(
    """--rm --init --interactive --tty --detach --privileged --read-only -P --publish-all -D -T -q
    --no-healthcheck --oom-kill-disable --sig-proxy --quiet --no-TTY --no-deps --build --attach -a
    -ai -ia --service-ports --use-aliases --remove-orphans --tls --tlsverify --debug"""
)
_SCRIPTS: Final = _set(".py .js .mjs .cjs .ts .sh .rb .jar .dll")
#: commands of a shell script that only prepare the start of the agent.
_PREPARING: Final = _set("cd pushd export source . set unset eval umask ulimit nvm fnm")
_OPERATORS: Final = _set("&& || ; & ( ) { }")
_SETTING: Final = re.compile(r"\w+=")
#: how many launchers may start one another; a command line with more was not written by a person.
_DEEPEST: Final = 8
#: the launchers that earlier versions of the bridge left out of names (`former_names`).
_FORMER: Final = _set("npx bunx uvx pipx node bun deno env")
_NO_NAME: Final = re.compile(r"-|.*(=|://)")


def agent_name(command: Sequence[str]) -> str:
    """Return the name under which sessions of the agent that `command` starts are kept.

    If the command line gives no name, it is that of its first script, or of the program.
    """
    name = _name(list(command), _DEEPEST) or Path(command[0]).name
    if _is_name(name):
        return name
    files = (without_version(Path(word).name) for word in command[1:] if "/" in word)
    return next(filter(_is_name, files), Path(command[0]).name)


def is_named(command: Sequence[str]) -> bool:
    """Return True if the command line names its agent, False if `agent_name` only guesses."""
    return _is_name(_name(list(command), _DEEPEST) or Path(command[0]).name)


def _is_name(name: str) -> bool:
    """Return True if a word can be a name: it is neither an option nor hidden, such as `.bin`."""
    return not Path(name).name.startswith((".", "-"))


def former_names(command: Sequence[str]) -> frozenset[str]:
    """Return the names under which earlier versions of the bridge kept this agent's sessions."""
    name = Path(command[0]).name
    if name in _FORMER or name.startswith("python"):
        words = [word for word in command[1:] if not _NO_NAME.match(word)]
        if words:
            name = Path(words[0]).name if words[0].startswith(("/", ".")) else words[0]
    return frozenset({name, without_version(name)})


def _name(words: list[str], depth: int) -> str | None:
    """Return the name of the agent that a command line starts; None if it starts none.

    `depth`: how many launchers may still start one another.
    """
    words = _without_settings(words)
    if not words or not depth:
        return None
    program = Path(words[0]).name.removesuffix(".exe").removesuffix(".cmd")
    kind = program.rstrip("0123456789.")
    if kind in _SHELLS:
        return _of_shell(program, words[1:], depth)
    if kind in _CONTAINERS:
        return _of_container(kind, words[1:], depth)
    if _subcommand(kind, words[1:])[0] in LAUNCHERS:
        return _of_launcher(kind, words[1:], depth) or kind
    return _of_file(words[0]) if _is_script(words[0]) else file_without_version(program)


def _of_launcher(program: str, words: list[str], depth: int) -> str | None:
    """Return the name of the agent that a launcher starts, given its arguments; None for none."""
    name, words = _subcommand(program, words)
    (starts, options), named = LAUNCHERS[name], ""
    for number, word in enumerate(words):
        if options.get(word) == "command" and words[number + 1 :]:
            return _name(words[number + 1 :], depth - 1)
    while words and (words[0].startswith("-") or _is_setting(words[0])):
        word, *words = words
        if word == "--":
            break
        option, equals, value = word.partition("=")
        kind = options.get(option)
        if kind == "code" and words:
            return f"{program} {_digest(words[0])}"
        if kind == "words" and (value or words):
            return _of_script(value or words[0], depth)
        if kind in ("value", "named", "last") and not equals:
            value, words = "".join(words[:1]), words[1:]
        if kind in ("named", "last"):
            named = value
        if kind == "last":
            words = []
    words = words[1:] if program in _OWN_WORD else words
    if starts == "command" and words:
        return _name(words, depth - 1)
    if starts == "script" and words:
        package = re.fullmatch(r"(?:npm|jsr):/?(.+)", words[0])  # deno runs both
        return without_version(package[1]) if package else _of_file(words[0])
    word, *rest = words or [named]
    return _of_word(word, depth, rest) if word else None


def _subcommand(program: str, words: list[str]) -> tuple[str, list[str]]:
    """Return a launcher's name, with its subcommand if it has one, and all further words.

    Options that stand before the subcommand are kept, in front of the further words.
    """
    _, options = LAUNCHERS.get(program, ("", {}))
    at = 0
    while at < len(words) and words[at].startswith("-"):
        at += 2 if options.get(words[at]) else 1
    for first in (0, at):
        for count in (2, 1):
            name = " ".join([program, *words[first : first + count]])
            if name in LAUNCHERS and name != program:
                return name, [*words[:first], *words[first + count :]]
    return program, words


def _of_word(word: str, depth: int, rest: list[str]) -> str | None:
    """Return the agent's name for `word`, the package, script or address that a launcher starts.

    A package such as `ts-node` may be a launcher too; then the words behind it, `rest`, give the
    name.
    """
    if "://" in word or word.startswith(("github:", "git+")):
        # The last part of an address, without what may be a secret or a version.
        path = re.split(r"[?#]", word)[0].rstrip("/").rpartition("/")[2]
        return without_version(path.removesuffix(".git").partition(".git@")[0])
    if word.startswith(("/", ".", "~")) or _is_script(word):
        return _of_file(word)
    name = without_version(word)
    return _name([name, *rest], depth - 1) if rest and name in LAUNCHERS else name


def _of_file(word: str) -> str:
    """Return a script's name, without versions: its package if it lies in one, else its path."""
    parts = word.replace("\\", "/").split("/")
    for folder in ("node_modules", "site-packages"):
        if folder in parts[:-1]:
            inside = parts[len(parts) - parts[::-1].index(folder) :]
            if inside[0] == ".bin" and len(inside) > 1:  # the commands of all packages
                return file_without_version(inside[1])
            return without_version("/".join(inside[: 2 if inside[0].startswith("@") else 1]))
    if "/" not in word and not _is_script(word):
        return without_version(word)
    path = word if word.startswith(("/", "~", "$")) else os.path.abspath(word)
    kept = [file_without_version(part) for part in path.split("/")]
    return "/".join(part for part in kept if not re.fullmatch(r"v?\d+(\.\d+)+.*", part))


def _of_shell(program: str, words: list[str], depth: int) -> str:
    """Return the agent's name from a shell's arguments: its script, or the last command of `-c`."""
    for number, word in enumerate(words):
        if re.fullmatch(r"-[a-z]*c|/c|-Command", word) and number + 1 < len(words):
            script = words[number + 1]
            given = words[number + 2 :]
            return _of_script(script, depth, given) or f"{program} {_digest(script)}"
        if not word.startswith("-"):
            return _of_file(word)
    return program


def _of_script(script: str, depth: int, given: Sequence[str] = ()) -> str | None:
    """Return the name of the last command that a shell script runs; None if it can't be read.

    `given`: the script's own arguments, from `$0` on.
    """
    import shlex  # few commands are scripts

    commands: list[list[str]] = [[]]
    try:
        for line in script.splitlines():
            lexer = shlex.shlex(line, posix=True, punctuation_chars=True)
            lexer.whitespace_split = True
            for token in (*lexer, ";"):
                if token in _OPERATORS:
                    commands.append([])
                else:
                    commands[-1].append(token)
    except ValueError:
        return None
    folder, found = "", list[str]()
    for words in commands:
        words = words[: words.index("|")] if "|" in words else words
        words = [each for word in words for each in _filled_in(word, given)]
        words = _without_settings(words, "exec", "command")
        if words[:1] == ["cd"] and len(words) > 1:
            folder = words[1]
        elif words and words[0] not in _PREPARING:
            found = words
    return _name([_from(folder, word) for word in found], depth - 1)


def _filled_in(word: str, given: Sequence[str]) -> Sequence[str]:
    """Return the arguments for which `$@` or `$1` in a script stands; any other word as it is.

    `given`: the script's arguments, from `$0` on.
    """
    if word in ("$@", "$*"):
        return given[1:]
    number = re.fullmatch(r"\$\{?(\d)\}?", word)
    return given[int(number[1]) :][:1] if number else [word]


def _from(folder: str, word: str) -> str:
    """Return a word of a command that runs in `folder`; a relative path is joined to the folder."""
    relative = word.startswith(".") or ("/" in word and _is_script(word))
    whole = not folder or not relative or word[0] in "/~$"
    return word if whole else f"{folder}/{word.removeprefix('./')}"


def _of_container(program: str, words: list[str], depth: int) -> str:
    """Return the name from docker's arguments: the image or container, without its version.

    The name of the agent that is started inside follows, if the arguments say it.
    """
    words = _after_options(words)
    for word in ("compose", "container"):
        words = _after_options(words[1:]) if words[:1] == [word] else words
    starts = words[:1] in (["run"], ["exec"], ["start"])
    image, *inside = (_after_options(words[1:]) if starts else []) or [program]
    image = re.sub(r"@.*|:[^/@]*(?=@|$)", "", image)
    name = _name(inside, depth - 1) if inside and not inside[0].startswith("-") else None
    return f"{image} {name}" if name else image


def _after_options(words: list[str]) -> list[str]:
    """Return the words behind the options of docker that begin `words`.

    An option has a value unless it is one of `_DOCKER_FLAGS`.
    """
    while words and words[0].startswith("-"):
        flag = words[0] in _DOCKER_FLAGS or "=" in words[0] or re.fullmatch(r"-[itd]+", words[0])
        words = words[1 if flag else 2 :]
    return words


def _is_script(word: str) -> bool:
    return Path(word).suffix in _SCRIPTS


def _without_settings(words: list[str], *prefixes: str) -> list[str]:
    """Return `words` without leading settings such as NAME=value and leading `prefixes`."""
    while words and (words[0] in prefixes or _SETTING.match(words[0])):
        words = words[1:]
    return words


def _is_setting(word: str) -> bool:
    return bool(_SETTING.match(word)) and "==" not in word  # name==version is a package


def _digest(text: str) -> str:
    """Return 12 hex digits of the SHA-256 of a script, from which versions were left out.

    So a script has a name that shows no secret of it.
    """
    import hashlib  # for few commands; it loads a library

    bare = " ".join(without_version(word) for word in text.split())
    return hashlib.sha256(bare.encode("utf-8", "surrogatepass")).hexdigest()[:12]


def _launch(names: str, starts: str, **options: str) -> dict[str, _Launcher]:
    """Return a table with the same entry for each of `names` (comma-separated, with a subcommand).

    `starts`: what the launcher's first argument that is no option names: a `command`, a `package`
    or a `script`. `options`: the launcher's options that have a value, by the kind of the value:
    `value`, to be skipped; `named`, the thing that is started if no argument names it; `last`, the
    same, and all further arguments are the agent's; `code`, a program text that is run; `words`, a
    command line in one word; `command`, the whole command line stands behind the option.
    """
    kinds = {option: kind for kind, named in options.items() for option in named.split()}
    return dict.fromkeys(names.split(", "), (starts, kinds))


_NPM = "-w --workspace --prefix --registry --cache -C --dir"
_NPX = {"value": _NPM, "named": "-p --package", "code": "-c --call"}
_UV = """--with --with-editable --with-requirements --python -p --directory --index-url --index
    --extra-index-url --default-index --find-links -i -f --project --env-file --cache-dir --group
    --config-file --extra --package --color --refresh-package --pip-args --fetch-python"""
_UV_RUN = {"value": _UV, "named": "--from", "last": "-m --module"}
_DENO = """-r --require --import --loader --experimental-loader --env-file -C --conditions
    --tsconfig --config --cwd"""
_NODE = {"value": _DENO, "code": "-e --eval -p --print"}
_PYTHON = {"value": "-W -X --check-hash-based-pycs", "last": "-m", "code": "-c"}
_CLASSES = "-cp -classpath --class-path --module-path"
_SPLIT = "-S --split-string -iS -vS"
_IN_ENVIRONMENT = "-n --name -p --prefix -C --directory -P --project"
#: By launcher, some with a subcommand; of the entries that fit a command line the longest counts.
LAUNCHERS: Final = {
    **_launch("npx, pnpx, bunx, npm, npm exec, npm x", "package", **_NPX),
    **_launch("pnpm, pnpm dlx, yarn, yarn dlx", "package", value=_NPM),
    **_launch("npm run, npm run-script, pnpm run, yarn run, deno task", "package", value=_NPM),
    **_launch("pnpm exec, yarn exec", "command", value=_NPM),
    **_launch("uvx", "package", value=_UV, named="--from --spec"),
    **_launch("pipx, pipx run", "package", value=_UV, named="--spec"),
    **_launch("uv tool run", "package", **_UV_RUN),
    **_launch("uv, uv run", "command", **_UV_RUN),
    **_launch("python", "script", **_PYTHON),
    **_launch("node, tsx, ts-node, bun, bun run", "script", **_NODE),
    **_launch("bun x", "package", **_NODE),
    **_launch("deno, deno run", "script", value=_DENO),
    **_launch("ruby, perl, php, lua", "script", value="-I -d", code="-e -r"),
    **_launch("java", "package", value=_CLASSES, last="-jar -m --module"),
    **_launch("dotnet, dotnet exec", "script"),
    **_launch("go, go run", "package"),
    **_launch("dotnet run", "script", named="--project"),
    **_launch("nix, nix run", "package"),
    **_launch("nix shell, nix develop", "package", command="-c --command"),
    **_launch("nix-shell", "package", value="-p", words="--run --command"),
    **_launch("flatpak, flatpak run", "package", value="--command"),
    **_launch("poetry, poetry run, pipenv, pipenv run", "command", value=_IN_ENVIRONMENT),
    **_launch("pdm, pdm run, hatch, hatch run, rye, rye run", "command", value=_IN_ENVIRONMENT),
    **_launch("conda, conda run, mamba, mamba run", "command", value=_IN_ENVIRONMENT),
    **_launch("micromamba, micromamba run", "command", value=_IN_ENVIRONMENT),
    **_launch("volta, volta run", "command", value="--node --npm --pnpm --yarn"),
    **_launch("env", "command", value="-u --unset -C --chdir", words=_SPLIT),
    **_launch("sudo", "command", value="-u -g -C -h -p -D"),
    **_launch("doas", "command", value="-u -C"),
    **_launch("nice", "command", value="-n"),
    **_launch("nohup, setsid, time, caffeinate, arch, firejail, corepack", "command"),
    **_launch("mise, mise exec, mise x, rtx exec, asdf exec, devbox run", "command", command="--"),
    **_launch("op run, doppler run, infisical run, dotenvx run", "command", command="--"),
    **_launch("aws-vault exec, distrobox enter, bwrap", "command", command="--"),
    **_launch("dotenv, dotenv run", "command", value="-e -f"),
    **_launch("fnm exec", "command", value="--using"),
    **_launch("ionice", "command", value="-c -n"),
    **_launch("systemd-run", "command", value="-p --property -u --unit -E --setenv"),
    **_launch("xvfb-run", "command", value="-n -s"),
    **_launch("proxychains", "command", value="-f"),
    **_launch("stdbuf", "command", value="-i -o -e"),
    **_launch("timeout", "command", value="-s -k"),
    **_launch("direnv, direnv exec", "command"),
    **_launch("ssh", "command", value="-i -p -o -l -F -J -b"),
    **_launch("wsl", "command", value="-d -u --cd"),
}
