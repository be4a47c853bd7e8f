"""The built-in agent: an ordinary ACP agent on the official SDK.

It works alone in an editor (`python -m agent`) and behind the bridge, which starts it as a process.
It imports of the bridge `acp_bridge.core.wire` for its stdio, the error codes, and nothing else.
The rooms, from the wire inwards; each imports only from those below it:

    serve/         one connection: requests in, results and errors out
    session/       one session: its prompts in order, its options, what it was opened with
    turn/          one turn: model -> tools -> model; permissions are asked, all is recorded
    mcp_servers/   the MCP servers of a session, and their tools
    tools/         what the model can do, a small file for each tool
    conversation/  what was said: kept on disk, given to the model, replayed, made shorter
    providers/     the models that there are, and how LiteLLM's providers are asked
    scripted/      a model that needs no network: it says what a dialogue tells it to
    content/       ACP content blocks, images, code fences
    errors         every error that a client is answered with
    client, model  the two seams: to the client of a session, and to a language model
    loose          the JSON of other people's servers, read by what it means
    secrets, settings, wire_form
"""
