"""The models that can be asked, and how a provider is asked (`provider_model`).

LiteLLM knows the providers: their names, keys, prices, and how each wants its request. Only
`library` imports it. The answer is read here, straight off the connection (`chat_form`,
`anthropic_form`), because LiteLLM's own stream takes 700 us a token; `library_stream` is that
stream, for providers whose answers have another form.
"""
