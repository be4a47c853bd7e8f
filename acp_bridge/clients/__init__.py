"""The clients of the bridge: each one's end of the wire, what it can do, what it is told."""
