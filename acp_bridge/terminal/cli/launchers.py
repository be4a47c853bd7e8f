"""The programs that only start another one, and which of their arguments name that other one."""

from collections.abc import Mapping
from typing import Final

_Launcher = tuple[str, Mapping[str, str]]


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
