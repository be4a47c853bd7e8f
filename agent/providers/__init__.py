"""The models that there are, and how the model of a provider is asked.

    all_models          finds the models: prepared ones, and those of providers (known_providers)
    abilities           a model's abilities: its window, images, thinking (ollama asks one)
    provider_model      one model of a provider: asked, streamed, tried again (retry)
    failure             what went wrong, in words (overflow, server_words)
    keys                keys and base URLs, from the environment or a file
    request, outgoing   the HTTP request for a provider, and the conversation as it may see it
    plain               the request for a model of the user's own server, where LiteLLM adds nothing
    plain_http          sends it
    http_connection     sends the request and receives the lines of the answer (direct_stream)
    event_body          finds the events in these lines
    chat_form           reads events in OpenAI's form into a partial_completion
    anthropic_form      reads events in Anthropic's form into one; responses_form in OpenAI's newer
    library             LiteLLM; no other module imports it
    library_stream      LiteLLM's own stream, for providers whose answers have another form

LiteLLM knows the providers: their names, keys, prices, and how each wants its request. Answers are
read here, straight off the connection, because LiteLLM's own stream takes 700 us a token.
"""
