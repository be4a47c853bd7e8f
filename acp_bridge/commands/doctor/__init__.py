"""`acp-bridge doctor`: what is there, what is wrong with it, and what to do next.

A check is a function of a `Subject` that returns findings; each looks at one area. What is found is
judged by functions without I/O, and `report` makes text or JSON of it.

Invariants
- Nothing is changed, made or removed: no folder, no index, no lock, no run file of a dead bridge.
- Nothing goes to the network but the one request of `--online`, and what the agent does that is
  started.
- Every wait is bounded. A check that fails by itself is a finding, and hinders no other.
- No secret is told, nor a part of one: all text passes `masking.Mask`, and arguments of commands
  are not told at all.
"""
