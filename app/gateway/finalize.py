"""The end of a call: what it came to (`Accountant`), made durable before the client sees it, and counted (`Finalizer`)."""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from itertools import repeat
from typing import Any
from uuid import UUID

from msgspec import Struct
from msgspec.structs import replace

from app.capture import facts
from app.capture.facts import AnsweredChoice, CallFacts, Exchange, NewTurnMessage, Outcome, Usage, labels_of
from app.capture.record import Recorder
from app.clock import Clock
from app.context.reasoning import REASONING, ReasoningRecord
from app.context.transcript import canonical, chain, message_hash
from app.errors import MnemeError, StoreUnavailable
from app.gateway.call import Forwarded, Keeper, Recorded, grown
from app.gateway.dialects.base import ChatRequest, is_system, leading
from app.gateway.dialects.sse import Choice, UpstreamAnswer, payloads
from app.gateway.encodings import Problem, decode_body, find_codings
from app.gateway.headers import Redactor
from app.gateway.identify import repeat_key
from app.gateway.prepare import Preparer, private_from, without_orders
from app.gateway.reconcile import question_chain, tails
from app.gateway.relay import Ending, Tape, has_events
from app.gateway.sharing import Sharer, by_word, spoken
from app.json_text import read_json
from app.metrics import Metrics
from app.providers.models import ModelRegistry
from app.providers.tokens import REPLY_TOKENS, CountCache, Tokenizers
from app.settings import Settings
from app.store.records import PartRecord, StreamRecord
from app.text_cache import forget
from mneme_replay.paths import MASK

log = logging.getLogger("mneme.turn")

_ABANDONED = frozenset({"gone", "cancelled"})
UNREADABLE_ANSWER = "unreadable-answer"
"""The reason of a call whose answer is compressed in a way that Mneme cannot decode."""
ERROR_CHARS = 1000
"""Of an upstream's error in mid-stream that is kept beside its bytes."""


