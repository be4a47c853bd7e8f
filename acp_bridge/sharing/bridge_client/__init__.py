"""The client of a bridge, for commands, the demo, and a bridge that passes a session on.

`clients` is the other end: the clients of this bridge.
"""
