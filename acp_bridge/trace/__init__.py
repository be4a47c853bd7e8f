"""The trace of a bridge: what went over its wires, in the format of the conductor's traces."""
