"""Random operations against whole bridges: `make fuzz N=2000 SEED=1`.

A run is one seed: real bridges, one after the other on one home, with a fixture agent whose
behaviour the seed chooses, and a client that prompts, cancels, loads, kills and stops reading; at
times a second one, which joins over the socket at any moment and does the same. What everybody said
is judged afterwards (`ledger.py`, `transcripts.py`), and a failure names the command
that plays the run again.
"""
