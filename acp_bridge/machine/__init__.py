"""The turn machine of one session: events go in, effects come out, and nothing is awaited.

`turns.py` is the way in, and names the parts that decide. `events.py`, `effects.py`, `outcomes.py`
and `states.py` are their vocabulary; the shell around the machine (`acp_bridge/session/`) feeds it
and performs what it asks for.

All of it is plain data: `key` names a prompt, and so the turn that runs it (an int, unique in
the session, in the order of reading), `epoch` names one agent process. What is called `detail`
or `answer` is opaque here: the shell put it in and gets it back.
"""
