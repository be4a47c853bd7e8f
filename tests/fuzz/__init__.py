"""Random operations against whole bridges: `make fuzz N=2000 SEED=1`.

A run is one seed: real bridges on one home, with a fixture agent whose behaviour the seed chooses,
and clients that prompt, cancel, load, answer, kill and stop reading. Others join over the socket at
any moment. In some seeds two bridges live at a time, so that one passes on what the other holds; in
some they outlive their clients (`--keep`), and the next client finds the work that was kept. With
`ARGS=--far` an editor comes from elsewhere in one of ten, over a wire that drops (`far.py`).

What everybody said is judged afterwards: each client by itself (`walk.py`, `transcripts.py`), and
against the whole of each session as the last bridge shows it (`sights.py`, `questions.py`). A
failure names the command that plays the run again.
"""
