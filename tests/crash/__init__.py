"""SIGKILL at random moments: `make crash N=200 SEED=1`.

A round is a conversation with a real bridge and a real agent, one of which is killed at a moment
drawn from the seed. Afterwards a new bridge loads the session, and nothing that was acknowledged
or shown may be missing; three seconds later no process may be left.
"""
