"""packaging/registry/ holds what the ACP registry takes, by the rules that its own checks have.

(github.com/agentclientprotocol/registry: CONTRIBUTING.md, AUTHENTICATION.md, and its schema of an
agent, as they were in August 2026.)
"""

import json
import re
import subprocess
import sys
import tomllib
import xml.etree.ElementTree as ET
from pathlib import Path
from typing import Any

import anyio
import pytest

from acp_bridge import __version__
from acp_bridge.core.clients.handshake import BUILTIN

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "packaging" / "registry"
#: seconds that the registry waits for the answer to `initialize`.
BOUND = 120
MEMBERS = {
    *("id", "name", "version", "description", "repository", "website", "authors", "license"),
    *("license_url", "distribution"),
}
ASKED = {
    "protocolVersion": 1,
    "clientInfo": {"name": "ACP Registry Validator", "version": "1.0.0"},
    "clientCapabilities": {
        "terminal": True,
        "fs": {"readTextFile": True, "writeTextFile": True},
        "_meta": {"terminal_output": True, "terminal-auth": True},
    },
}


def project() -> Any:
    return tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]


def agent() -> Any:
    return json.loads((FOLDER / "agent.json").read_text("utf-8"))


def icon() -> ET.Element:
    return ET.fromstring((FOLDER / "icon.svg").read_text("utf-8"))


def test_the_entry_has_what_is_required_and_nothing_that_is_not_known() -> None:
    entry = agent()
    required = {"id", "name", "version", "description", "distribution", "license_url"}
    assert required <= entry.keys() <= MEMBERS
    assert re.fullmatch(r"[a-z][a-z0-9-]*", entry["id"])
    assert all(entry[name] for name in required)
    assert [
        entry[name] for name in entry if name.endswith("url") and "://" not in entry[name]
    ] == []
    assert (entry["id"], entry["license"]) == (project()["name"], project()["license"])


def test_the_versions_are_the_project_s() -> None:
    entry = agent()
    assert re.fullmatch(r"[0-9]+\.[0-9]+\.[0-9]+", entry["version"])
    assert entry["version"] == __version__
    assert entry["distribution"]["uvx"]["package"].partition("==")[2] == __version__


def test_uvx_finds_the_command_in_the_package() -> None:
    (kind,) = agent()["distribution"]
    found = agent()["distribution"][kind]
    assert (kind, found.keys() - {"package", "args", "env"}) == ("uvx", set())
    package = re.split(r"[\[<>=!@]", found["package"])[0]
    # It runs the command that has the package's name, with these arguments behind it.
    assert package == project()["name"]
    assert package in project()["scripts"]
    assert found.get("args", []) == []


def test_the_icon_is_16_by_16_and_of_the_theme_s_colour() -> None:
    root = icon()
    assert root.tag.rpartition("}")[2] == "svg"
    assert (root.get("width"), root.get("height")) == ("16", "16")
    assert root.get("viewBox") == "0 0 16 16"
    paints = [each.get(name) for each in root.iter() for name in ("fill", "stroke")]
    assert {paint for paint in paints if paint} <= {"currentColor", "none", "inherit"}
    assert "currentColor" in paints
    assert not [each for each in root.iter() if each.get("style") or "style" in each.tag]
    assert "<!--" not in (FOLDER / "icon.svg").read_text("utf-8")


def methods_that_count(answer: Any) -> list[str]:
    """The ways to log in that the registry asks for; it takes one without a type for an agent's."""
    found = [method.get("type", "agent") for method in answer["authMethods"]]
    return [each for each in found if each in ("agent", "terminal")]


def test_the_answer_that_is_given_at_once_offers_a_login_that_counts() -> None:
    assert methods_that_count(BUILTIN)


@pytest.mark.process
async def test_the_first_line_is_the_answer_also_in_an_empty_home_and_environment(
    tmp_path: Path,
) -> None:
    request = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": ASKED}
    command = Path(sys.executable).with_name("acp-stdio-bridge")
    env = {"HOME": str(tmp_path), "TERM": "dumb"}
    with anyio.fail_after(BOUND):
        async with await anyio.open_process(
            [str(command)], env=env, cwd=tmp_path, stderr=subprocess.DEVNULL
        ) as bridge:
            assert bridge.stdin is not None
            assert bridge.stdout is not None
            await bridge.stdin.send(json.dumps(request).encode() + b"\n")
            line = await bridge.stdout.receive()
            while b"\n" not in line:
                line += await bridge.stdout.receive()
            await bridge.stdin.aclose()
            async for _ in bridge.stdout:
                pass
            assert await bridge.wait() == 0
    answer = json.loads(line.partition(b"\n")[0])
    assert answer["id"] == 1
    assert methods_that_count(answer["result"])
