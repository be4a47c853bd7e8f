"""SIGKILL at random moments: `make crash N=200 SEED=1`.

A round is a conversation with a real bridge and a real agent, one of which is killed at a moment
drawn from the seed; or a second client's bridge, the waiter of `--keep`, or `serve` or `connect`,
through which an editor from elsewhere has a bridge. Afterwards a new bridge loads the session:
nothing that was acknowledged or shown may be missing, and each prompt was answered, is held, or is
shown as interrupted (`told.py`). Three seconds later no process may be left.
"""
