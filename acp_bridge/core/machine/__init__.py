"""The turn machine of one session: events go in, effects come out, and nothing is awaited. SANS-IO.

Nothing here knows a clock, a process or JSON. The shell around the machine, `core/session/`, gives
it events (`events.py`), performs the effects that it asks for (`effects.py`), and reads after each
step what the session permits now (`Snapshot` in `states.py`).

- `states.py`: which state follows which, its deadlines, what it permits, and what keeps prompts
  from being sent;
- `prompt_queue.py`: the prompts without an answer, and the hooks about them;
- `processes.py`: the agent processes: start, restart, sleep, give up;
- `turns.py`: the machine itself, and how a turn ends.

      COLD -> STARTING -> RELOADING -> IDLE <-> RUNNING -> DRAINING -> IDLE
                ^           |            |         |           |
                +-- KILLING <------------+---------+-----------+
                                                  BLOCKED, UNAUTHENTICATED, CLOSED

All of it is plain data: `key` names a prompt, and so the turn that runs it (an int, unique in
the session, in the order of reading), `epoch` names one agent process. The machine never looks into
a `detail` or an `answer`: the shell put it in and gets it back.
"""
