"""Which agents, pinned, and what each needs to talk to the local model."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).parent
NODE_MODULES = HERE / "node_modules"

_CODEX = """\
model = "bench"
model_provider = "local"
approval_policy = "never"
[model_providers.local]
name = "local"
base_url = "http://127.0.0.1:{port}/v1"
env_key = "LOCAL_KEY"
wire_api = "responses"
"""


@dataclass(frozen=True, slots=True)
class AgentNotOurs:
    """An agent from the npm registry."""

    name: str
    command: tuple[str, ...]

    def words(self) -> list[str]:
        return [str(NODE_MODULES / ".bin" / self.command[0]), *self.command[1:]]

    def env(self, home: Path, port: int) -> dict[str, str]:
        """Its environment; writes its settings under `home`."""
        (home / "codex").mkdir(parents=True, exist_ok=True)
        (home / "codex/config.toml").write_text(_CODEX.format(port=port))
        (home / "opencode.json").write_text(json.dumps(_opencode(port)))
        return {
            "HOME": str(home),
            "LOCAL_KEY": "none",
            "CODEX_HOME": str(home / "codex"),
            "OPENCODE_CONFIG": str(home / "opencode.json"),
            "OPENCODE_DISABLE_AUTOUPDATE": "1",
            "OPENCODE_DISABLE_MODELS_FETCH": "1",
        }


def _opencode(port: int) -> dict[str, object]:
    model = {"name": "bench", "limit": {"context": 1_000_000, "output": 100_000}}
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
    }


AGENTS = (
    AgentNotOurs("codex-acp", ("codex-acp",)),
    AgentNotOurs("opencode", ("opencode", "acp")),
)


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
