"""The socket of a bridge: its run file, the check of who may connect, and the listener."""
