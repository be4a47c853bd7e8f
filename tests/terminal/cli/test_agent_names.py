"""The name of an agent, by which its sessions are kept: for every version, and for it alone."""

import shlex
from pathlib import Path

import pytest

from acp_bridge.core.agents.identity import AgentIdentity, without_version
from acp_bridge.terminal.cli import options
from acp_bridge.terminal.cli.naming import agent_name, former_names

pytestmark = pytest.mark.hazard("K9")

HERE = Path.cwd()


def name(command: str) -> str:
    return agent_name(shlex.split(command))


@pytest.mark.parametrize(
    ("command", "expected"),
    [
        ("codex-acp", "codex-acp"),
        ("/usr/bin/codex-acp --model x", "codex-acp"),
        ("/opt/codex-acp-0.16.0/bin/codex-acp", "codex-acp"),
        ("./codex-acp-0.16.1", "codex-acp"),
        ("gemini --experimental-acp", "gemini"),
        ("/opt/a/start.sh", "/opt/a/start.sh"),
        ("npx -y @zed/claude-agent-acp", "@zed/claude-agent-acp"),
        ("npx -y @zed/claude-agent-acp@0.16.0 --flag", "@zed/claude-agent-acp"),
        ("npx pkg@latest acp", "pkg"),
        ("npx --package=@a/b@1.0 b-cli", "b-cli"),
        ("npx tsx /a/b.ts", "/a/b.ts"),
        ("npm exec -- @a/b@2", "@a/b"),
        ("pnpm dlx foo@1", "foo"),
        ("bunx --bun foo@2", "foo"),
        ("uvx --index-url https://user:secret@packages.example/simple an-agent", "an-agent"),
        ("uvx --python 3.12 --from an-agent==1.2 agent-cli", "agent-cli"),
        ("uvx 'an-agent[acp]==0.3' serve", "an-agent"),
        ("uvx git+https://user:secret@git.example/o/agent.git@v1.2", "agent"),
        ("uv tool run --python 3.12 foo@1", "foo"),
        ("uv run --project /a python -m agent", "agent"),
        ("pipx run foo==1", "foo"),
        ("env KEY=secret python3.11 /opt/agent.py", "/opt/agent.py"),
        ("KEY=secret codex-acp", "codex-acp"),
        ("python3 -I -X dev /opt/agent.py", "/opt/agent.py"),
        ("python3 -m my.agent --x", "my.agent"),
        ("node", "node"),
        ("node /a/b/index.js", "/a/b/index.js"),
        ("node --import tsx /opt/agent-1.2.3/index.js", "/opt/agent/index.js"),
        (
            "node /home/u/.nvm/versions/node/v20.1.0/x/index.js",
            "/home/u/.nvm/versions/node/x/index.js",
        ),
        ("node /n/_npx/1f/node_modules/@zed/claude-acp/dist/index.js", "@zed/claude-acp"),
        ("node dist/index.js", f"{HERE}/dist/index.js"),
        ("java -Xmx1g -jar /opt/agent-1.2.3.jar", "/opt/agent.jar"),
        ("bash -lc codex-acp", "codex-acp"),
        ("bash -l -c 'opencode acp'", "opencode"),
        ("sh -c 'cd /x && TOKEN=secret exec npx pkg@0.16.0 --key=secret'", "pkg"),
        ("bash -lc 'source ~/.nvm/nvm.sh; nvm use 20; gemini --acp'", "gemini"),
        ("bash -lc 'cd /a && ./run.sh'", "/a/run.sh"),
        ("bash -c 'codex-acp 2>>/tmp/log | tee x'", "codex-acp"),
        ("bash /opt/start.sh", "/opt/start.sh"),
        ("docker run -i --rm -e KEY=secret -v /a:/b ghcr.io/o/agent:1.2 --acp", "ghcr.io/o/agent"),
        ("docker run -it registry:5000/o/agent@sha256:ab", "registry:5000/o/agent"),
        ("docker run -i --name x node:20 npx foo@1", "node foo"),
        ("podman exec -i box codex-acp", "box codex-acp"),
        ("docker compose -f x.yml run -T agent", "agent"),
        ("timeout 5 codex-acp", "codex-acp"),
        ("poetry run my-agent", "my-agent"),
        ("sudo -u me codex-acp", "codex-acp"),
        ("pnpx foo@1", "foo"),
        ("npm x @a/b", "@a/b"),
        ("npx -c 'agent --key=secret'", "npx 7cfba042ac72"),
        ("pnpm exec codex-acp", "codex-acp"),
        ("pnpm dlx --package foo foo-cli", "foo"),
        ("yarn dlx @a/b@2", "@a/b"),
        ("yarn exec codex-acp", "codex-acp"),
        ("uv run -m my.agent --x", "my.agent"),
        ("uv tool run --from an-agent==1.2 agent-cli", "agent-cli"),
        ("pipx run --spec an-agent==1.2 agent-cli", "agent-cli"),
        ("tsx /a/agent.ts", "/a/agent.ts"),
        ("ts-node --tsconfig x.json /a/agent.ts", "/a/agent.ts"),
        ("bun run /a/agent.ts", "/a/agent.ts"),
        ("bun x foo@2", "foo"),
        ("deno run --allow-all /a/agent.ts", "/a/agent.ts"),
        ("deno run -A npm:@google/gemini-cli@0.9.1 --acp", "@google/gemini-cli"),
        ("node /a/node_modules/.bin/codex-acp --x", "codex-acp"),
        ("/a/node_modules/.bin/codex-acp", "codex-acp"),
        ("volta run --node 20 gemini --acp", "gemini"),
        ("npm run agent -- --acp", "agent"),
        ("pnpm run agent", "agent"),
        ("yarn run agent", "agent"),
        ("deno task agent", "agent"),
        ("dotnet run --project src/Agent", "src/Agent"),
        ("volta run node /a/node_modules/@b/agent/cli.js", "@b/agent"),
        ("node /opt/agent/.bin", "node"),
        ("node .hidden/ /a/agent-1.2.0", "agent"),
        ("ruby -I lib /a/agent.rb", "/a/agent.rb"),
        ("perl -e 'run()'", "perl 02fcae88bd12"),
        ("php /a/agent-1.2.0/agent.php", "/a/agent/agent.php"),
        ("lua /a/agent.lua", "/a/agent.lua"),
        ("dotnet exec /opt/agent.dll", "/opt/agent.dll"),
        ("java -cp a.jar -m my.module/Main", "my.module/Main"),
        ("go run /a/agent", "/a/agent"),
        ("nix run github:o/agent", "agent"),
        ("flatpak run --command=x org.an.Agent", "org.an.Agent"),
        ("pipenv run python /a/agent.py", "/a/agent.py"),
        ("pdm run -p /a agent", "agent"),
        ("hatch run agent", "agent"),
        ("rye run agent", "agent"),
        ("conda run -n env agent", "agent"),
        ("mamba run -p /env agent", "agent"),
        ("micromamba run -n env agent", "agent"),
        ("doas -u me codex-acp", "codex-acp"),
        ("nice -n 10 codex-acp", "codex-acp"),
        ("nohup codex-acp", "codex-acp"),
        ("setsid -w codex-acp", "codex-acp"),
        ("stdbuf -o 0 codex-acp", "codex-acp"),
        ("timeout -k 1 5 npx foo@1", "foo"),
        ("direnv exec /a codex-acp", "codex-acp"),
        ("mise exec -- codex-acp", "codex-acp"),
        ("ssh -p 22 me@host codex-acp --x", "codex-acp"),
        ("wsl.exe -d Ubuntu codex-acp", "codex-acp"),
        ("cmd /c npx.cmd foo@1", "npx"),
        ("pwsh -Command codex-acp", "codex-acp"),
        ("fish -c 'codex-acp; echo done'", "echo"),
        ("nerdctl container run --rm org/agent:1", "org/agent"),
        ("docker -H tcp://h run org/agent", "org/agent"),
        ("docker ps", "docker"),
        ("env -S 'KEY=secret codex-acp --x'", "codex-acp"),
        ("env -i --split-string='A=1 npx pkg@1'", "pkg"),
        ("uv --directory /a run agent", "agent"),
        ("uv --project /a run python -m my.agent", "my.agent"),
        ("pnpm --package=opencode-ai dlx opencode acp", "opencode"),
        ("mise exec node@20 -- codex-acp", "codex-acp"),
        ("nix shell nixpkgs#codex -c codex-acp", "codex-acp"),
        ("nix develop --command npx pkg@1", "pkg"),
        ("nix-shell -p nodejs --run 'codex-acp --x'", "codex-acp"),
        ("sh -c 'exec \"$@\"' sh codex-acp", "codex-acp"),
        ("bash -lc 'KEY=secret exec \"$0\" --acp' npx pkg@1", "npx"),
        ("bash -c 'cd $1 && ./run.sh' bash /a", "/a/run.sh"),
        ("sh -c 'exec \"$@\"'", "sh a81e44ebbe25"),
        ("op run --env-file=x -- gemini --acp", "gemini"),
        ("doppler run -- npx -y pkg@1", "pkg"),
        ("aws-vault exec work -- codex-acp", "codex-acp"),
        ("bwrap --ro-bind / / -- codex-acp", "codex-acp"),
        ("systemd-run --user --pipe -p MemoryMax=2G codex-acp", "codex-acp"),
        ("fnm exec --using 20 codex-acp", "codex-acp"),
        ("dotenv -f .env run codex-acp", "codex-acp"),
        ("time codex-acp", "codex-acp"),
        ("corepack pnpm dlx foo@1", "foo"),
        ("go run github.com/o/agent@latest", "github.com/o/agent"),
        ("'/opt/my agent-1.2.0/bin/an agent' --acp", "an agent"),
        ("python '/home/me/a project/agent.py'", "/home/me/a project/agent.py"),
    ],
)
def test_an_agent_is_named_by_what_is_started_in_the_end_without_its_version(
    command: str, expected: str
) -> None:
    assert name(command) == expected


