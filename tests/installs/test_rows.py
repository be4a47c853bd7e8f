"""What `make test-install` takes for right."""

import pytest

from acp_bridge.core.records import replace
from tests.installs.rows import Row

DEMO = "ok   1 ...\n\n20 of 20 checks passed in 3.8 s.\n"
WHOLE = Row("3.12.1", "pip", "wheel", 84, 394 << 20, DEMO)
LACKS = (2, "... ERROR ... not installed: litellm. Run: /venv/bin/python -m pip install it\n")


def test_what_passes_its_demo_and_serves_is_right_and_a_row_of_the_table() -> None:
    assert WHOLE.right
    assert str(WHOLE) == "| 3.12.1 | pip | wheel | 84 | 394 MB | 20 of 20 | exit code 0 | ok |"
    slim = replace(WHOLE, slim=True, alone=LACKS)
    assert slim.right
    assert str(slim).endswith("| exit code 2, names what to run | ok |")


@pytest.mark.parametrize(
    "row",
    [
        replace(WHOLE, demo=""),
        replace(WHOLE, demo=DEMO.replace("20 of", "19 of")),
        replace(WHOLE, demo="0 of 0 checks passed"),
        replace(WHOLE, alone=(1, "")),
        replace(WHOLE, alone=(0, "Traceback")),
        replace(WHOLE, alone=LACKS),
        replace(WHOLE, slim=True),
        replace(WHOLE, slim=True, alone=(2, "Traceback\n" + LACKS[1])),
        replace(WHOLE, slim=True, alone=(1, LACKS[1])),
        Row("3.12.1", "pip", problem="`pip` ended with 1"),
    ],
)
def test_all_else_is_wrong_and_said(row: Row) -> None:
    assert not row.right
    assert not str(row).endswith("| ok |")
