"""Every invariant has a test that is run, or a reason why not yet, and stands in the document.

Every promise of SECURITY.md has a number there, and an attack.
"""

import re

import pytest

from tests.hazards import (
    ATTACKS,
    CLAIM,
    DOCUMENT,
    ENTRY,
    PROMISE,
    PROOFS,
    SECURITY,
    TESTS,
    all_marks,
    claims,
    document,
    manifest,
    marks,
    promises,
    proofs,
)

NUMBERS = [
    *(f"Q{n}" for n in range(1, 17)),
    *(f"C{n}" for n in range(1, 27)),
    *(f"R{n}" for n in range(1, 19)),
    *(f"T{n}" for n in range(1, 4)),
    *(f"K{n}" for n in range(1, 11)),
    *(f"P{n}" for n in range(1, 19)),
    *(f"V{n}" for n in range(1, 11)),
    *(f"F{n}" for n in range(1, 5)),
    "U1",
    *(f"A{n}" for n in range(1, 4)),
    *(f"X{number}" for number in range(1, 4)),
    "N1",
    "N2",
    "N3",
    "N4",
    "N5",
    "N6",
    "N7",
]


CLAIMS = [f"S{n}" for n in range(1, 31)]


def test_the_list_of_hazards_is_whole() -> None:
    hazards, deferred = manifest()
    assert list(hazards) == NUMBERS
    assert all(hazards.values())
    assert deferred.keys() <= hazards.keys()
    assert all(deferred.values())


def test_every_hazard_has_a_test_or_is_deferred_with_a_reason() -> None:
    hazards, deferred = manifest()
    proved = {mark.entry for mark in all_marks()}
    assert [number for number in hazards if number not in proved | deferred.keys()] == []


def test_what_has_a_test_is_deferred_no_more() -> None:
    _, deferred = manifest()
    assert {mark.entry for mark in all_marks()} & deferred.keys() == set()


def test_every_mark_names_a_hazard_that_there_is() -> None:
    known = {*NUMBERS, *CLAIMS, *promises()}
    assert [mark for mark in all_marks() if mark.number not in known] == []


def test_the_promises_of_security_md_are_those_of_the_list_in_its_order() -> None:
    assert list(claims()) == CLAIMS
    assert CLAIM.findall(SECURITY.read_text("utf-8")) == CLAIMS


def test_every_promise_of_security_md_has_an_attack() -> None:
    attacked = {mark.number for mark in all_marks() if mark.test.startswith(ATTACKS)}
    assert [number for number in CLAIMS if number not in attacked] == []


def test_no_test_that_stands_for_a_hazard_is_skipped_or_expected_to_fail() -> None:
    assert [mark for mark in all_marks() if mark.excused] == []


def test_the_document_explains_every_invariant_in_the_order_of_the_list() -> None:
    entries = [
        (found[1], found[2].strip()) for found in ENTRY.finditer(DOCUMENT.read_text("utf-8"))
    ]
    assert [number for number, _ in entries] == NUMBERS
    assert [number for number, words in entries if not words] == []


def test_each_entry_is_a_list_of_promises_that_are_numbered_in_order() -> None:
    for found in ENTRY.finditer(DOCUMENT.read_text("utf-8")):
        lines = found[2].strip().splitlines()
        numbers = [said[1] if (said := PROMISE.fullmatch(line)) else line for line in lines]
        assert numbers == [f"{found[1]}.{n}" for n in range(1, len(lines) + 1)]


def test_each_promise_is_one_sentence_of_at_most_thirty_words() -> None:
    long = [number for number, said in promises().items() if len(said.split()) > 30]
    several = [number for number, said in promises().items() if re.search(r"[.;] |[^.]$", said)]
    assert (long, several) == ([], [])


def test_the_headings_of_the_document_are_those_of_the_list() -> None:
    text = DOCUMENT.read_text("utf-8")
    assert text == document(text), "out of date: run `make hazards`"


def test_a_heading_is_replaced_and_the_words_below_it_stay() -> None:
    written = document("# Rules\n\n### C8: old\n\nWords.\n\n## More\n")
    assert written == f"# Rules\n\n### C8: {manifest()[0]['C8']}\n\nWords.\n\n## More\n"


def test_the_tests_of_each_invariant_are_listed_as_they_are_now() -> None:
    assert PROOFS.read_text("utf-8") == proofs(), "out of date: run `make hazards`"
    assert re.findall(r"^## (.+)$", proofs(), re.MULTILINE) == NUMBERS + CLAIMS


@pytest.mark.parametrize("folder", ["acp_bridge", "agent", "fixtures", "tests"])
def test_every_reference_to_an_invariant_in_the_code_names_one_that_there_is(folder: str) -> None:
    letters = "".join(sorted({number[0] for number in NUMBERS + CLAIMS}))
    if folder == "tests":  # where models say "A0", "X3" and "N2"; marks are looked at above
        letters = letters.translate(dict.fromkeys(map(ord, "AXN")))
    reference = re.compile(rf"\b[{letters}][1-9][0-9]?\b(?:\.[1-9][0-9]?\b)?")
    known = {*NUMBERS, *CLAIMS, *promises()}
    unknown = [
        f"{path.relative_to(TESTS.parent)}: {number}"
        for path in sorted((TESTS.parent / folder).rglob("*.py"))
        if "node_modules" not in path.parts
        for number in reference.findall(path.read_text("utf-8"))
        if number not in known
    ]
    assert unknown == []


def test_marks_are_found_on_functions_classes_modules_and_assigned_tests() -> None:
    source = """
pytestmark = [pytest.mark.process, pytest.mark.hazard("P1")]

@pytest.mark.hazard("C8", "P12")
async def test_stop(): ...

@pytest.mark.hazard("Q1")
class TestQueue:
    @pytest.mark.hazard("Q2.1")
    def test_one(self): ...

TestMachine = pytest.mark.hazard("Q9")(Machine.TestCase)

@pytest.mark.xfail
@pytest.mark.hazard("K1")
def test_later(): ...
"""
    assert {(mark.number, mark.test) for mark in marks(source, "t.py") if not mark.excused} == {
        ("P1", "t.py"),
        ("C8", "t.py::test_stop"),
        ("P12", "t.py::test_stop"),
        ("Q1", "t.py::TestQueue"),
        ("Q2.1", "t.py::TestQueue::test_one"),
        ("Q9", "t.py::TestMachine"),
    }
    assert [mark.number for mark in marks(source, "t.py") if mark.excused] == ["K1"]


def test_a_mark_of_one_promise_counts_for_its_entry() -> None:
    (mark,) = marks('@pytest.mark.hazard("Q16.3")\ndef test_x(): ...', "t.py")
    assert (mark.number, mark.entry) == ("Q16.3", "Q16")


def test_a_mark_on_what_is_no_test_is_refused() -> None:
    with pytest.raises(ValueError, match="is no test"):
        list(marks('@pytest.mark.hazard("C8")\ndef helper(): ...', "t.py"))


def test_a_number_that_is_not_spelled_out_is_refused() -> None:
    with pytest.raises(ValueError, match="plain string"):
        list(marks("@pytest.mark.hazard(NUMBER)\ndef test_x(): ...", "t.py"))
