"""The socket of a bridge: run files of living bridges, the right to connect, the connection."""
