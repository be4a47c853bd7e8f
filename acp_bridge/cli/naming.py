"""The name of an agent, found in the command that starts it.

- It survives upgrades: versions of packages, folders and images are left out.
- It tells agents apart: a program that only starts another one (`npx`, `node`, `bash`, `docker`)
  does not give its own name, but that of the package, script or image that it starts.
- It holds no option, setting or address, since these may hold secrets.
"""

import hashlib
import os
import re
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from acp_bridge.agents.identity import without_version
from acp_bridge.cli.launchers import DOCKER_FLAGS, LAUNCHERS, SHELLS, Kind, Launcher

_SCRIPTS: Final = frozenset({".py", ".js", ".mjs", ".cjs", ".ts", ".sh", ".rb", ".jar", ".dll"})
#: commands of a shell script that only prepare the agent.
_PREPARING: Final = frozenset(
    {
        "cd",
        "pushd",
        "export",
        "source",
        ".",
        "set",
        "unset",
        "eval",
        "umask",
        "ulimit",
        "nvm",
        "fnm",
    }
)
_OPERATORS: Final = frozenset({"&&", "||", ";", "&", "(", ")", "{", "}"})
_SETTING: Final = re.compile(r"\w+=")
#: one agent starts another, which starts another: deeper than this is no command of a person.
_DEEPEST: Final = 8
#: the launchers whose names `former_names` left out, as earlier versions of the bridge did.
_FORMER: Final = frozenset({"npx", "bunx", "uvx", "pipx", "node", "bun", "deno", "env"})
_NO_NAME: Final = re.compile(r"-|.*(=|://)")


def agent_name(command: Sequence[str]) -> str:
    """Return the name under which an agent's sessions are kept."""
    return _name(list(command), _DEEPEST) or Path(command[0]).name


def former_names(command: Sequence[str]) -> frozenset[str]:
    """Return the names under which earlier versions of the bridge kept this agent's sessions."""
    name = Path(command[0]).name
    if name in _FORMER or name.startswith("python"):
        words = [word for word in command[1:] if not _NO_NAME.match(word)]
        if words:
            name = Path(words[0]).name if words[0].startswith(("/", ".")) else words[0]
    return frozenset({name, without_version(name)})


def _name(words: list[str], depth: int) -> str | None:
    """Return the name that a command line gives; None if there is nothing to name."""
    while words and _SETTING.match(words[0]):
        words = words[1:]
    if not words or not depth:
        return None
    program = Path(words[0]).name.removesuffix(".exe").removesuffix(".cmd")
    kind = program.rstrip("0123456789.")
    if kind in SHELLS:
        return _of_shell(program, words[1:], depth)
    if kind in ("docker", "podman", "nerdctl"):
        return _of_container(kind, words[1:], depth)
    launcher = LAUNCHERS.get(kind)
    if launcher is None:
        return _of_file(words[0]) if _is_script(words[0]) else without_version(program)
    return _of_launcher(kind, launcher, words[1:], depth) or kind


def _of_launcher(program: str, launcher: Launcher, words: list[str], depth: int) -> str | None:
    kind, words = launcher.kind, list(words)
    for subcommand, its_kind in launcher.subcommands:
        if words[: len(subcommand)] == list(subcommand):
            kind, words = its_kind, words[len(subcommand) :]
            break
    named = None
    while words and (words[0].startswith("-") or _is_setting(words[0])):
        option = words.pop(0)
        name, equals, value = option.partition("=")
        if option == "--":
            break
        if name in launcher.code and words:
            return f"{program} {_digest(words[0])}"
        if name in launcher.named:
            named = value if equals else words.pop(0) if words else None
            if name in launcher.ends:
                return _of_word(named, depth, []) if named else None
        elif name in launcher.values and not equals and words:
            words.pop(0)
    for _ in range(launcher.skipped):
        words = words[1:]
    if not words:
        return _of_word(named, depth, []) if named else None
    if kind is Kind.COMMAND:
        return _name(words, depth - 1)
    if kind is Kind.SCRIPT:
        return _of_file(words[0])
    return _of_word(words[0], depth, words[1:])