class Accountant:
    """Turns a finished call into what the recorder writes. Pure but for the token counters."""

    def __init__(
        self,
        models: ModelRegistry,
        tokenizers: Tokenizers,
        counts: CountCache,
        session_ttl: timedelta,
        redactor: Redactor | None = None,
    ) -> None:
        self._models = models
        self._tokenizers = tokenizers
        self._counts = counts
        self._session_ttl = session_ttl
        self._redactor = redactor or Redactor()

    async def ready(self, model: str) -> None:
        """Have what counts the tokens of `model` at hand: whatever counts later has a deadline, or holds up all others."""
        await self._tokenizers.ready(model)

    def close(self, call: Forwarded, ending: Ending, tape: Tape, now: datetime) -> tuple[CallFacts, Exchange | None]:
        """The facts of a call, and its exchange where it is a turn of a conversation."""
        response = call.response
        good = response is not None and 200 <= response.status < 300
        decoded, problem = decode_tape(call, tape)
        if ending.kind != "complete" and problem == "truncated":
            problem = None  # `ending` already says that the answer broke off
        answer = _answer(call, decoded) if call.chat is not None and good else None
        # The upstream has read, and charges, the prompt of an answer that nobody waited for; else a key that always hangs up in
        # time would spend nothing.
        unheard = response is None or good
        abandoned = UpstreamAnswer() if answer is None and unheard and ending.kind in _ABANDONED else answer
        usage = self._usage(call, abandoned) if call.chat is not None or not good else _unread(decoded)
        stream = tape.record() if response is not None and (call.switches.capture or self._redactor) else None
        storable = self._redact(stream, decoded, problem) if stream is not None else None
        storable_answer = (
            answer
            if storable is None or storable is stream or answer is None
            else _answer(call, storable) or UpstreamAnswer()
        )
        facts = self._facts(call, ending, tape, answer, usage)
        if problem is not None and call.chat is not None and good and call.status != "bypass":
            facts = replace(facts, memory_status="degraded", reason=UNREADABLE_ANSWER)
        if call.legs:
            facts = facts.made_of(call.legs)
        if call.leg_of is not None:
            facts = facts.as_leg(call.leg_of.call_id, call.leg_of.number)
        if call.switches.capture:
            facts = self._captured(
                facts, call, storable, _error(ending, storable_answer, problem), masked=storable is not stream
            )
        if call.chat is None or call.place is None or not good or call.answered_before or call.leg_of is not None:
            return facts, None
        answers = _answers(answer or UpstreamAnswer(), storable_answer or UpstreamAnswer(), ending)
        if len(call.answer_hashes) == len(answers):
            answers = [replace(each, hash=own) for each, own in zip(answers, call.answer_hashes, strict=True)]
        return facts, self._exchange(call, call.chat, answers, now, answer)

    def _redact(self, stream: StreamRecord, decoded: Tape | StreamRecord, problem: Problem | None) -> StreamRecord:
        """Return the record of an answer as it may be stored; a compressed one is stored decoded if values are taken out."""
        if isinstance(decoded, Tape) or not self._redactor:
            return self._redactor.stream(stream)
        return self._redactor.stream(decoded) if problem is None else self._redactor.hide(stream)

    def part(self, call: Forwarded, exchange: Exchange | None) -> PartRecord | None:
        """What is stored of an addon's part in a call; None: it has none, or its session has not begun."""
        if call.part is None or call.chat is None or (exchange is None and (call.place is None or call.place.new)):
            return None
        chain = exchange.answer_chains[0] if exchange is not None and exchange.answer_chains else None
        return call.part.recorded(call.chat, chain, self._redactor)

    def answer_hashes(self, call: Forwarded, ending: Ending, tape: Tape) -> list[bytes]:
        """By which the answers of a call that has ended are recognised, when they come back in a transcript."""
        if call.chat is None or call.response is None:
            return []
        answer = _answer(call, decode_tape(call, tape)[0]) or UpstreamAnswer()
        return [each.hash for each in _answers(answer, answer, ending)]

    def _facts(
        self, call: Forwarded, ending: Ending, tape: Tape, answer: UpstreamAnswer | None, usage: Usage
    ) -> CallFacts:
        response = call.response
        model = call.chat.model if call.chat else call.model or ""
        priced_as = (answer.model if answer else None) or model
        query = "?" + call.query.decode("latin-1") if call.query else ""
        return CallFacts(
            call_id=call.id,
            tenant_id=call.identity.tenant_id,
            user_id=call.place.user_id if call.place else call.identity.user_id,
            created_at=call.at,
            method=call.method,
            path=call.path + query,
            upstream=call.target.name,
            outcome=Outcome.FAILED if response is None and ending.kind == "broken" else Outcome[ending.kind.upper()],
            memory_status=call.status,
            reason=call.reason,
            model=model,
            answered_model=answer.model if answer else None,
            streamed=call.chat is not None and call.chat.stream,
            status=response.status if response is not None else None,
            usage=usage,
            cost_microcents=self._models.cost_microcents(
                priced_as, usage.prompt or 0, usage.completion or 0, usage.cached or 0
            ),
            priced=self._models.price(priced_as) is not None,
            key_id=call.principal.key_id,
            latency_ms=call.elapsed_us() // 1000,
            first_byte_us=tape.chunk_times[0] if tape.chunk_times else None,
            overhead_us=call.overhead_ns // 1000,
            idempotency_key=call.identity.idempotency_key,
            repeat_key=repeat_key(call.identity, call.chat.body) if call.chat is not None and call.place else None,
            retry_count=call.identity.retry,
            session_id=call.session_id,
            captured=call.switches.capture,
            tool_calls=sum(len(each.tool_calls) + bool(each.function_call) for each in answer.choices) if answer else 0,
        )

    def _captured(
        self, facts: CallFacts, call: Forwarded, stream: StreamRecord | None, error: str | None, *, masked: bool
    ) -> CallFacts:
        """The facts with what came and went, but for what is not to be stored. `masked`: the stream lacks something."""
        received, sent, lacking = self._recipes(call)
        body = None
        if received is None and call.body is not None:
            body = self._redactor.body(call.body)
            lacking += ["request"] if body is not call.body else []
        headers = self._redactor.headers(call.raw_headers)
        return replace(
            facts,
            error=error,
            request_headers=headers,
            labels=labels_of(headers),
            response_headers=self._redactor.headers(call.response.headers) if call.response is not None else (),
            request=received,
            sent=sent,
            body=body,
            body_size=call.size,
            body_truncated=call.body_truncated,
            stream=stream,
            redacted=[*lacking, "response"] if masked else lacking,
        )

    def _recipes(self, call: Forwarded) -> tuple[facts.Recipe | None, facts.Recipe | None, list[str]]:
        """The request as received and, where it is another, as sent; and which of them lack what is not to be stored."""
        chat, place = call.chat, call.place
        if chat is None:
            return None, None, []
        known = place.request_known if place else None
        elements = chat.dialect.elements(chat.document)
        lead = leading(elements)
        # A system message further down often is a note on the present: the next request repeats what stands before it.
        stable = next((i for i in range(lead, len(elements)) if is_system(elements[i])), None)
        body = self._redactor.body(chat.body)
        lacking = ["request"] if body is not chat.body else []
        envelope = chat.envelope if body is chat.body else chat.dialect.scan(body)
        if envelope is None or len(envelope.messages) != len(elements):
            return facts.make(body, 0, ()), None, ["request", "sent"]  # no message is to be stored
        received = facts.make(body, envelope.array_start + 1, envelope.messages, known, stable, lead)
        if call.sent == chat.body:
            return received, None, lacking
        document = read_json(call.sent)
        body = self._redactor.body(call.sent)
        lacking += ["sent"] if body is not call.sent else []
        envelope = chat.dialect.scan(body)
        assert envelope is not None, "what was sent is what was received, with insertions"
        spans = envelope.messages
        own = max(1, len(elements))  # a text may have become an element
        if place is not None and place.server_managed and not place.upstream_holds:
            # What Mneme supplied comes back in its own writing; what the client wrote will, too, the next time.
            stable = len(spans) - (own - lead)
        elif stable is not None:
            stable += len(spans) - own
        known = place.sent_known if place else None
        lead = leading(chat.dialect.elements(document))
        return received, facts.make(body, envelope.array_start + 1, spans, known, stable, lead), lacking

    def _usage(self, call: Forwarded, answer: UpstreamAnswer | None) -> Usage:
        """The upstream's own figures, else counted here: never asked for where the client did not ask."""
        if answer is None or call.chat is None:
            return Usage()
        if answer.usage is not None:
            return _usage(answer.usage, *_NAMES[0])
        counter = self._tokenizers.for_model(answer.model or call.chat.model)
        prompt = call.part.shown_tokens if call.part is not None else 0
        hashes = call.chat.transcript.hashes
        if not prompt:
            prompt = sum(map(self._counts.message, call.chat.messages, repeat(counter), hashes)) + REPLY_TOKENS
            prompt += sum(self._counts.tools(each, counter) for each in call.chat.schemas)
            if call.prepared is not None:
                prompt += call.prepared.compilation.tokens
        completion = sum(counter.count(_spoken(each)) for each in answer.choices)
        # A margin is for budgets, which must hold; a figure of use is rather the likely one.
        likely = 1.0 + counter.margin
        return Usage(round(prompt / likely), round(completion / likely), None, counted=True)

    def _exchange(
        self,
        call: Forwarded,
        chat: ChatRequest,
        answers: Sequence[AnsweredChoice],
        now: datetime,
        answer: UpstreamAnswer | None,
    ) -> Exchange:
        place, transcript = call.place, chat.transcript
        assert place is not None, "a turn has a place"
        told = self._told(chat)
        whole = question_chain(place, transcript)
        private = private_from(chat, call.obeyed)
        rest = without_orders(told) if private is not None else None
        messages = list(told.messages)
        if private is not None and rest is not None:
            messages[private] = rest
        spoken_new = [i for i in range(place.first_new, len(chat.messages)) if transcript.hashes[i] is not None]
        said = [NewTurnMessage(messages[i], transcript.hashes[i]) for i in spoken_new]
        shares = call.identity.space is not None and private is None
        if shares:
            hidden = len(said) - spoken(said)
        else:
            hidden = sum(1 for i in spoken_new if i >= private) if private is not None and rest is None else 0
        compiled = call.prepared.compilation if call.prepared else None
        return Exchange(
            session_id=place.session_id,
            user=call.identity.user,
            said=said,
            answers=answers,
            question_chain=whole,
            answer_chains=[chain([each.hash], whole)[0] for each in answers],
            answer_mark=chat.dialect.mark(chat, answer) if answer is not None else None,
            tails=tails(
                [*(each.role for each in place.path), *transcript.roles, "assistant"],
                [*(each.message_hash for each in place.path), *transcript.hashes, answers[0].hash],
            )
            if answers
            else (None, None),
            ended_at=now,
            expires_at=now + self._session_ttl,
            session_name=place.external_id,
            parent_session_id=place.parent_session_id,
            branch_turn_index=place.branch_turn_index,
            parent_message_id=place.parent_message_id,
            asked_index=place.asked_index,
            model=chat.model,
            window=self._models.window(call.target.model_alias or chat.model),
            system_prompt=told.system_prompt(),
            temperature=chat.number("temperature"),
            top_p=chat.number("top_p"),
            max_response_tokens=chat.answer_limit,
            block=compiled.new_block if compiled and call.target.placement == "tail" else None,
            epoch=compiled.epoch if compiled else None,
            visible_from=place.visible_from,
            confined=call.identity.confined,
            learn=call.switches.memory == "on",
            private=hidden,
            shares=shares,
            # A simulated answer is nobody's: it would come back as a note.
            private_answers=private is not None or call.target.simulated,
        )

    def _told(self, chat: ChatRequest) -> ChatRequest:
        """The request with the messages as they may be stored."""
        document = self._redactor.value(chat.document)
        if document is chat.document:
            return chat
        messages: Sequence[object] = chat.dialect.messages(document) or ()
        if len(messages) != len(chat.messages):
            messages = [MASK] * len(chat.messages)  # none of them is one any more
        # Of a message that is not to be stored at all there is still who said it.
        kept = [
            each if isinstance(each, Mapping) else {"role": own.get("role"), "content": MASK}
            for each, own in zip(messages, chat.messages, strict=True)
        ]
        return replace(chat, messages=kept)


