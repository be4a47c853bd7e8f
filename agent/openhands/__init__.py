"""An ACP agent that drives a running OpenHands agent-server over REST and WebSocket.

    python -m agent.openhands --url http://127.0.0.1:8000

It stands behind the bridge like any other agent (`acp-bridge --openhands URL`) and holds nothing
that must outlive it: sessions are the server's conversations, under the same ids. From the wire
inwards; what decides has no I/O:

    acp_agent, introduction  the ACP methods, on the same connection as the built-in agent
    launch, options          how a conversation begins; what a client may choose in it
    conversation             one session: its prompts in order, and what its client is shown
    turn_runner, live_feed   carry out what a turn decides; keep the feed going over cuts
    server, events_socket    the REST routes and the WebSocket, with every wait bounded
    turn, turn_words         one prompt: when it is sent, asked about, stopped, answered (sans-IO)
    feed, texts, cards       events in, ACP updates out, each once (sans-IO)
    events, prompt           what the server's events say; what a prompt says to it (sans-IO)
    confirmation             its confirmation policies as modes, its question as ACP's (sans-IO)
    settings, problems       the agent's settings; what is told when the server can't be used
"""