def _of_word(word: str, depth: int, rest: list[str]) -> str | None:
    """Return the name of a package, which may start another one itself."""
    if "://" in word or word.startswith(("github:", "git+")):
        return _of_address(word)
    if word.startswith(("/", ".", "~")) or _is_script(word):
        return _of_file(word)
    name = without_version(word)
    return _name([name, *rest], depth - 1) if rest and name in LAUNCHERS else name


def _of_address(address: str) -> str:
    """Return the last part of an address, without what may be a secret or a version."""
    path = re.split(r"[?#]", address)[0].rstrip("/").rpartition("/")[2]
    return without_version(path.removesuffix(".git").partition(".git@")[0])


def _of_file(word: str) -> str:
    """Return a script's package, if it lies in one, or its path without versions."""
    parts = word.replace("\\", "/").split("/")
    for folder in ("node_modules", "site-packages"):
        if folder in parts[:-1]:
            inside = parts[len(parts) - parts[::-1].index(folder) :]
            return without_version("/".join(inside[: 2 if inside[0].startswith("@") else 1]))
    if "/" not in word and not _is_script(word):
        return without_version(word)
    path = word if word.startswith(("/", "~", "$")) else os.path.abspath(word)
    kept = [without_version(part) for part in path.split("/")]
    return "/".join(part for part in kept if not re.fullmatch(r"v?\d+(\.\d+)+.*", part))


def _of_shell(program: str, words: list[str], depth: int) -> str:
    for number, word in enumerate(words):
        if re.fullmatch(r"-[a-z]*c|/c|-Command", word) and number + 1 < len(words):
            script = words[number + 1]
            return _of_script(script, depth) or f"{program} {_digest(script)}"
        if not word.startswith("-"):
            return _of_file(word)
    return program


def _of_script(script: str, depth: int) -> str | None:
    """Return the name of the last command that a shell script runs: the agent."""
    commands: list[list[str]] = [[]]
    try:
        for line in script.splitlines():
            lexer = shlex.shlex(line, posix=True, punctuation_chars=True)
            lexer.whitespace_split = True
            for token in lexer:
                if token in _OPERATORS:
                    commands.append([])
                else:
                    commands[-1].append(token)
            commands.append([])
    except ValueError:
        return None
    folder = ""
    found = None
    for words in commands:
        words = words[: words.index("|")] if "|" in words else words
        while words and (words[0] in ("exec", "command") or _is_setting(words[0])):
            words = words[1:]
        if words[:1] == ["cd"] and len(words) > 1:
            folder = words[1]
        elif words and words[0] not in _PREPARING:
            found = words
    if found and folder:
        found = [_from(folder, word) for word in found]
    return _name(found, depth - 1) if found else None


def _from(folder: str, word: str) -> str:
    relative = word.startswith(".") or ("/" in word and _is_script(word))
    return f"{folder}/{word.removeprefix('./')}" if relative and word[0] not in "/~$" else word


def _of_container(program: str, words: list[str], depth: int) -> str:
    words = _after_options(words)
    if words[:1] == ["compose"]:
        words = _after_options(words[1:])
    if words[:1] == ["container"]:
        words = words[1:]
    if len(words) < 2 or words[0] not in ("run", "exec", "start"):
        return program
    words = _after_options(words[1:])
    if not words:
        return program
    image = words[0].partition("@")[0]
    path, slash, last = image.rpartition("/")
    image = path + slash + last.partition(":")[0]
    inside = words[1:]
    if inside and not inside[0].startswith("-") and (name := _name(inside, depth - 1)):
        return f"{image} {name}"
    return image


def _after_options(words: list[str]) -> list[str]:
    """Leave out docker's options: nearly all of them have a value."""
    while words and words[0].startswith("-"):
        flag = words[0] in DOCKER_FLAGS or "=" in words[0] or re.fullmatch(r"-[itd]+", words[0])
        words = words[1 if flag else 2 :]
    return words


def _is_script(word: str) -> bool:
    return Path(word).suffix in _SCRIPTS


def _is_setting(word: str) -> bool:
    return bool(_SETTING.match(word)) and "==" not in word


def _digest(text: str) -> str:
    """Return what tells two scripts apart, whatever versions and secrets are in them."""
    bare = " ".join(without_version(word) for word in text.split())
    return hashlib.sha256(bare.encode("utf-8", "surrogatepass")).hexdigest()[:12]
