"""The bookkeeping of `make mutants`: what survived is told from what was explained."""

import pytest

from tests.mutants import EXPLAINED, ROOT, TARGETS, Mutant, explanations, mutant

DIFF = """\
# acp_bridge.core.machine.turns.xǁTurnMachineǁstep__mutmut_3: survived
--- acp_bridge/core/machine/turns.py
+++ acp_bridge/core/machine/turns.py
@@ -6,7 +6,7 @@
     def step(self):
-        tries = 3
+        tries = 4
         return tries
"""
STEP = Mutant("acp_bridge.core.machine.turns.TurnMachine.step", ("- tries = 3", "+ tries = 4"))


def test_a_mutant_is_known_by_its_function_and_its_changed_lines() -> None:
    assert mutant("acp_bridge.core.machine.turns.xǁTurnMachineǁstep__mutmut_3", DIFF) == STEP
    assert mutant("acp_bridge.core.machine.turns.x__private__mutmut_12", "").function == (
        "acp_bridge.core.machine.turns._private"
    )


def test_a_survivor_as_it_is_printed_is_explained_by_a_reason_below_it() -> None:
    text = f"# a comment\n\n{STEP}\n  Nobody tries\n  four times.\n\n"
    assert explanations(text) == {STEP: "Nobody tries four times."}


def test_an_explanation_without_a_reason_is_refused() -> None:
    with pytest.raises(ValueError, match="a reason"):
        explanations(str(STEP))


def test_the_explanations_can_be_read_and_are_of_what_is_mutated() -> None:
    modules = tuple(name.removesuffix(".py").replace("/", ".") + "." for name in TARGETS)
    for one in explanations(EXPLAINED.read_text("utf-8")):
        assert one.function.startswith(modules)


def test_all_that_is_mutated_and_all_that_sees_it_is_there() -> None:
    named = {name for target, tests in TARGETS.items() for name in (target, *tests)}
    assert [name for name in named if not (ROOT / name).exists()] == []
