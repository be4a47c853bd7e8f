"""Hooks: the user's commands at certain moments of a session, for any agent.

`find.py` looks for them, `read.py` reads them, `trust.py` says if a project's may run, `run.py`
runs one, and `verdict.py` says what its end means. The turn machine decides when they run, and
`in_session.py` carries that out. Without hooks no more is imported than `find.py` and that.
"""
