"""A code for a phone: once, for five minutes, however it is typed."""

from acp_bridge.remote.page.codes import LIFE, Codes


def test_a_code_counts_once_however_it_is_typed() -> None:
    codes = Codes()
    code = codes.make("phone", "approve", 0)
    assert codes.take(code[:-1], 1) is None
    assert codes.take("", 1) is None
    found = codes.take(f" {code.lower().replace('-', ' ')}", LIFE - 1)
    assert found is not None
    assert (found.name, found.may) == ("phone", "approve")
    assert codes.take(code, 2) is None


def test_a_code_counts_for_five_minutes_and_only_the_newest_are_kept() -> None:
    codes = Codes()
    old = codes.make("phone", "all", 0)
    assert codes.take(old, LIFE) is None
    first, *others = [codes.make("phone", "all", LIFE) for _ in range(21)]
    assert codes.take(first, LIFE + 1) is None
    assert all(codes.take(each, LIFE + 1) for each in others)
    assert len({first, *others}) == 21


def test_a_code_is_dropped_with_its_name() -> None:
    codes = Codes()
    made = [codes.make(name, "look", 0) for name in ("phone", "tablet", "phone")]
    assert codes.drop("phone", 1)
    assert not codes.drop("phone", 1)
    assert [codes.take(each, 1) is None for each in made] == [True, False, True]
    codes.make("phone", "look", 1)
    assert not codes.drop("phone", 1 + LIFE)
