"""The socket of a bridge: who lives, where, who may connect, and the way to another bridge."""
