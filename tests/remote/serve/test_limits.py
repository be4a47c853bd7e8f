"""The figures of "Limits" in docs/remote.md are those of the program."""

from pathlib import Path

from acp_bridge.remote.serve import door, server, tokens, websocket

DOCS = Path(__file__).parents[3] / "docs" / "remote.md"


def rows() -> dict[str, str]:
    """The rows of the table of limits."""
    table = DOCS.read_text().partition("## Limits")[2].partition("\n\n- ")[0]
    cells = [line.strip("|").split("|") for line in table.splitlines() if line.startswith("| ")]
    return {what.strip(): how_much.strip() for what, how_much in cells}


def megabytes(count: int) -> str:
    return f"{count >> 20} MB"


def test_the_limits_that_the_guide_names_are_those_of_the_program() -> None:
    all_rows = rows()
    found = {what.partition(",")[0].partition(" of ")[0]: each for what, each in all_rows.items()}
    one = found["a connection before it has come in"]
    assert one.startswith(f"{server.PATIENCE:g} s, {server.HEADER >> 10} KB of header")
    assert f"; {server.WAITING} of them" in one
    wrong = found["wrong tokens"]
    assert wrong.startswith(f"{door.FAILURES} a minute")
    assert door.WITHIN == 60
    assert found["connections"] == f"{server.MOST}, and {server.MOST_OF_TOKEN} with one token"
    message = found["a message"]
    assert message.startswith(f"{megabytes(websocket.LONGEST)}; ")
    assert f"prompt, {megabytes(server.MOST_WITHOUT_PROMPTS)};" in message
    assert found["messages whose end has not come"].startswith(
        f"{megabytes(server.MOST_UNFINISHED)} of one token,"
        f" {megabytes(server.MOST_UNFINISHED_OF_ALL)} of all"
    )
    assert found["what waits for a client that does not read"].startswith(
        f"{websocket._FLOOD >> 10} KB;"
    )
    assert found["tokens"] == str(tokens.MOST_TOKENS)
    silence = f"each end pings every {websocket.PING:g} s; after {websocket.DEAD:g} s"
    assert found["silence"].startswith(silence)
