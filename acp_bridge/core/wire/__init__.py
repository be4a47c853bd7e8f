"""JSON-RPC over a pair of pipes: the codec, one end of a connection, and the pipes themselves."""