@pytest.mark.hazard("K9.1")
@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("npx pkg@0.16.0", "npx -y pkg@0.16.1"),
        ("uvx an-agent==1.0", "uvx an-agent@2.0"),
        ("docker run -i org/agent:1", "docker run -i --rm org/agent:2"),
        ("node /opt/agent-1.0.0/index.js", "node /opt/agent-1.1.0/index.js"),
        ("bash -lc 'npx pkg@1'", "bash -lc 'npx pkg@2 --verbose'"),
        ("python3.11 /opt/agent.py", "python3.12 /opt/agent.py"),
        ("python3.11 -c 'run(\"a\")'", "python3.12 -c 'run(\"a\")'"),
    ],
)
def test_an_upgrade_keeps_the_name(before: str, after: str) -> None:
    assert name(before) == name(after)


@pytest.mark.hazard("K9.1")
@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("node /a/index.js", "node /b/index.js"),
        ("python /a/agent.py", "python /b/agent.py"),
        ("bash -lc one-acp", "bash -lc other-acp"),
        ("bash -c 'cd /a && ./run.sh'", "bash -c 'cd /b && ./run.sh'"),
        ("bash -c 'echo \"'", "bash -c 'echo 1 \"'"),
        ("docker run -i org/one", "docker run -i org/other"),
        ("docker run -i node npx one", "docker run -i node npx other"),
        ("python -c 'one()'", "python -c 'other()'"),
        ("npx @a/agent", "npx @b/agent"),
        ("env -S 'one --acp'", "env -S 'other --acp'"),
        ("sh -c 'exec \"$@\"' sh one", "sh -c 'exec \"$@\"' sh other"),
        ("uv --directory /a run one", "uv --directory /a run other"),
        ("python '/a b/agent.py'", "python '/a c/agent.py'"),
    ],
)
def test_two_agents_have_two_names(one: str, other: str) -> None:
    assert name(one) != name(other)


