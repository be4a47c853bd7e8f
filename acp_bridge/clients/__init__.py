"""The clients of the bridge: each one's end of the wire, its abilities and its rights."""
