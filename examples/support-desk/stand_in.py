"""A stand-in for a model, to record from without a key: an OpenAI-compatible server whose answers are written by hand.

    python stand_in.py [--port 8000]

It answers from the prompt alone, as a model does: what it knows of a customer is what stands in there.
"""

from __future__ import annotations

import argparse
import json
import re
from collections import Counter
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

ANSWERS = {
    "return": "You may return everything that is unopened within 30 days. Just bring the receipt.",
    "sell": "We sell nougat, bars of dark chocolate, and pralines that we make by hand.",
    "sundays": "Yes, we are open on Sundays, from ten to four.",
    "thank": "You are welcome! Enjoy it.",
    "allergic": "Thank you for telling us; we will keep it in mind.",
    "story": "Once upon a time there was a cocoa bean that wanted to see the sea, and so it set out",
}
BUSY = "sundays"
"""Every other time this is asked, the model is busy."""
BREAKS = "story"
"""This answer never ends: the connection is closed."""
MODEL = "stand-in"

_asked: Counter[str] = Counter()


def text_of(message: dict[str, Any]) -> str:
    """The text of a message, whatever form it has."""
    content = message.get("content") or ""
    return content if isinstance(content, str) else "\n".join(part.get("text", "") for part in content)


def question_of(messages: list[dict[str, Any]]) -> str:
    """What was asked last, without what Mneme put before it."""
    return text_of(messages[-1]).strip().rsplit("\n", 1)[-1].lower()


def reply(asked: dict[str, Any]) -> dict[str, Any]:
    """The message that answers a request."""
    messages = asked["messages"]
    prompt = "\n".join(map(text_of, messages)).lower()
    question = question_of(messages)
    if messages[-1]["role"] == "tool":
        return {"content": of_order(json.loads(text_of(messages[-1])))}
    if asked.get("response_format"):
        return {"content": json.dumps(sorting(question))}
    number = re.search(r"order (\d+)", question)
    if number and asked.get("tools"):
        function = {"name": "look_up_order", "arguments": json.dumps({"number": number[1]})}
        return {"content": None, "tool_calls": [{"id": f"call_{number[1]}", "type": "function", "function": function}]}
    if "recommend" in question:
        if "hazelnut" in prompt:
            return {"content": "As you are allergic to hazelnuts: our dark chocolate, which has no nuts at all."}
        return {"content": "Our nougat is what most people like best. Is there anything that you do not eat?"}
    return {"content": next((text for word, text in ANSWERS.items() if word in question), "I will ask a colleague.")}


def of_order(found: dict[str, str]) -> str:
    """What is said of an order."""
    if "error" in found:
        return f"I am sorry. {found['error']}"
    return f"Your order {found['number']} ({found['item']}) {found['status']}."


def sorting(letter: str) -> dict[str, Any]:
    """Where a letter belongs."""
    words = {"parcel": "delivery", "money": "refund", "best": "praise"}
    topic = next((topic for word, topic in words.items() if word in letter), "other")
    return {"topic": topic, "urgent": "tomorrow" in letter}


class Handler(BaseHTTPRequestHandler):
    """One connection."""

    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        """`/v1/models`."""
        models = [{"id": MODEL, "object": "model", "created": 0, "owned_by": "support-desk", "max_model_len": 32768}]
        self._send(200, {"object": "list", "data": models})

    def do_POST(self) -> None:
        """`/v1/chat/completions`."""
        asked = json.loads(self.rfile.read(int(self.headers["content-length"])))
        question = question_of(asked["messages"])
        _asked[question] += BUSY in question
        if _asked[question] % 2:
            told = {"message": "The model is busy.", "type": "requests", "param": None, "code": "rate_limit_exceeded"}
            self._send(429, {"error": told}, {"retry-after-ms": "10"})
            return
        head = {"id": "chatcmpl-stand-in", "created": 0, "model": asked.get("model", MODEL)}
        message = reply(asked)
        if asked.get("stream"):
            self._stream(head, message["content"] or "", whole=BREAKS not in question)
            return
        choice = {
            "index": 0,
            "message": {"role": "assistant", **message},
            "finish_reason": "tool_calls" if "tool_calls" in message else "stop",
        }
        usage = {"prompt_tokens": 40, "completion_tokens": 20, "total_tokens": 60}
        self._send(200, {**head, "object": "chat.completion", "choices": [choice], "usage": usage})

    def _send(self, status: int, value: object, headers: dict[str, str] | None = None) -> None:
        body = json.dumps(value).encode()
        self.send_response(status)
        given = {"content-type": "application/json", "content-length": str(len(body)), **(headers or {})}
        for name, text in given.items():
            self.send_header(name, text)
        self.end_headers()
        self.wfile.write(body)

    def _stream(self, head: dict[str, Any], text: str, *, whole: bool) -> None:
        self.send_response(200)
        self.send_header("content-type", "text/event-stream; charset=utf-8")
        self.send_header("transfer-encoding", "chunked")
        self.end_headers()
        deltas: list[tuple[dict[str, str], str | None]] = [({"role": "assistant", "content": ""}, None)]
        deltas += [({"content": word}, None) for word in re.findall(r"\S+\s*", text)]
        for delta, reason in [*deltas, *([({}, "stop")] if whole else [])]:
            choice = {"index": 0, "delta": delta, "finish_reason": reason}
            self._chunk(
                "data: " + json.dumps({**head, "object": "chat.completion.chunk", "choices": [choice]}) + "\n\n"
            )
        if whole:
            self._chunk("data: [DONE]\n\n")
            self._chunk("")
        self.close_connection = not whole

    def _chunk(self, text: str) -> None:
        data = text.encode()
        self.wfile.write(b"%x\r\n%s\r\n" % (len(data), data))

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - http.server's own name
        """Say nothing."""


def main() -> None:
    """Serve until Ctrl-C."""
    parser = argparse.ArgumentParser(description="A stand-in for a model.")
    parser.add_argument("--port", type=int, default=8000, help="0: any free one.")
    server = ThreadingHTTPServer(("127.0.0.1", parser.parse_args().port), Handler)
    print(f"http://127.0.0.1:{server.server_port}/v1", flush=True)
    server.serve_forever()


if __name__ == "__main__":
    main()
