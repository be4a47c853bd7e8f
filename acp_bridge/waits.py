"""The waits that depend on one another, in seconds, each with what it must stay below.

What the user may set is in settings.py. The guard runs by itself and keeps its own.
tests/test_waits.py holds the order.
"""

#: The rest of a dead agent's stdout is awaited. The pipe has ended unless it was handed on.
LAST_WORDS = 0.2
#: A process that has closed its stdin or stdout may end by itself.
CUT_OFF_GRACE = 1.0
