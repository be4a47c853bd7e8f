"""TOML of anybody's, in the three files that are read of users and projects."""

from collections.abc import Callable

import pytest

from acp_bridge.core.runtime.toml_text import BadToml, loads
from acp_bridge.features.hooks import config as hooks
from acp_bridge.features.notify import config as notify
from acp_bridge.features.rules import config as rules


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("a = 1\nb = ", "line 2, column 5: a value is missing, or a text has no quotes"),
        ("a = 1\nb = @\n", "line 2, column 5: a value is missing, or a text has no quotes"),
        ('a = 1\nb = "x\nc = 2\n', "line 2, column 7: a quote is not closed"),
        ("a = 1\nb = 'x\nc = 2\n", "line 2, column 5: a quote is not closed"),
        ("a = 1\nb = 'x\nc = 'y'\n", "line 2, column 7: a quote is not closed"),
        ('a = 1\nb = "x', "line 2, column 7: a quote is not closed"),
        ('a = 1\nb = """x\ny\n', "line 2, column 5: a quote is not closed"),
        ("a = 1\nb = '''x\ny\n", "line 2, column 5: a quote is not closed"),
        ("[a]\nb", "line 2, column 2: there is no = behind a name"),
        ("a = 1\na = 2\n", "line 2, column 6: this name has a value already"),
        (
            'a = ["x, "y"]\n',
            "line 1, column 11: a list needs a comma between two values, and ] at its end",
        ),
        (
            "[a]\n[a]\n",
            "line 2, column 3: this section is there already; [[NAME]] begins one more of a list",
        ),
        ("a = " + "[" * 60_000, "its values are nested too deeply"),
        ("a = " + "1" * 5000, "one of its numbers has too many digits"),
    ],
)
def test_whatever_is_wrong_is_one_error_with_the_line_where_that_is_known(
    text: str, why: str
) -> None:
    with pytest.raises(BadToml) as bad:
        loads(text)
    assert str(bad.value) == why


@pytest.mark.parametrize("text", ["a = " + "[" * 60_000, "a = " + "1" * 5000])
@pytest.mark.parametrize(
    ("read", "bad"),
    [
        (lambda text: hooks.parse(text, project=True), hooks.BadHooks),
        (lambda text: rules.parse(text, "f"), rules.BadRules),
        (notify.parse, notify.BadNotify),
    ],
)
def test_a_file_that_python_can_t_take_apart_is_not_used(
    read: Callable[[str], object], bad: type[Exception], text: str
) -> None:
    with pytest.raises(bad):
        read(text)
