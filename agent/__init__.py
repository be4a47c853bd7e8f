"""The built-in agent: an ordinary ACP agent on the official SDK.

It works alone in an editor (`python -m agent`) and behind the bridge, which starts it as a process.
It imports `acp_bridge.wire` for its stdio and nothing else of the bridge. From the wire inwards:

    connection, server     the SDK's side: requests in, answers and errors out
    session, opening,      one conversation: its prompts in order, what the client gave for it,
      options, servers       its model and mode, its MCP servers (mcp_servers, mcp_client/)
    loop, tool_calls       one turn: model -> tools -> model; permissions asks, scribe writes down
    tools/                 what the model can do, a small file each
    transcript, history    what is kept on disk; from its entries come messages (for the model)
                             and replay (for the user); content and context go in with them
    compaction             what goes when the window is full (gauge, summary)
    model                  the seam: models finds them, litellm_model and providers/ ask real
                             ones, scripted_model says what a dialogue tells it to
    secrets, keys, settings
"""
