"""A receiver of OTLP over HTTP: what a collector would get, decoded."""

from __future__ import annotations

import gzip
import threading
import time
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

KINDS = ("unspecified", "internal", "server", "client", "producer", "consumer")
WAIT_S = 20.0


@dataclass(frozen=True, slots=True)
class Told:
    """A span as it was told. Times in nanoseconds; `parent`: empty at the root."""

    name: str
    kind: str
    trace: str
    id: str
    parent: str
    begin: int
    end: int
    failed: bool
    attributes: dict[str, Any]
    resource: dict[str, Any]


class OtlpReceiver:
    """Listens on `url`; use as a context manager. `answers`: the status that it gives; None: it never answers."""

    def __init__(self, answers: int | None = 200) -> None:
        self.answers = answers
        self.spans: list[Told] = []
        self.headers: list[dict[str, str]] = []
        self.raw: list[bytes] = []
        """The bodies, uncompressed."""
        self.over = threading.Event()
        receiver = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["content-length"]))
                if self.headers.get("content-encoding") == "gzip":
                    body = gzip.decompress(body)
                receiver.headers.append({"path": self.path} | {k.lower(): v for k, v in self.headers.items()})
                receiver.raw.append(body)
                if receiver.answers is None:
                    receiver.over.wait(WAIT_S)
                    return
                if receiver.answers == 200:
                    receiver.spans.extend(decoded(body))
                self.send_response(receiver.answers)
                self.send_header("content-length", "0")
                self.end_headers()

            def log_message(self, *args: Any) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True)

    def __enter__(self) -> OtlpReceiver:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.over.set()
        self._server.shutdown()
        self._server.server_close()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    def trace(self, root: str, **attributes: object) -> list[Told]:
        """All spans of the newest trace whose root has this name and these attributes; waits for it."""
        deadline = time.monotonic() + WAIT_S
        while time.monotonic() < deadline:
            for span in reversed(list(self.spans)):
                if span.name == root and attributes.items() <= span.attributes.items():
                    return [each for each in list(self.spans) if each.trace == span.trace]
            time.sleep(0.02)
        raise AssertionError(f"no span {root!r} with {attributes} among {[each.name for each in self.spans]}")


def decoded(body: bytes) -> list[Told]:
    """The spans of one export."""
    request = ExportTraceServiceRequest()
    request.ParseFromString(body)
    return [
        Told(
            span.name,
            KINDS[span.kind],
            span.trace_id.hex(),
            span.span_id.hex(),
            span.parent_span_id.hex(),
            span.start_time_unix_nano,
            span.end_time_unix_nano,
            span.status.code == 2,
            _values(span.attributes),
            _values(group.resource.attributes),
        )
        for group in request.resource_spans
        for scope in group.scope_spans
        for span in scope.spans
    ]


def _values(pairs: Any) -> dict[str, Any]:
    return {pair.key: getattr(pair.value, str(pair.value.WhichOneof("value"))) for pair in pairs}
