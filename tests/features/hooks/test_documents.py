"""The examples in docs/hooks.md are hooks, and do what stands beside them."""

import re
import subprocess
from pathlib import Path

import pytest

from acp_bridge.features.hooks.config import parse
from acp_bridge.features.hooks.definitions import Hook, HookEvent
from acp_bridge.features.hooks.verdict import Permission, Ran, Verdict, interpret

TEXT = (Path(__file__).parents[3] / "docs" / "hooks.md").read_text("utf-8")
EXAMPLES = [
    hook
    for body in re.findall(r"^```toml\n(.*?)^```", TEXT, re.MULTILINE | re.DOTALL)
    for hook in parse(body, project=False)
]


def test_every_event_has_a_row_and_an_example() -> None:
    assert {hook.event for hook in EXAMPLES} == set(HookEvent)
    assert set(re.findall(r"^\| `([A-Z]\w+)` \|", TEXT, re.MULTILINE)) >= set(HookEvent)


def run(hook: Hook, given: str) -> Verdict:
    done = subprocess.run(
        hook.words, input=given, capture_output=True, text=True, timeout=30, check=False
    )
    return interpret(hook.event, Ran(done.returncode, done.stdout, done.stderr))


@pytest.mark.process
def test_the_examples_about_permissions_and_keys_decide_as_they_say() -> None:
    reads, deletes = (hook for hook in EXAMPLES if hook.event is HookEvent.PERMISSION)
    assert run(reads, "{}").permission is Permission.ALLOW
    assert run(deletes, "{}").permission is Permission.DENY
    keys = next(hook for hook in EXAMPLES if "key" in hook.shown)
    assert run(keys, '{"prompt": "mend"}') == Verdict()
    found = run(keys, '{"prompt": "use sk-abcdefghijklmnopqrstuvwxyz"}')
    assert found.block == "there is a key in it"
