"""How amounts stand in the sentences about a budget."""

import pytest

from acp_bridge.features.spending.notices import amount


@pytest.mark.parametrize(
    ("number", "shown"),
    [
        (0, "0"),
        (5, "5"),
        (100.0, "100"),
        (5.25, "5.25"),
        (0.1 + 0.2, "0.3"),
        (1.23456, "1.2346"),
        (0.00042, "0.00042"),
        (0.000000001, "0.000000001"),
        (1e15, "1000000000000000"),
    ],
)
def test_an_amount_has_the_digits_that_it_needs_and_a_small_one_is_not_nothing(
    number: float, shown: str
) -> None:
    assert amount(number) == shown
