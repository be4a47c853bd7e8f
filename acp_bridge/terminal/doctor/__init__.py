"""`acp-bridge doctor`: checks installation, agent and data folder, and says what to do.

A check is a function of a `Subject` that returns findings about one area. What a check looks up is
judged by functions without I/O, and `report` makes text or JSON of the findings.

Invariants
- Nothing is changed, made or removed: no folder, no index, no lock, no run file of a dead bridge.
- Nothing is sent over the network but the one request of `--online`, and what the started agent
  sends.
- Every wait is bounded. A check that raises becomes a finding, and the others still run.
- No secret, nor a part of one, is shown: all text passes `masking.Mask`, and arguments of commands
  are not shown at all.
"""
