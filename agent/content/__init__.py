"""Content that the agent is sent or shows: ACP blocks, images, and text in code fences."""
