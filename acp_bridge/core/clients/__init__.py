"""The clients of the bridge: each one's end of the wire and its abilities."""
