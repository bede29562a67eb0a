"""What only vLLM knows goes through: sampling, the chat template's switches, structured output.

OPENAI_BASE_URL=http://127.0.0.1:8080/v1 OPENAI_API_KEY=sk-anything python ask.py
"""

from __future__ import annotations

import os

from openai import OpenAI

COLOUR = {
    "type": "object",
    "properties": {"colour": {"type": "string"}},
    "required": ["colour"],
    "additionalProperties": False,
}


def main() -> None:
    client = OpenAI(default_headers={"X-Mneme-User": "vera"})
    models = [each.id for each in client.models.list()]
    model = os.environ.get("MODEL") or models[0]
    print("models:", ", ".join(models))

    client.chat.completions.create(
        model=model,
        messages=[{"role": "user", "content": "My favourite colour is petrol."}],
        extra_body={"top_k": 20, "min_p": 0.05, "chat_template_kwargs": {"enable_thinking": False}},
    )
    answer = client.chat.completions.create(
        model=model,
        messages=[{"role": "user", "content": "Which colour do I like best?"}],
        response_format={"type": "json_schema", "json_schema": {"name": "colour", "schema": COLOUR, "strict": True}},
        extra_body={"top_k": 1},
    )
    print("answer:", answer.choices[0].message.content)


if __name__ == "__main__":
    main()
