"""How a model at a provider is asked and what it answers; `agent.litellm_model` puts it together.

LiteLLM knows the providers: their names, keys, prices, and how each wants its request. Only
`library` imports it. The answer is read here, straight off the connection (`chat_form`,
`anthropic_form`), because LiteLLM's own stream takes 700 us a token; `plain` is that stream, for
providers whose answers have another form.
"""
