"""The conversation of a session: kept on disk, given to the model, replayed to the client."""
