"""An agent whose results outgrow its window. All that it knows of paging is one header.

OPENAI_BASE_URL=http://127.0.0.1:8080/v1 OPENAI_API_KEY=sk-anything python agent.py
"""

from __future__ import annotations

import json
import os
from typing import Any

from openai import OpenAI

MODEL = os.environ.get("MODEL", "gpt-4o")
PARTS = ("compile", "unit", "integration", "package")
TASK = "Read the logs of all four parts of the build, one by one. Then tell me which module failed in the compile part."
LOG = {
    "type": "function",
    "function": {
        "name": "read_log",
        "description": "The log of one part of the build.",
        "parameters": {
            "type": "object",
            "properties": {"part": {"type": "string", "enum": list(PARTS)}},
            "required": ["part"],
        },
    },
}
LINES = 400
"""Of each log: some 5,600 tokens."""
MOST_STEPS = 12


def read_log(part: str) -> str:
    """A build's log, made up."""
    lines = [f"{part}: [{n:03}] module m{n:03} built in {n * 7 % 90 + 10} ms" for n in range(LINES)]
    if part == "compile":
        lines[137] = "compile: [137] ERROR module m137 failed: undefined name 'ledger_total'"
    return "\n".join(lines)


def main() -> None:
    client = OpenAI(default_headers={"X-Mneme-User": "otto", "X-Mneme-Session": "build", "X-Mneme-Paging": "on"})
    messages: list[dict[str, Any]] = [{"role": "user", "content": TASK}]
    for step in range(1, MOST_STEPS):
        raw = client.chat.completions.with_raw_response.create(
            model=MODEL,
            messages=messages,  # type: ignore[arg-type]  # plain dicts, as they go over the wire
            tools=[LOG],  # type: ignore[list-item]
        )
        written = sum(len(json.dumps(each)) for each in messages)
        print(f"step {step}: {written:,} characters of transcript; {raw.headers.get('x-mneme-paging', 'not paged')}")
        message = raw.parse().choices[0].message
        messages.append(message.model_dump(exclude_none=True))
        if not message.tool_calls:
            print("answer:", message.content)
            return
        for call in message.tool_calls:
            assert call.type == "function"
            result = read_log(**json.loads(call.function.arguments))
            messages.append({"role": "tool", "tool_call_id": call.id, "content": result})


if __name__ == "__main__":
    main()