def decode_tape(call: Forwarded, tape: Tape) -> tuple[Tape | StreamRecord, Problem | None]:
    """Return the tape of an answer, or the decoded record of a compressed one, and why that record is incomplete (None: it is
    complete)."""
    codings = find_codings(call.response.headers) if call.response is not None else ()
    if not codings:
        return tape, None
    decoded = decode_body(tape.body, codings)
    plain = Tape(call.started_ns)
    if call.response is not None and has_events(call.response.headers):
        plain.listen_for_events()
    plain.add(decoded.body)
    plain.finish()
    return plain.record(), decoded.problem


def _unread(tape: Tape | StreamRecord) -> Usage:
    """Of an answer that Mneme does not understand: what it says itself, else, of a stream, one token an event."""
    told = usage_told(tape.body)
    if told is not None or not tape.event_offsets:
        return told or Usage()
    return Usage(None, len(tape.event_offsets), None, counted=True)


def _answer(call: Forwarded, came: Tape | StreamRecord) -> UpstreamAnswer | None:
    """The answer, put together from its events or read from its body."""
    assert call.chat is not None, "asked for answers to what is understood"
    body, dialect = came.body, call.chat.dialect
    if len(came.event_offsets):
        return dialect.fold(payloads(body))
    return dialect.whole(body) if body else None


