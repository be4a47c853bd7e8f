"""What the MCP server of the tests offers, for those that import no SDK."""

#: a PNG of one pixel
PIXEL = (
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9"
    "awAAAABJRU5ErkJggg=="
)
ECHO_SCHEMA = {
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    "type": "object",
    "properties": {"text": {"type": "string", "description": "What to say."}},
    "required": ["text"],
}
NAMES = [
    "echo",
    "picture",
    "documents",
    "fail",
    "refuse",
    "place",
    "headers",
    "wait",
    "grow",
    "die",
]
