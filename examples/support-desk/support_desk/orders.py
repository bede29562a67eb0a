"""The shop's orders, and the tool by which a model looks at them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True)
class Order:
    """What a customer is told of an order."""

    number: str
    customer: str
    item: str
    status: str


ORDERS = {
    each.number: each
    for each in (
        Order("1042", "ana", "a box of nougat, 500 g", "left our shop on Monday and arrives on Thursday"),
        Order("1043", "ben", "twelve bars of dark chocolate", "is being packed"),
    )
}

LOOK_UP: Mapping[str, Any] = {
    "type": "function",
    "function": {
        "name": "look_up_order",
        "description": "What became of an order of this customer.",
        "parameters": {
            "type": "object",
            "properties": {"number": {"type": "string", "description": "The order's number."}},
            "required": ["number"],
            "additionalProperties": False,
        },
    },
}


def look_up(arguments: str, customer: str, orders: Mapping[str, Order] = ORDERS) -> str:
    """What the tool answers, as JSON, to arguments as the model wrote them. An order of somebody else is not there."""
    try:
        number = json.loads(arguments)["number"]
    except (ValueError, LookupError, TypeError):
        return json.dumps({"error": "The arguments are no JSON with a number."})
    found = orders.get(str(number))
    if found is None or found.customer != customer:
        return json.dumps({"error": f"There is no order {number} of this customer."})
    return json.dumps(asdict(found))
