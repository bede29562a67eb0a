"""One conversation tells, others know: with OpenAI's SDK and no more than another base URL.

OPENAI_BASE_URL=http://127.0.0.1:8080/v1 OPENAI_API_KEY=sk-anything python remember.py
"""

from __future__ import annotations

import os

import httpx
from openai import OpenAI

MODEL = os.environ.get("MODEL", "gpt-4o")


def main() -> None:
    client = OpenAI(default_headers={"X-Mneme-User": "nina"})

    client.chat.completions.create(
        model=MODEL,
        messages=[{"role": "user", "content": "My daughter Ida is allergic to walnuts."}],
        extra_headers={"X-Mneme-Session": "monday"},
    )

    # Another conversation. The raw answer has the headers, too.
    question = "What must I not put into Ida's cake?"
    raw = client.chat.completions.with_raw_response.create(
        model=MODEL,
        messages=[{"role": "user", "content": question}],
        extra_headers={"X-Mneme-Session": "tuesday"},
    )
    print("answer:  ", raw.parse().choices[0].message.content)

    with client.chat.completions.create(
        model=MODEL, messages=[{"role": "user", "content": question}], stream=True
    ) as stream:
        print("stream:  ", "".join(each.choices[0].delta.content or "" for each in stream if each.choices))

    response = client.responses.create(model=MODEL, input=question)
    print("response:", response.output_text)

    # Why did it know? Each call has its account. (What a fact says already is "visible", and not said again.)
    api = httpx.Client(base_url=str(client.base_url).removesuffix("v1/") + "api/v1")
    account = api.get(f"/calls/{raw.headers['x-mneme-call-id']}/context").raise_for_status().json()
    for item in account["items"]:
        if item["chosen"] or item["reason"] == "visible":
            print("because: ", item["text"])


if __name__ == "__main__":
    main()
