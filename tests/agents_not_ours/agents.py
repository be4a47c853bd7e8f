"""Which agents, pinned, and what each needs to use the local model and to ask before it acts."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

from tests.support.processes import descendants

HERE = Path(__file__).parent
NODE_MODULES = HERE / "node_modules"

_CODEX = """\
model = "bench"
model_provider = "local"
approval_policy = "on-request"
[model_providers.local]
name = "local"
base_url = "http://127.0.0.1:{port}/v1"
env_key = "LOCAL_KEY"
wire_api = "responses"
"""


@dataclass(frozen=True, slots=True)
class AgentNotOurs:
    """An agent from the npm registry, or one that is on the PATH."""

    name: str
    package: str  #: "" for one on the PATH
    program: str  #: of those that the package installs
    arguments: tuple[str, ...] = ()
    #: a load in the clock's minute in which a session was made overwrites it, for good
    loads_from_next_minute: bool = False
    #: how the bridge's notice of a usage limit goes on; None: its limits are not recognised
    limit: str | None = None
    #: in the place of its key, the environment of a subscription, which alone has limits
    subscription: tuple[tuple[str, str], ...] = ()
    #: a permission names the command, and not only in its title
    tells_commands: bool = True
    #: where it says which MCP tool a call is of: a "name", the "title" alone, or nowhere
    tells_tools: str = "name"

    def words(self) -> list[str]:
        """By its file: two of the packages install a program with the same name."""
        if not self.package:
            return [shutil.which(self.program) or self.program, *self.arguments]
        folder = NODE_MODULES / self.package
        program = json.loads((folder / "package.json").read_text())["bin"][self.program]
        return [str(folder / program), *self.arguments]

    def behind(self, bridge: int) -> list[int]:
        """Its processes behind a bridge that has one session."""
        return descendants(descendants(bridge)[0])

    @property
    def version(self) -> str:
        """The pinned one."""
        pinned: dict[str, str] = json.loads((HERE / "package.json").read_text())["dependencies"]
        return pinned[self.package]

    def env(self, home: Path, port: int) -> dict[str, str]:
        """Its environment; writes its settings under `home`."""
        settings = {
            "codex/config.toml": _CODEX.format(port=port),
            "opencode.json": json.dumps(_opencode(port)),
            ".gemini/settings.json": json.dumps(_GEMINI),
            "claude/settings.json": json.dumps(_CLAUDE),
        }
        for name, text in settings.items():
            (home / name).parent.mkdir(parents=True, exist_ok=True)
            (home / name).write_text(text)
        return {
            "HOME": str(home),
            "LOCAL_KEY": "none",
            "FAST_AGENT_HOME": str(home / "fast-agent"),
            "GENERIC_API_KEY": "none",
            "GENERIC_BASE_URL": f"http://127.0.0.1:{port}/v1",
            "CODEX_HOME": str(home / "codex"),
            "INITIAL_AGENT_MODE": "read-only",
            "OPENCODE_CONFIG": str(home / "opencode.json"),
            "OPENCODE_DISABLE_AUTOUPDATE": "1",
            "OPENCODE_DISABLE_MODELS_FETCH": "1",
            "CLAUDE_CONFIG_DIR": str(home / "claude"),
            "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
            "ENABLE_TOOL_SEARCH": "false",  # else the model has to look for tools of MCP servers
            "ANTHROPIC_BASE_URL": f"http://127.0.0.1:{port}",
            "ANTHROPIC_API_KEY": "none",
            "GOOGLE_GEMINI_BASE_URL": f"http://127.0.0.1:{port}",
            "GEMINI_API_KEY": "none",
            "GEMINI_MODEL": "gemini-2.5-pro",
            "GEMINI_CLI_TRUST_WORKSPACE": "true",  # else it starts no MCP server
        }


# What root may not use isn't offered: Claude refuses to start with it.
_CLAUDE = {"permissions": {"defaultMode": "default", "disableBypassPermissionsMode": "disable"}}
_GEMINI = {
    "general": {"disableAutoUpdate": True},
    "privacy": {"usageStatisticsEnabled": False},
    "security": {"auth": {"selectedType": "gemini-api-key"}},
    "model": {"disableLoopDetection": True, "skipNextSpeakerCheck": True},
}


def _opencode(port: int) -> dict[str, object]:
    model = {
        "name": "bench",
        "limit": {"context": 1_000_000, "output": 100_000},
        "cost": {"input": 1, "output": 2},
    }
    local = {
        "npm": "@ai-sdk/openai-compatible",
        "name": "local",
        "options": {"baseURL": f"http://127.0.0.1:{port}/v1", "apiKey": "none"},
        "models": {"bench": model},
    }
    return {
        "autoupdate": False,
        "share": "disabled",
        "model": "local/bench",
        "small_model": "local/bench",
        "provider": {"local": local},
        "permission": {"bash": "ask", "*_echo": "ask"},
    }


_UNTOLD = "The agent has not said when the limit resets."

AGENTS = (
    AgentNotOurs(
        "codex-0.16",
        "@zed-industries/codex-acp",
        "codex-acp",
        limit=_UNTOLD,
        tells_tools="",
    ),
    AgentNotOurs("codex", "@agentclientprotocol/codex-acp", "codex-acp", limit=_UNTOLD),
    AgentNotOurs(
        "claude",
        "@agentclientprotocol/claude-agent-acp",
        "claude-agent-acp",
        limit="The limit resets at ",
        subscription=(("ANTHROPIC_API_KEY", ""), ("CLAUDE_CODE_OAUTH_TOKEN", "sk-ant-oat01-none")),
    ),
    AgentNotOurs(
        "gemini",
        "@google/gemini-cli",
        "gemini",
        ("--acp",),
        loads_from_next_minute=True,
        tells_commands=False,
        tells_tools="title",
    ),
    AgentNotOurs("opencode", "opencode-ai", "opencode", ("acp",), tells_tools="title"),
)

#: not among those of every trial: it needs Python 3.13
FAST_AGENT = AgentNotOurs("fast-agent", "", "fast-agent-acp", ("--model", "generic.bench"))


def install() -> str | None:
    """Install what package-lock.json names; the reason if that can't be."""
    if shutil.which("npm") is None:
        return "npm is not on the PATH"
    # Not `npm ci`: it wants every platform's optional package in the lock, a mirror may lack some.
    command = ["npm", "install", "--no-save", "--no-audit", "--no-fund", "--loglevel=error"]
    done = subprocess.run(
        command, cwd=HERE, capture_output=True, text=True, check=False, env=dict(os.environ)
    )
    return None if done.returncode == 0 else done.stderr.strip()[-400:]
