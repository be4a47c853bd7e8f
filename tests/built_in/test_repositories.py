"""Three small repositories, worked on with every tool: by a client that has files and terminals,
and by one that has none."""

import json
import subprocess
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from agent.tools.standard import standard_tools
from tests.built_in.editor import ABILITIES, Editor
from tests.built_in.support import Stack
from tests.support.client import RecordingClient
from tests.support.recording import Message

pytestmark = [pytest.mark.process, pytest.mark.slow]

#: -B: a module that was changed within a second would be taken from its cache
PYTHON = f"{sys.executable} -B"
TESTS = f"{PYTHON} -m unittest"
SHARED = {".gitignore": "__pycache__/\n"}
#: what the model calls in the three tests, together
used: set[str] = set()


def call(name: str, **arguments: Any) -> str:
    """A line of a dialogue."""
    used.add(name)
    return f"call: {name} {json.dumps(arguments)}"


def plan(*entries: str, done: bool) -> str:
    status = "completed" if done else "pending"
    return call("plan", entries=[{"content": entry, "status": status} for entry in entries])


def dialogue(*answers: list[str]) -> str:
    return "turn\n" + "\n---\n".join("\n".join(answer) for answer in answers)


@dataclass
class Work:
    """A turn in a repository, as the client saw it."""

    folder: Path
    client: RecordingClient
    editor: Editor | None

    def cards(self, tool: str = "") -> list[Message]:
        """As they are at the end, with all their `statuses`; those of a tool."""
        cards: dict[str, Message] = {}
        for update in self.client.updates():
            if "toolCallId" in update:
                card = cards.setdefault(update["toolCallId"], {"statuses": []})
                card |= {key: value for key, value in update.items() if value is not None}
                card["statuses"] += [update["status"]] if "status" in update else []
        return [card for card in cards.values() if card["title"].startswith(_TITLES.get(tool, ""))]

    @property
    def asked(self) -> list[Message]:
        """The calls that the user was asked about."""
        asked = self.client.recording.requests("session/request_permission")
        return [request["params"]["toolCall"] for request in asked]

    def output(self, number: int) -> Message:
        """Of a command."""
        output: Message = self.cards("shell")[number]["rawOutput"]
        return output

    def changed(self) -> list[str]:
        """The names of files, as git knows them."""
        return [line[3:] for line in git(self.folder, "status", "--porcelain").splitlines()]


_TITLES = {"shell": "`", "edit_file": "Edit", "write_file": "Write", "search": "Search"}


def git(folder: Path, *arguments: str) -> str:
    who = ["-c", "user.name=Ann", "-c", "user.email=ann@example.com"]
    command = ["git", *who, *arguments]
    return subprocess.run(command, cwd=folder, check=True, capture_output=True, text=True).stdout


@asynccontextmanager
async def worked(
    stack: Stack, files: Mapping[str, str], said: str, prompt: str, *, has_editor: bool
) -> AsyncIterator[Work]:
    """The turn is over; what holds of each is looked at in the end."""
    folder = stack.cwd
    for name, text in {**SHARED, **files}.items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(text)
    git(folder, "init", "-q")
    git(folder, "add", ".")
    git(folder, "commit", "-q", "-m", "As it was")
    script = stack.folder / "dialogue.txt"
    script.write_text(said)
    capabilities = ABILITIES if has_editor else {}
    async with stack.start(model=f"scripted:{script}", capabilities=capabilities) as client:
        client.side.permission = "allow"
        await client.new_session(folder)
        if has_editor:
            async with Editor(client) as editor:
                assert await client.prompt(prompt, within=30) == {"stopReason": "end_turn"}
                yield Work(folder, client, editor)
        else:
            assert await client.prompt(prompt, within=30) == {"stopReason": "end_turn"}
            yield Work(folder, client, None)


def judge(work: Work) -> None:
    """What holds of each of them: cards, permissions, diffs, the last run of the tests."""
    changes = [*work.cards("edit_file"), *work.cards("write_file")]
    commands = work.cards("shell")
    for card in work.cards():
        assert card["statuses"] == ["pending", "in_progress", "completed"], card
        assert {"kind", "rawInput", "rawOutput"} <= set(card)
    # the user was asked for changes and commands, in their order, and saw each diff before
    ids = [card["toolCallId"] for card in work.cards() if card in changes + commands]
    assert [card["toolCallId"] for card in work.asked] == ids
    diffs = {str(card["content"][0]) for card in changes}
    assert {str(card["content"][0]) for card in work.asked if card["kind"] == "edit"} == diffs
    for path, last in {card["content"][0]["path"]: card["content"][0] for card in changes}.items():
        assert (last["type"], last["newText"]) == ("diff", Path(path).read_text())
    judge_editor(work, [card["content"][0]["path"] for card in changes], commands)
    assert (work.output(-1)["exitCode"], "\nOK\n" in work.output(-1)["output"]) == (0, True)
    assert subprocess.run(TESTS.split(), cwd=work.folder, capture_output=True).returncode == 0


def judge_editor(work: Work, changed: list[str], commands: list[Message]) -> None:
    """What went through the client: all that it can do, or nothing."""
    shown = [card["content"][0] for card in commands]
    if work.editor is None:
        methods = {message.get("method") for message in work.client.recording.incoming()}
        assert methods <= {None, "session/update", "session/request_permission"}
        assert {each["type"] for each in shown} == {"content"}
        return
    assert work.editor.written == changed
    assert set(changed) & set(work.editor.read)
    names = list(work.editor.terminals)
    assert shown == [{"type": "terminal", "terminalId": name} for name in names]
    assert all(terminal.released for terminal in work.editor.terminals.values())


# a failing test

