"""The tools that every session has."""

from __future__ import annotations

from agent.tools import AnyTool
from agent.tools.edit_file import EditFile
from agent.tools.list_files import ListFiles
from agent.tools.plan import Plan
from agent.tools.read_file import ReadFile
from agent.tools.search import Search
from agent.tools.shell import Shell
from agent.tools.write_file import WriteFile


def standard_tools() -> list[AnyTool]:
    return [ReadFile(), WriteFile(), EditFile(), ListFiles(), Search(), Shell(), Plan()]
