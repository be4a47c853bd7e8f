"""Hooks: the user's commands at certain moments of a session, for any agent.

`found.py` reads which there are, `trust.py` says if a project's may run, `run.py` runs one, and
`verdict.py` says what its end means. When they run is decided in `machine/` and carried out in
`session/prompts/hooks.py`. Nothing here is imported by a bridge without hooks but `found.py`.
"""