def _answers(answer: UpstreamAnswer, told: UpstreamAnswer, ending: Ending) -> list[AnsweredChoice]:
    """The choices as messages. `told`: the answer as it may be stored; recognised they are by what was really said."""
    made = [(each, found) for each in answer.choices if (found := _answered(each, answer, ending)) is not None]
    if told is answer:
        return [found for _, found in made]
    kept = {each.index: _message(each) for each in told.choices}
    nothing = {"role": "assistant", "content": MASK}
    return [replace(found, message=kept.get(each.index, nothing)) for each, found in made]


def _answered(choice: Choice, answer: UpstreamAnswer, ending: Ending) -> AnsweredChoice | None:
    """A choice as a message, as clients send it back; None where nothing of it came."""
    message = _message(choice)
    ended = choice.finish_reason != "abort" and (choice.finish_reason is not None or answer.done)
    whole = ending.kind == "complete" and ended and answer.error is None
    if not whole and not (choice.content or choice.tool_calls or choice.refusal or choice.function_call):
        return None
    form = canonical(message)
    assert form is not None, "an assistant's message has a canonical form"
    return AnsweredChoice(message, message_hash(form), choice.finish_reason, whole)


def _message(choice: Choice) -> dict[str, Any]:
    message: dict[str, Any] = {"role": "assistant", "content": choice.content}
    if choice.refusal:
        message["refusal"] = choice.refusal
    if choice.tool_calls:
        message["tool_calls"] = choice.tool_calls
    if choice.function_call:
        message["function_call"] = choice.function_call
    if choice.reasoning_record:
        message[REASONING] = ReasoningRecord(choice.reasoning_record)
    return message


