"""The waits that depend on one another, in seconds, each with what it must stay below.

What the user may set is in settings.py. The guard runs by itself and keeps its own.
tests/test_waits.py holds the order.
"""

#: The rest of a dead agent's stdout is awaited. The pipe has ended unless it was handed on.
LAST_WORDS = 0.2
#: A process that has closed its stdin or stdout may end by itself.
CUT_OFF_GRACE = 1.0
#: An agent may take so long to list or delete its own sessions; it may be busy or deaf.
AGENT_PATIENCE = 1.0
#: The opening of a session is undone in this time.
UNDO = 5.0
#: Everything ends in this time after the client is gone or a signal came (invariant P2).
END = 2.5
#: What was answered reaches the client in this time after that.
FLUSH = 0.3
