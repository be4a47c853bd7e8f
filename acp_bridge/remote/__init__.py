"""The server for remote clients: WebSocket, tokens, and the checks of who may connect."""