@pytest.mark.parametrize(
    "command",
    [
        "bash -c 'KEY=secret; agent --key secret \"'",
        "python -c 'run(\"secret\")'",
        "npx --key secret=secret agent",
        "uvx git+https://secret@git.example/agent?token=secret",
        "docker run -e KEY=secret agent --key secret",
        "env KEY=secret",
    ],
)
def test_no_secret_of_a_command_line_is_in_the_name(command: str) -> None:
    assert "secret" not in name(command)


def identity(command: str, info: str | None = None) -> AgentIdentity:
    words = shlex.split(command)
    return AgentIdentity(agent_name(words), former_names(words), info)


@pytest.mark.hazard("K9.3")
@pytest.mark.parametrize(
    ("stored", "command"),
    [
        ("pkg@0.16.0", "npx pkg@0.16.1"),
        ("@zed/codex-acp@0.16.0", "npx -y @zed/codex-acp"),
        ("index.js", "node /a/b/index.js"),
        ("dist/index.js", "node dist/index.js"),
        ("agent.py", "python3 -I /opt/agent.py"),
        ("bash", "bash -lc codex-acp"),
        ("docker", "docker run -i org/agent"),
        ("python3.11", "env KEY=x python3.11 /opt/agent.py"),
        ("an-agent==1.0", "uvx an-agent==1.1"),
    ],
)
def test_sessions_under_the_names_of_earlier_versions_are_found(stored: str, command: str) -> None:
    assert identity(command).owns(stored, None)


@pytest.mark.hazard("K9.2")
def test_a_session_is_found_by_what_the_agent_says_of_itself() -> None:
    ours = identity("/opt/new/place", "codex")
    assert ours.owns("npx-name", "codex")
    assert not ours.owns("npx-name", "claude")
    assert not ours.owns("npx-name", None)
    assert not identity("/opt/new/place").owns("npx-name", None)


def test_a_name_that_the_user_gives_is_the_only_one_but_for_what_was_kept_before() -> None:
    env: dict[str, str] = {}
    command = ["--", "npx", "pkg@1"]
    one = options.parse(["--agent-name", "one", *command], env).settings
    assert (one.agent_name, one.named) == ("one", True)
    assert {"pkg", "pkg@1"} <= one.former_names
    built_in = options.parse(["--agent-name", "one"], env).settings
    assert built_in.agent_name == "one"
    assert built_in.former_names == frozenset({"built-in"})
    assert not options.parse(command, env).settings.named


@pytest.mark.parametrize(
    ("given", "bare"),
    [
        ("pkg@1.2.3", "pkg"),
        ("@scope/pkg@next", "@scope/pkg"),
        ("agent-v1.2.3-beta.1", "agent"),
        ("agent-2", "agent-2"),
        ("claude-3", "claude-3"),
        ("agent.py", "agent.py"),
        ("1.2.3", "1.2.3"),
        ("", ""),
        ("@", "@"),
    ],
)
def test_a_version_is_told_from_a_name(given: str, bare: str) -> None:
    assert without_version(given) == bare
