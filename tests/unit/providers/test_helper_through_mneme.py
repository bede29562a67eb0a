"""The helper LLM may be reached through Mneme: what it is asked must not be remembered or kept."""

import httpx
import respx
from pydantic import BaseModel

from app.features.helper import HelperClient
from app.gateway.identify import switches
from app.providers.helper import HelperEndpoint


class Nothing(BaseModel):
    """What is asked for."""


@respx.mock
async def test_its_requests_are_a_bare_pass_through() -> None:
    choice = {"message": {"role": "assistant", "content": "{}"}, "finish_reason": "stop"}
    route = respx.post("http://mneme.test/v1/chat/completions").mock(httpx.Response(200, json={"choices": [choice]}))
    helper = HelperClient(HelperEndpoint("http://mneme.test/v1", "small", "mneme_key"))
    await helper.ask(Nothing, system="Extract.", user="I live in Lisbon", max_tokens=9)
    await helper.close()
    said = switches(dict(route.calls.last.request.headers), captured=True)
    assert (said.memory, said.capture) == ("off", False)
    assert route.calls.last.request.headers["authorization"] == "Bearer mneme_key"
