"""A chain without a memory of its own, on a model that remembers.

OPENAI_BASE_URL=http://127.0.0.1:8080/v1 OPENAI_API_KEY=sk-anything python chain.py
"""

from __future__ import annotations

import os

from langchain_core.output_parsers import StrOutputParser
from langchain_core.prompts import ChatPromptTemplate
from langchain_core.runnables import Runnable
from langchain_openai import ChatOpenAI


def chain(user: str, session: str) -> Runnable[dict[str, str], str]:
    """Of one user, in one conversation."""
    model = ChatOpenAI(
        model=os.environ.get("MODEL", "gpt-4o"),
        default_headers={"X-Mneme-User": user, "X-Mneme-Session": session},
    )
    prompt = ChatPromptTemplate.from_messages([("system", "You plan journeys."), ("user", "{question}")])
    return prompt | model | StrOutputParser()


def main() -> None:
    monday = chain("olga", "monday")
    monday.invoke({"question": "I only travel by train."})
    print("later:   ", monday.invoke({"question": "What did I just say?"}))

    friday = chain("olga", "friday")
    print("stream:  ", "".join(friday.stream({"question": "How do I travel to Porto?"})))


if __name__ == "__main__":
    main()