def _spoken(choice: Choice) -> str:
    """What a model wrote, for counting."""
    parts = [choice.reasoning or "", choice.content or "", choice.refusal or ""]
    for call in choice.tool_calls:
        function = call.get("function") or {}
        parts += [str(function.get("name") or ""), str(function.get("arguments") or "")]
    return "\n".join(part for part in parts if part)


def _error(ending: Ending, answer: UpstreamAnswer | None, problem: Problem | None) -> str | None:
    if ending.error is not None:
        return ending.error.message
    if answer is not None and answer.error is not None:
        return str(answer.error)[:ERROR_CHARS]
    return f"The upstream compressed its answer, which cannot be read: {problem}." if problem is not None else None


_MAX_USAGE_BYTES = 4096
"""A usage object has some hundred bytes."""
_MAX_TRIES = 8
"""Places that are looked at, from the end: usage stands last, or nearly so."""
_MARK = b'"usage"'
_NAMES = (("prompt_tokens", "completion_tokens"), ("input_tokens", "output_tokens"))
"""Of the tokens of prompt and answer; the newer paths have the second."""
_DECODER = json.JSONDecoder()


def usage_told(body: bytes) -> Usage | None:
    """The last usage of a JSON body or of a stream of JSON events; None where it tells none.

    Only the object itself is parsed: a body of embeddings has megabytes. Inside of a JSON string the mark cannot stand, because
    there its quotes are escaped.
    """
    end = len(body)
    for _ in range(_MAX_TRIES):
        end = body.rfind(_MARK, 0, end)
        if end < 0:
            return None
        rest = body[end + len(_MARK) : end + len(_MARK) + _MAX_USAGE_BYTES].lstrip()
        if rest[:1] != b":" or not (rest := rest[1:].lstrip()).startswith(b"{"):
            continue
        try:
            found, _at = _DECODER.raw_decode(rest.decode("utf-8", "replace"))
        except (ValueError, RecursionError):
            continue
        for names in _NAMES:
            if (usage := _usage(found, *names)).prompt is not None:
                return usage
    return None


def _usage(given: Mapping[str, Any], prompt: str, completion: str) -> Usage:
    """What a usage object tells, by the names that it has for the tokens of prompt and answer."""
    details = given.get(f"{prompt}_details")
    cached = details.get("cached_tokens") if isinstance(details, Mapping) else None
    return Usage(token_count(given.get(prompt)), token_count(given.get(completion)), token_count(cached))


def token_count(value: object) -> int | None:
    """A number of tokens as Postgres' integer takes it; None for anything else."""
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**31 else None


# --- made durable --------------------------------------------------------------------------------------------------------


class Sealed(Struct, frozen=True):
    """What became of a call that has ended. `stored`: it is durable, or may go on without; `facts`: None where nothing was to
    be kept, or could be."""

    stored: bool
    facts: CallFacts | None = None


