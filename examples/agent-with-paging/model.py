"""A scripted model for the agent: an OpenAI-compatible server that knows nothing but its prompt.

    python model.py [--port 8000]

It reads the logs in turn. Then it answers from what stands in its prompt, and where that was shortened, it asks for it by the
tool that it is offered: `memory_query`.
"""

from __future__ import annotations

import argparse
import json
import re
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

PARTS = ("compile", "unit", "integration", "package")
WANTED = re.compile(r"ERROR module (\w+) failed: ([^\n\"]+)")


def text_of(message: dict[str, Any]) -> str:
    content = message.get("content") or ""
    return content if isinstance(content, str) else "\n".join(part.get("text", "") for part in content)


def calling(name: str, arguments: dict[str, str], number: int) -> dict[str, Any]:
    """A message that calls a tool."""
    function = {"name": name, "arguments": json.dumps(arguments)}
    return {"content": None, "tool_calls": [{"id": f"call_{number}", "type": "function", "function": function}]}


def reply(asked: dict[str, Any]) -> dict[str, Any]:
    """The message that answers a request."""
    messages = asked["messages"]
    calls = [call["function"] for each in messages for call in each.get("tool_calls") or ()]
    read = {json.loads(each["arguments"])["part"] for each in calls if each["name"] == "read_log"}
    for part in PARTS:
        if part not in read:
            return calling("read_log", {"part": part}, len(calls))
    found = next((found for each in messages if (found := WANTED.search(text_of(each)))), None)
    if found is not None:
        return {"content": f"Module {found[1]} failed: {found[2]}."}
    offered = {tool["function"]["name"] for tool in asked.get("tools") or ()}
    if "memory_query" in offered and not any(each["name"] == "memory_query" for each in calls):
        return calling("memory_query", {"question": "compile: which module has an ERROR and failed?"}, len(calls))
    return {"content": "I cannot see that any more."}


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        self._send(
            {"object": "list", "data": [{"id": "gpt-4o", "object": "model", "created": 1, "owned_by": "script"}]}
        )

    def do_POST(self) -> None:
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        message = {"role": "assistant", **reply(asked)}
        reason = "tool_calls" if message.get("tool_calls") else "stop"
        choice = {"index": 0, "message": message, "finish_reason": reason}
        size = sum(len(text_of(each)) for each in asked["messages"]) // 4
        usage = {"prompt_tokens": size, "completion_tokens": 10, "total_tokens": size + 10}
        head = {
            "id": f"chatcmpl-{len(asked['messages'])}",
            "object": "chat.completion",
            "created": 1,
            "model": "gpt-4o",
        }
        self._send(head | {"choices": [choice], "usage": usage})

    def _send(self, answer: dict[str, Any]) -> None:
        body = json.dumps(answer).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the name is the base class'
        pass


def main() -> None:
    parser = argparse.ArgumentParser(description="A scripted model.")
    parser.add_argument("--port", type=int, default=8000)
    server = ThreadingHTTPServer(("127.0.0.1", parser.parse_args().port), Handler)
    print(f"http://127.0.0.1:{server.server_port}/v1", flush=True)
    server.serve_forever()


if __name__ == "__main__":
    main()
