"""JSON-RPC over a pair of pipes: the codec, one end of a conversation, and the stdio under it."""