STATS = """\
def median(values):
    ordered = sorted(values)
    return ordered[len(ordered) // 2]
"""
STATS_TEST = """\
import unittest

from stats import median


class MedianTest(unittest.TestCase):
    def test_odd(self):
        self.assertEqual(median([3, 1, 2]), 2)

    def test_even(self):
        self.assertEqual(median([4, 1, 3, 2]), 2.5)
"""
MEND = dialogue(
    [plan("See it fail", "Mend it", done=False), call("shell", command=TESTS)],
    [
        call("search", pattern="def median", glob="*.py"),
        call("read_file", path="stats.py"),
        call("read_file", path="test_stats.py"),
    ],
    [
        call(
            "edit_file",
            path="stats.py",
            old="    return ordered[len(ordered) // 2]",
            new="    middle = len(ordered) // 2\n"
            "    if len(ordered) % 2:\n"
            "        return ordered[middle]\n"
            "    return (ordered[middle - 1] + ordered[middle]) / 2",
        )
    ],
    [call("shell", command=TESTS), plan("See it fail", "Mend it", done=True)],
    ["text: It is mended."],
)


@pytest.mark.parametrize("has_editor", [True, False])
async def test_a_failing_test_is_mended(stack: Stack, has_editor: bool) -> None:
    files = {"stats.py": STATS, "test_stats.py": STATS_TEST}
    async with worked(stack, files, MEND, "Fix the test", has_editor=has_editor) as work:
        judge(work)
        assert work.changed() == ["stats.py"]
        assert (work.output(0)["exitCode"], "test_even" in work.output(0)["output"]) == (1, True)
        [found] = work.cards("search")
        assert found["rawOutput"]["matches"] == 1
        [edit] = work.cards("edit_file")
        diff = edit["content"][0]
        assert (diff["path"], diff["oldText"]) == (str(work.folder / "stats.py"), STATS)
        assert edit["locations"][0]["path"] == diff["path"]
        plans = [u["entries"] for u in work.client.updates() if u["sessionUpdate"] == "plan"]
        assert [{e["status"] for e in entries} for entries in plans] == [{"pending"}, {"completed"}]
        assert work.client.text() == "It is mended."


# a name in several files

SHOP = {
    "shop/__init__.py": "",
    "shop/users.py": "def fetch_user(number):\n    return f'user {number}'\n",
    "shop/orders.py": "from shop.users import fetch_user\n\n\n"
    "def label(number):\n    return f'for {fetch_user(number)}'\n",
    "test_shop.py": "import unittest\n\nfrom shop import orders, users\n\n\n"
    "class ShopTest(unittest.TestCase):\n    def test_label(self):\n"
    "        self.assertIn(users.fetch_user(7), orders.label(7))\n",
}
NAMED = ["shop/orders.py", "shop/users.py", "test_shop.py"]
RENAME = dialogue(
    [call("list_files", pattern="*.py"), call("search", pattern=r"\bfetch_user\b")],
    [call("read_file", path=path) for path in NAMED],
    [
        call("edit_file", path=path, old="fetch_user", new="load_user", replace_all=True)
        for path in NAMED
    ],
    [call("search", pattern="fetch_user"), call("shell", command=TESTS)],
    ["text: It is load_user now."],
)


async def test_a_function_is_renamed_in_several_files(stack: Stack) -> None:
    prompt = "Rename fetch_user to load_user"
    async with worked(stack, SHOP, RENAME, prompt, has_editor=False) as work:
        judge(work)
        assert work.changed() == NAMED
        listed, *_ = work.cards()
        assert listed["rawOutput"]["files"] == len(SHOP)
        before, after = (card["rawOutput"] for card in work.cards("search"))
        assert (before["files"], before["matches"], after["matches"]) == (3, 4, 0)
        edits = [card["rawOutput"]["replacements"] for card in work.cards("edit_file")]
        assert edits == [2, 1, 1]
        assert "fetch_user" not in "".join((work.folder / path).read_text() for path in NAMED)


# a bug that shows when it runs

BILL = """\
PRICES = {"tea": 3, "cake": 5}


def total(order):
    return sum(PRICES[name] * count for name, count in order)


if __name__ == "__main__":
    print(total([("tea", 2), ("Cake", 1)]))
"""
BILL_TEST = """\
import unittest

from bill import total


class BillTest(unittest.TestCase):
    def test_names_in_any_case(self):
        self.assertEqual(total([("Cake", 1), ("tea", 2)]), 11)
"""
FIND = dialogue(
    ["text: I run it.", call("shell", command=f"{PYTHON} bill.py")],
    [call("read_file", path="bill.py", line=4)],
    [call("edit_file", path="bill.py", old="PRICES[name]", new="PRICES[name.lower()]")],
    [
        call("shell", command=f"{PYTHON} bill.py"),
        call("write_file", path="tests/test_bill.py", content=BILL_TEST),
        call("write_file", path="tests/__init__.py", content=""),
    ],
    [call("shell", command=TESTS)],
    ["text: It was the case."],
)


async def test_a_bug_is_found_by_running_it(stack: Stack) -> None:
    prompt = "It crashes"
    async with worked(stack, {"bill.py": BILL}, FIND, prompt, has_editor=True) as work:
        judge(work)
        assert work.changed() == ["bill.py", "tests/"]
        assert work.output(0)["exitCode"] == 1
        assert "KeyError: 'Cake'" in work.output(0)["output"]
        assert (work.output(1)["exitCode"], work.output(1)["output"]) == (0, "11\n")
        new = work.cards("write_file")[0]["content"][0]
        assert (new.get("oldText"), new["newText"]) == (None, BILL_TEST)


def test_together_they_use_every_tool() -> None:
    assert used == {tool.name for tool in standard_tools()}