class Finalizer:
    """Records calls."""

    def __init__(
        self,
        *,
        preparer: Preparer,
        accountant: Accountant,
        recorder: Recorder,
        metrics: Metrics,
        settings: Settings,
        clock: Clock,
        keeper: Keeper,
        sharer: Sharer | None = None,
    ) -> None:
        """`sharer`: None where nothing is said to shared spaces."""
        self._sharer = sharer
        self._preparer = preparer
        self._accountant = accountant
        self._recorder = recorder
        self._metrics = metrics
        self._settings = settings
        self._clock = clock
        self.keeper = keeper

    async def seal(self, call: Forwarded, ending: Ending, tape: Tape) -> Sealed:
        """Make the call and its turn durable. Not `stored`: it could not be, and the answer must not seem to end well."""
        if call.bare:
            return Sealed(True)
        began = time.perf_counter_ns()
        complete = True
        try:
            if call.joint is not None:
                complete, legs = await call.joint.end(ending)
                call = replace(call, legs=legs)
            facts = await self._store(call, ending, tape)
        except Exception as error:  # boundary: whatever it was, the answer must not seem to end well
            self._metrics.degraded("unstored")
            log.error("the call could not be stored", extra={"call_id": str(call.id)}, exc_info=error)
            return Sealed(self._settings.durability == "best_effort")
        self._metrics.stage("record", (time.perf_counter_ns() - began) / 1e9, began)
        return Sealed(complete, facts)

    async def seal_leg(self, call: Forwarded, ending: Ending, tape: Tape) -> Sealed:
        """The same of one leg of an answer. Its figures are known then, whether it is to be kept or not."""
        recorded = await self.seal(call, ending, tape)
        if recorded.facts is not None:
            return recorded
        facts, _ = self._accountant.close(call, ending, tape, self._clock.now())
        return replace(recorded, facts=facts)

    async def _store(self, call: Forwarded, ending: Ending, tape: Tape) -> CallFacts:
        """In Postgres, or, while it is away, in the spool. What it came to."""
        now, keeper = self._clock.now(), self.keeper
        if not call.kept or not keeper.goes_behind(call):
            try:
                return await self.settle(call, ending, tape, now)
            except StoreUnavailable as error:
                keeper.lost(error)
        # The limits of its key, and whoever observes it, want to know what it came to.
        facts, _ = self._accountant.close(call, ending, tape, now)
        _admission_told(call, facts, recorded=True)
        call.observe(grown(Recorded, call, facts=facts))
        hashes = self._accountant.answer_hashes(call, ending, tape) if keeper.redactor else ()
        await keeper.keep(call, ending, tape, now, hashes)
        return facts

    async def settle(
        self, call: Forwarded, ending: Ending, tape: Tape, ended_at: datetime, promised: UUID | None = None
    ) -> CallFacts:
        """Store a call that has ended; what it came to. `promised`: the session that it was to begin. Raises StoreUnavailable,
        and whatever the call is refused for."""
        if call.needs_place and call.chat is not None:
            call = await self._placed(call, call.chat, promised)
        facts, exchange = self._accountant.close(call, ending, tape, ended_at)
        if call.part is not None:
            facts = replace(facts, part=self._accountant.part(call, exchange))
        recorded = facts.captured or exchange is not None
        _admission_told(call, facts, recorded=recorded)
        if facts.reason == UNREADABLE_ANSWER:
            self._metrics.degraded(UNREADABLE_ANSWER)
            log.warning("the answer cannot be decoded", extra={"call_id": str(call.id), "error": facts.error})
        if exchange is not None and self._sharer is not None:
            await self._sharer.say(call, exchange)  # first: a turn that is stored is not stored again
        if recorded:
            explained = call.prepared.facts if call.prepared and facts.captured else None
            if not await self._recorder.record(facts, exchange, explained):
                forget()  # its user may have been erased meanwhile, and what was kept then is filled again by this call
        compiled = call.prepared.compilation if call.prepared else None
        if compiled is not None:
            self._metrics.observe_utilisation(compiled.eta, compiled.attainable)
            block = compiled.new_block
            self._metrics.memory(block.token_count if block else 0, degraded=call.status == "degraded")
        if facts.part is not None:
            facts.part.count(self._metrics, legs=max(0, len(call.legs) - 1))
        self._metrics.tokens(
            prompt=facts.usage.prompt or 0,
            completion=facts.usage.completion or 0,
            injected=compiled.tokens if compiled else 0,
        )
        if facts.usage.prompt is not None or facts.usage.completion is not None:
            self._metrics.cost(facts.upstream, facts.cost_microcents, priced=facts.priced)
        log.info("answered", extra=facts.figures())
        call.observe(grown(Recorded, call, facts=facts))
        return facts

    async def _placed(self, call: Forwarded, chat: ChatRequest, promised: UUID | None) -> Forwarded:
        """The call with its place. Memory failed before, or Mneme did; without a place the turn has no session to belong
        to."""
        try:
            if call.identity.idempotency_key is not None and call.replay is None:
                found = await self._preparer.replay(call.identity, chat)
                if found is not None:
                    call = replace(call, replay=found, identity=replace(call.identity, repeats=True))
            place = await self._preparer.place(call.identity, chat, call.switches, call.at)
            call = replace(call, identity=by_word(call.identity, chat, place))
        except MnemeError as error:
            if error.status >= 500:
                raise
            # What would have been refused was answered meanwhile: it is nobody's turn, but it is a call.
            log.warning("a turn of no session", extra={"call_id": str(call.id), "reason": error.message})
            return call
        if promised is not None and place.new:
            place = replace(place, session_id=promised, retrieval_session=promised)
        return replace(call, place=place)


def _admission_told(call: Forwarded, facts: CallFacts, *, recorded: bool) -> None:
    if call.admission is not None:
        call.admission.facts, call.admission.recorded = facts, recorded
