"""Clients from elsewhere: WebSocket, tokens, who may come in, the server that takes them."""
