"""The machine's table: `table.txt` as it is read, and the page of it in docs/architecture.md.

`make states` writes that page: for each of the states and the commonest events the state that
follows, in any of the situations of `table.txt`. tests/test_docs.py fails while it is out of date.
"""

from functools import cache
from pathlib import Path

from acp_bridge.core.machine.states import State

TABLE = Path(__file__).parent / "table.txt"
DOCUMENT = Path(__file__).parents[3] / "docs" / "architecture.md"
#: Written in table.txt for "the same state, no effect", and for "nothing took it".
NOTHING, DROPPED = "nothing", "dropped"
#: The events of the page: what they are called there, and their names in table.txt.
EVENTS = {
    "a prompt is on disk": ("prompt committed",),
    "the user's Stop": ("cancel",),
    "`initialize` is answered": ("started",),
    "the start failed": ("start failed",),
    "the session is loaded": ("loaded",),
    "a login is wanted": ("needs auth",),
    "the turn is answered": ("answered",),
    "the agent exits": ("exited",),
    "the tree is dead": ("tree dead",),
    "long at rest": ("sleep",),
    "another process is needed": ("replace",),
    "the session is closed": ("close",),
    "the state's deadline": ("DRAIN", "KILL", "RESTART"),
}
#: The first words of the page's heading, by which it is found.
_HEADING = "| what happens |"


@cache
def read_table() -> dict[str, dict[str, str]]:
    """Return state -> event -> what is next; raises ValueError for a row that is there twice."""
    table: dict[str, dict[str, str]] = {}
    for line in TABLE.read_text("utf-8").splitlines():
        if line.startswith("=="):
            rows = table[line.strip("= ")] = {}
        elif line and not line.startswith("#"):
            events, _, result = line.partition(": ")
            for event in events.split(", "):
                if event in rows:
                    raise ValueError(f"twice: {line}")
                rows[event] = result.strip()
    return table


def page() -> list[str]:
    """The lines of the page: a row for each event, a column for each state."""
    names = [state.name for state in State]
    lines = [f"{_HEADING} {' | '.join(names)} |", "|---" * (len(names) + 1) + "|"]
    table = read_table()
    for words, events in EVENTS.items():
        lines.append(f"| {words} | {' | '.join(_cell(table, name, events) for name in names)} |")
    return lines


def _cell(table: dict[str, dict[str, str]], state: str, events: tuple[str, ...]) -> str:
    """The states that may follow one of these events; `=` is the same state."""
    rows = [rows for situation, rows in table.items() if situation.partition(",")[0] == state]
    results = [row[event] for row in rows for event in events]
    after = [state if result == NOTHING else result.split()[0] for result in results]
    found = dict.fromkeys(name for name in after if name != DROPPED)
    stays = ["="] if found.pop(state, state) is None else []
    return ", ".join([*found, *stays])


def place(document: str) -> slice:
    """Where the page stands in the lines of the document; raises ValueError if it doesn't."""
    lines = document.splitlines()
    start = next((n for n, line in enumerate(lines) if line.startswith(_HEADING)), None)
    if start is None:
        raise ValueError(f"no line begins with {_HEADING}")
    length = next((n for n, line in enumerate(lines[start:]) if not line.startswith("|")), None)
    return slice(start, None if length is None else start + length)


def main() -> None:
    """Write the page into the document."""
    text = DOCUMENT.read_text("utf-8")
    lines = text.splitlines()
    lines[place(text)] = page()
    DOCUMENT.write_text("\n".join(lines) + "\n", "utf-8")


if __name__ == "__main__":
    main()
