"""Programs that only start another one, and where in their command lines that other one stands."""

from dataclasses import dataclass
from enum import Enum
from typing import Final


class Kind(Enum):
    """Says what the first word that is no option names."""

    COMMAND = "another command line"
    PACKAGE = "a package"
    SCRIPT = "a script"


@dataclass(frozen=True, slots=True)
class Launcher:
    """How the command line of a launcher is read."""

    kind: Kind
    #: words that may follow the launcher's name, and what comes after them.
    subcommands: tuple[tuple[tuple[str, ...], Kind], ...] = ()
    #: options that are followed by a value.
    values: frozenset[str] = frozenset()
    #: options whose value names what is started, if no other word does.
    named: frozenset[str] = frozenset()
    #: those of them after which the rest is for what is started.
    ends: frozenset[str] = frozenset()
    #: options whose value is code.
    code: frozenset[str] = frozenset()
    #: how many words to leave out before the first that counts.
    skipped: int = 0


def _options(*names: str) -> frozenset[str]:
    return frozenset(names)


SHELLS: Final = frozenset({"bash", "sh", "zsh", "dash", "ksh", "fish", "cmd", "pwsh", "powershell"})
#: options of `docker run` and `docker exec` without a value; all others have one.
DOCKER_FLAGS: Final = frozenset(
    {"--rm", "--init", "--interactive", "--tty", "--detach", "--privileged", "--read-only", "-P"}
    | {"--publish-all", "--no-healthcheck", "--oom-kill-disable", "--sig-proxy", "--quiet", "-q"}
    | {"--no-TTY", "-T", "--no-deps", "--build", "--service-ports", "--attach", "-a", "-ai", "-ia"}
    | {"--use-aliases", "--remove-orphans", "--tls", "--tlsverify", "--debug", "-D"}
)

_NPM: Final = _options("-w", "--workspace", "--prefix", "--registry", "--cache", "-C", "--dir")
_NPX: Final = Launcher(
    Kind.PACKAGE, values=_NPM, named=_options("-p", "--package"), code=_options("-c", "--call")
)
_UV: Final = (
    _options("--with", "--with-editable", "--with-requirements", "--python", "-p", "--directory")
    | _options("--index-url", "--extra-index-url", "--index", "--default-index", "--find-links")
    | _options("-i", "-f", "--project", "--env-file", "--cache-dir", "--config-file", "--extra")
    | _options(
        "--group", "--package", "--color", "--refresh-package", "--pip-args", "--fetch-python"
    )
)
_UVX: Final = Launcher(Kind.PACKAGE, values=_UV, named=_options("--from", "--spec"))
_NODE: Final = Launcher(
    Kind.SCRIPT,
    values=_options("-r", "--require", "--import", "--loader", "--experimental-loader")
    | _options("--env-file", "-C", "--conditions", "--tsconfig", "--config", "--cwd"),
    code=_options("-e", "--eval", "-p", "--print"),
)
_SCRIPT: Final = Launcher(Kind.SCRIPT, values=_options("-I", "-d"), code=_options("-e", "-r"))
_IN_ENVIRONMENT: Final = Launcher(
    Kind.COMMAND,
    subcommands=((("run",), Kind.COMMAND),),
    values=_options("-n", "--name", "-p", "--prefix", "-C", "--directory", "-P", "--project"),
)

LAUNCHERS: Final[dict[str, Launcher]] = {
    "npx": _NPX,
    "pnpx": _NPX,
    "bunx": _NPX,
    "npm": Launcher(
        Kind.PACKAGE,
        ((("exec",), Kind.PACKAGE), (("x",), Kind.PACKAGE)),
        values=_NPM,
        named=_options("-p", "--package"),
        code=_options("-c", "--call"),
    ),
    "pnpm": Launcher(
        Kind.PACKAGE, ((("dlx",), Kind.PACKAGE), (("exec",), Kind.COMMAND)), values=_NPM
    ),
    "yarn": Launcher(
        Kind.PACKAGE, ((("dlx",), Kind.PACKAGE), (("exec",), Kind.COMMAND)), values=_NPM
    ),
    "uvx": _UVX,
    "pipx": Launcher(
        Kind.PACKAGE, ((("run",), Kind.PACKAGE),), values=_UV, named=_options("--spec")
    ),
    "uv": Launcher(
        Kind.COMMAND,
        ((("tool", "run"), Kind.PACKAGE), (("run",), Kind.COMMAND)),
        values=_UV,
        named=_options("-m", "--module", "--from"),
        ends=_options("-m", "--module"),
    ),
    "python": Launcher(
        Kind.SCRIPT,
        values=_options("-W", "-X", "--check-hash-based-pycs"),
        named=_options("-m"),
        ends=_options("-m"),
        code=_options("-c"),
    ),
    "node": _NODE,
    "tsx": _NODE,
    "ts-node": _NODE,
    "bun": Launcher(
        Kind.SCRIPT,
        ((("run",), Kind.SCRIPT), (("x",), Kind.PACKAGE)),
        _NODE.values,
        code=_NODE.code,
    ),
    "deno": Launcher(Kind.SCRIPT, ((("run",), Kind.SCRIPT),), _NODE.values),
    "ruby": _SCRIPT,
    "perl": _SCRIPT,
    "php": _SCRIPT,
    "lua": _SCRIPT,
    "dotnet": Launcher(Kind.SCRIPT, ((("exec",), Kind.SCRIPT),)),
    "java": Launcher(
        Kind.PACKAGE,
        values=_options("-cp", "-classpath", "--class-path", "--module-path"),
        named=_options("-jar", "-m", "--module"),
        ends=_options("-jar", "-m", "--module"),
    ),
    "go": Launcher(Kind.SCRIPT, ((("run",), Kind.SCRIPT),)),
    "nix": Launcher(Kind.PACKAGE, ((("run",), Kind.PACKAGE),)),
    "poetry": _IN_ENVIRONMENT,
    "pipenv": _IN_ENVIRONMENT,
    "pdm": _IN_ENVIRONMENT,
    "hatch": _IN_ENVIRONMENT,
    "rye": _IN_ENVIRONMENT,
    "conda": _IN_ENVIRONMENT,
    "mamba": _IN_ENVIRONMENT,
    "micromamba": _IN_ENVIRONMENT,
    "env": Launcher(Kind.COMMAND, values=_options("-u", "--unset", "-C", "--chdir")),
    "sudo": Launcher(Kind.COMMAND, values=_options("-u", "-g", "-C", "-h", "-p", "-D")),
    "doas": Launcher(Kind.COMMAND, values=_options("-u", "-C")),
    "nice": Launcher(Kind.COMMAND, values=_options("-n")),
    "nohup": Launcher(Kind.COMMAND),
    "setsid": Launcher(Kind.COMMAND),
    "stdbuf": Launcher(Kind.COMMAND, values=_options("-i", "-o", "-e")),
    "timeout": Launcher(Kind.COMMAND, values=_options("-s", "-k"), skipped=1),
    "direnv": Launcher(Kind.COMMAND, ((("exec",), Kind.COMMAND),), skipped=1),
    "mise": Launcher(Kind.COMMAND, ((("exec",), Kind.COMMAND), (("x",), Kind.COMMAND))),
    "ssh": Launcher(
        Kind.COMMAND, values=_options("-i", "-p", "-o", "-l", "-F", "-J", "-b"), skipped=1
    ),
    "wsl": Launcher(Kind.COMMAND, values=_options("-d", "-u", "--cd")),
    "flatpak": Launcher(Kind.PACKAGE, ((("run",), Kind.PACKAGE),), values=_options("--command")),
}
