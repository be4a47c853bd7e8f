"""LiteLLM without an agent: streams `stream N 0` and prints the words a second.

python litellm_alone.py BASE_URL N
"""

from __future__ import annotations

import asyncio
import os
import sys
import time


async def main(base_url: str, count: str) -> None:
    os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"
    os.environ["REPEATED_STREAMING_CHUNK_LIMIT"] = "1000000"
    import litellm

    litellm.suppress_debug_info = True
    for words in ("10", count):
        began = time.monotonic()
        answer = await litellm.acompletion(
            model="openai/bench",
            messages=[{"role": "user", "content": f"stream {words} 0"}],
            stream=True,
            base_url=base_url,
            api_key="none",
        )
        seen = 0
        async for chunk in answer:
            seen += bool(chunk.choices and chunk.choices[0].delta.content)
        rate = seen / (time.monotonic() - began)
    print(f"{rate:.0f}")


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:3]))
