"""Thoughts are recognised by their place in an answer, and go back upstream while a tool loop is open."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from app.context.reasoning import (
    REASONING,
    drop_thought_parts,
    fill_places,
    find_elements,
    find_open_loop,
    keep_places,
    merge_pieces,
    remove_start,
    separate,
)
from app.context.thoughts import split_thought
from app.context.transcript import Transcript, answer_text, canonical
from tests.support.tables import each_of

Message = dict[str, Any]

LED = [
    ("<think>\nThey greet me.\n</think>\n\nHello!", "Hello!"),
    ("<think></think>\n\nHello!", "Hello!"),
    ("\n\n <thinking>They greet me.</thinking>Hello!", "Hello!"),
    ("\ufeff<think>They greet me.</think>\r\nHello!", "Hello!"),
    ('<think time="3">They greet me.</think >Hello!', "Hello!"),
    ("<THINK>They greet me.</Think> Hello!", "Hello!"),
    ("<reasoning>They greet me.</reasoning>\nHello!", "Hello!"),
    ("<thought>They greet me.</thought>Hello!", "Hello!"),
    ("<seed:think>They greet me.</seed:think>Hello!", "Hello!"),
    ("[THINK]They greet me.[/THINK]Hello!", "Hello!"),
    ("<|begin_of_thought|>Hm.<|end_of_thought|>\nHello!", "Hello!"),
    ("<|START_THINKING|>Hm.<|END_THINKING|>Hello!", "Hello!"),
    ("<|channel|>analysis<|message|>Hm.<|end|><|start|>assistant<|channel|>final<|message|>Hello!", "Hello!"),
    ("◁think▷Hm.◁/think▷Hello!", "Hello!"),
    ("<think>One.</think>\n<think>Two.</think>\nHello!", "Hello!"),
    ("<think>They ask for `</think>`.</think>Write `</think>`.", "Write `</think>`."),
    ("<think>Über das „Denken“: 思考。</think>你好！", "你好！"),
    ("<think>They greet me.</think>", ""),
    # The opening tag stood in the prompt.
    ("Okay, they greet me.\n</think>\n\nHello!", "Hello!"),
    ("okay, I greet them</think>\n\nHello!", "Hello!"),
    ("Okay.</think>Hello!", "Hello!"),
    ("</think>\n\nHello!", "Hello!"),
    ("用户在打招呼。</think>你好！", "你好！"),
    ("Okay.\n[/THINK]Hello!", "Hello!"),
    ("They ask for `</think>`.\n</think>\nWrite `</think>`.", "Write `</think>`."),
    # Another closing tag of the family, and tags within the thought.
    ("<think>\nI should call.</thinking>\nThe answer is 7.", "The answer is 7."),
    ("<thinking>Hm.</think>\n\n7.", "7."),
    ("<think>Hm.</reasoning>\n7.", "7."),
    ("<reasoning>Hm.</think>\nSieben.", "Sieben."),
    ("<thought>Hm.</thoughts>\n七。", "七。"),
    ("<seed:think>Hm.</think>Seven.", "Seven."),
    ("<think>outer <think>A</think> SECRET</think>plain", "plain"),
    ("<think>a<thinking>b</thinking>c</think>\n\nJa.", "Ja."),
    ("<think>a <think>b <think>c</think> d</think> e.\n</think>\nX", "X"),
    ("<think>About <think>.</think>Close with </think>.", "Close with </think>."),
    ("<think>'Hm'</think>'Hi'", "'Hi'"),
    # Other spellings.
    ("**<think>**\nHm.\n**</think>**\n\nHello!", "Hello!"),
    ("**<think>Hm.</think>**\nHello!", "Hello!"),
    ("*<thinking>*Hm.*</thinking>* Hello!", "Hello!"),
    ("**<think>**\nHm.\n</think>\n**Bold** x", "**Bold** x"),
    ("<|thinking|>Hm.<|/thinking|>Hello!", "Hello!"),
    ("<|think|>Hm.<|end_think|>Hello!", "Hello!"),
    ("<|thinking|>Hm.</thinking>Hello!", "Hello!"),
    ("Thinking...\nThey greet me.\n...done thinking.\n\nHello!", "Hello!"),
    ("Thinking...\n...done thinking.\n\nHello!", "Hello!"),
    # Names that XML has, too, in front of prose.
    ("<analysis>Hm.</analysis>\nHello!", "Hello!"),
    ("<scratchpad>2+2=4</scratchpad>\n\nVier.", "Vier."),
    ("<reflection>a < b, List<int></reflection>好。", "好。"),
    ("<thought>a</thought>\n<thought>b</thought>\nHi", "Hi"),
    ("Okay.\n\n```\nx\n```\n</think>\n\nHi", "Hi"),
    ('He said "no."\n</think>\n\nHi', "Hi"),
    ("okay.</think>\n\nhello", "hello"),
    # All in lower case, on one line.
    ("<think> okay so they ask for the capital. </think> sure, it's Paris.", "sure, it's Paris."),
    ("[THINK] ok, they greet me! [/THINK] hello", "hello"),
    ("<thinking> el usuario saluda… </thinking> ¡hola!", "¡hola!"),
    # Without an opening tag: the answer begins after a blank line.
    ("Let me answer:</think>\n\nParis.", "Paris."),
    ("It is 50%</think>\n\n50%.", "50%."),
    ("Sie sind froh 😊</think>\n\nHallo!", "Hallo!"),
    ("用户问首都：</think>\n\n巴黎。", "巴黎。"),
    ("Der Nutzer fragt; ich antworte\n</think>\n\nParis.", "Paris."),
    ("Okay, so I\n- list\n- items\n</think>\n\nHere.", "Here."),
    ("Okay, the user greets. </think>\n\nHello!", "Hello!"),
    ("L'utilisateur salue. </think>\r\n\r\nBonjour !", "Bonjour !"),
    ("</think>\n\nparis is nice.", "paris is nice."),
    # Tags of other models.
    ("<|channel>thought\nHm.\n<channel|>Hello!", "Hello!"),
    ("<|channel>thought\n<channel|>Hello!", "Hello!"),
    ("<|start|>assistant<|channel|>analysis<|message|>Hm.<|channel|>final<|message|>Hello!", "Hello!"),
    ("<antThinking>Hm.</antThinking>Hello!", "Hello!"),
    ("<mm:think>Hm.</mm:think>\nHello!", "Hello!"),
    ("<longcat_think>Hm.</longcat_think>\nHello!", "Hello!"),
    ("<inner_thoughts>Hm.</inner_thoughts>\nHello!", "Hello!"),
    ("<thinking_process>Hm.</thinking_process>\nHello!", "Hello!"),
    ("<chain_of_thought>Hm.</chain_of_thought>\nHello!", "Hello!"),
    ("\u200b<think>Hm.</think>Hello!", "Hello!"),
]

PLAIN = [
    "",
    "Hello!",
    "Use the `<think>` tag, and close it with `</think>`.",
    "```xml\n<think>\nHm.\n</think>\n```\nThat is how.",
    "Write this:\n```\nHm.\n</think>\n```\nThat is how.",
    "Open with <think> and close with </think>.\nThat is all.",
    "1. <think>\n2. your thought\n3. </think>\nThat is all.",
    "The closing tag is </think>.",
    "The closing tag is </think>\nIt stands at the end.",
    'The tag "</think>" ends it.',
    "Is it over? </think> is the tag that says so.",
    "First.\n\n<think>Late.</think>\n\nLast.",
    "<b>Bold</b>, <i>italic</i> and <thinker>none</thinker>.",
    "a < b and [THINKING] c",
    "if (x </think/.test(y)) {}",
    # The closing tag is spoken of.
    "To end a thought, write\n</think>\non a line of its own. My advice: use 42.",
    "Line one.\n\n    </think>\n\nis how the template closes.",
    "The model printed this. </think> Then it stopped.",
    "They greet me. </think> Hello!",
    "Schreib zum Schluss:\n</think>\n\nDann die Antwort.",
    "Use it.\n\t</thinking>\nThat is all.",
    "Écrivez\n</thinking>\nà la fin.",
    "It prints {{x}}</think>\nthen stops.",
    "</think>\nis the tag.",
    "<think> opens and </think> closes a thought.",
    "Thinking...\nis what I do.",
    "<think> is the tag that opens, </think> is the one that closes.",
    "Am Ende steht </think>\n\nDann kommt die Antwort.",
    "Para cerrar, escribe:\n</think>\n\nDespués va la respuesta.",
    "To close it, type </think>\n\nThen the answer follows.",
    "The regex is /<\\/think>/ and\n</think>\n\nis what it finds.",
    "<|channel> is a token of Gemma.",
    "<design_thinking>A workshop</design_thinking>\nThat is the element.",
    # XML that was asked for.
    "<thoughts>\n  <item>Buy milk</item>\n</thoughts>",
    "<reasoning>XML export of your field</reasoning>\n<answer>7</answer>",
    "<analysis>Nur Text</analysis>",
    "<reflection><p>Ja</p></reflection>\nThat is the file.",
    '<scratchpad id="3">x</scratchpad>\nText.',
    "<thought>a</thought>\n<thought>b</thought>",
    "<analysis>x<br/>y</analysis> Done.",
    "<reasoning>理由</reasoning>\n<答案>七</答案>",
    "The element ends.\n</reasoning>\nThat is the file.",
]


@each_of("text, answer", LED)
def test_a_thought_in_front_of_an_answer_is_told_from_it(text: str, answer: str) -> None:
    thought, rest = split_thought(text)
    assert (thought + rest, rest) == (text, answer)
    assert split_thought(text, cut=False) == (thought, rest)
    assert separate({"role": "assistant", "content": text}) == (
        {"role": "assistant", "content": answer},
        {"text": thought},
    )


@each_of("text", PLAIN)
def test_an_answer_that_speaks_of_thoughts_keeps_its_text(text: str) -> None:
    assert split_thought(text) == ("", text)
    assert split_thought(text, cut=False) == ("", text)
    assert separate({"role": "assistant", "content": text}) == ({"role": "assistant", "content": text}, None)


@each_of("text", ["<think>Hm, they", "\n<thinking>\nHm", "[THINK]Hm", "<think>Hm `</thinking>`"])
def test_a_thought_that_is_never_closed_is_one_to_the_end(text: str) -> None:
    assert split_thought(text) == (text, "")
    assert split_thought(text, cut=False) == (text, "")


@each_of("text", ["<analysis>Hm, they", "<thoughts>Milk", "<reasoning>\nDas Feld", "<reflection>x", "<scratchpad>思考"])
def test_an_element_that_is_never_closed_is_a_thought_only_in_an_answer_that_was_cut(text: str) -> None:
    assert split_thought(text) == (text, "")
    assert split_thought(text, cut=False) == ("", text)


@each_of("tag", ["thought", "thoughts", "reasoning", "analysis", "scratchpad", "reflection"])
def test_an_element_before_nothing_but_a_call_is_a_thought(tag: str) -> None:
    text = f"<{tag}>I must look.</{tag}>"
    call = {"role": "assistant", "tool_calls": [{"id": "c", "function": {"name": "f", "arguments": "{}"}}]}
    assert separate({**call, "content": text}, cut=False) == ({**call, "content": ""}, {"text": text})
    assert canonical({**call, "content": text}) == canonical({**call, "content": ""})
    assert answer_text({**call, "content": text}) == ""


@each_of("text", ["<think> is the tag.", "\n<thinking> and [THINK] are tags.", "<think> 是一个标签。"])
def test_a_tag_that_a_whole_answer_begins_its_sentence_with_opens_nothing(text: str) -> None:
    assert split_thought(text, cut=False) == ("", text)
    assert split_thought(text) == (text, ""), "one that was cut may have been thinking"


@given(
    st.lists(
        st.sampled_from(["<think>", "</think>", "[THINK]", "[/THINK]", "\n", " ", ".", "`", "```", "a", "</", "<|"])
    )
)
def test_nothing_of_a_text_is_lost(pieces: list[str]) -> None:
    text = "".join(pieces)
    for cut in (False, True):
        assert "".join(split_thought(text, cut=cut)) == text


def test_what_others_say_is_no_thought() -> None:
    for role in ("user", "tool", "system"):
        message = {"role": role, "content": "<think>Hm.</think>Hello!"}
        assert separate(message) == (message, None)
        assert answer_text(message) == message["content"]


def part(text: str) -> Message:
    return {"type": "text", "text": text}


PARTS = [
    ([part("<think>Hm.</think>\nHello!")], [part("Hello!")]),
    ([part("<think>Hm.</think>"), part("Hello!")], [part("Hello!")]),
    (["<think>Hm.</think>Hello!"], ["Hello!"]),
    (
        [{"type": "thinking", "thinking": "x"}, part("<think>Hm.</think>Hi")],
        [{"type": "thinking", "thinking": "x"}, part("Hi")],
    ),
    ([part("<think>Hm."), part("</think>Hello!"), {"type": "image_url"}], [part("Hello!"), {"type": "image_url"}]),
    ([{"type": "image_url"}, part("<think>Hm.</think>")], [{"type": "image_url"}, part("<think>Hm.</think>")]),
]


@each_of("content, remaining", PARTS)
def test_a_thought_in_parts_of_a_content_is_told_from_them(content: list[Any], remaining: list[Any]) -> None:
    assert separate({"role": "assistant", "content": content})[0]["content"] == remaining


def test_characters_at_the_start_of_parts_are_removed_a_line_each() -> None:
    assert remove_start([part("ab"), part("cd")], 3) == [part("cd")]
    assert remove_start([part("ab"), part("cd")], 4) == [part("d")]
    assert remove_start([part("ab")], 0) == [part("ab")]


SAME = [
    [{"content": text}, {"content": answer}, {"content": f" {answer} ", "reasoning_content": "Hm."}]
    for text, answer in LED
] + [
    [{"content": "Hi"}, {"content": "Hi", "reasoning": "x"}, {"content": [{"type": "thinking", "thinking": "x"}, part("Hi")]},
     {"content": "Hi", "reasoning_details": [{"type": "reasoning.text", "text": "x"}]},
     {"content": "Hi", REASONING: {"responses": []}}],
    [{"content": "<think>Hm, th"}, {"content": ""}, {"content": None}],
]  # fmt: skip


@each_of("contents", SAME)
def test_an_answer_is_the_same_turn_with_its_thoughts_and_without(contents: list[Message]) -> None:
    assert len({canonical({"role": "assistant", **fields}) for fields in contents}) == 1
    transcripts = {
        Transcript.of([{"role": "user", "content": "q"}, {"role": "assistant", **fields}]).chains for fields in contents
    }
    assert len(transcripts) == 1


@each_of("text", PLAIN[2:])
def test_another_answer_is_another_turn(text: str) -> None:
    assert canonical({"role": "assistant", "content": text}) != canonical({"role": "assistant", "content": text + "!"})


def text_piece(text: str, **more: Any) -> Message:
    return {"type": "reasoning.text", "text": text, **more}


def thinking_piece(*thoughts: int) -> Message:
    return {"type": "thinking", "thinking": list(thoughts)}


MERGED = [
    ([[text_piece("a", index=0)], [text_piece("b", index=0)]], [text_piece("ab", index=0)]),
    ([[text_piece("a")], [text_piece("b")]], [text_piece("ab")]),
    ([[text_piece("a", index=0), text_piece("b", index=1)], [text_piece("c", index=0)]],
     [text_piece("ac", index=0), text_piece("b", index=1)]),
    ([[text_piece("a"), text_piece("b")]], [text_piece("a"), text_piece("b")]),
    ([[text_piece("a", id="x")], [text_piece("b", id="y")]], [text_piece("a", id="x"), text_piece("b", id="y")]),
    ([[text_piece("a", id=None, signature=None)], [text_piece("b", id="y", signature="s")]],
     [text_piece("ab", id="y", signature="s")]),
    ([[thinking_piece(1)], [thinking_piece(2)]], [thinking_piece(1, 2)]),
    ([["odd"], [3]], ["odd", 3]),
    ([[]], []),
]  # fmt: skip


@each_of("deltas, merged", MERGED)
def test_pieces_of_reasoning_are_joined_in_their_order(deltas: list[list[Any]], merged: list[Any]) -> None:
    assert merge_pieces(deltas) == merged


def test_a_place_that_nothing_fills_is_left_out_and_what_has_none_stands_behind() -> None:
    blocks = [{"type": "thinking"}, part("x"), {"type": "tool_use", "id": "a"}, {"type": "tool_use", "id": "gone"}]
    remaining = keep_places(blocks, {"thinking"}, "id")
    calls = [("b", {"type": "tool_use", "id": "b"}), ("a", {"type": "tool_use", "id": "a"})]
    assert fill_places(remaining, [part("y")], calls) == [
        {"type": "thinking"}, part("y"), {"type": "tool_use", "id": "a"}, {"type": "tool_use", "id": "b"},
    ]  # fmt: skip
    assert keep_places([part("x")], {"thinking"}, "id") == []
    assert fill_places((), [part("y")], calls) == [part("y"), calls[0][1], calls[1][1]]


U: Message = {"role": "user"}
A: Message = {"role": "assistant"}
T: Message = {"role": "tool"}
C: Message = {"role": "assistant", "tool_calls": [{"id": "c"}]}
F: Message = {"role": "assistant", "function_call": {"name": "f"}}
S: Message = {"role": "system"}
LOOPS = [
    ([U, C], [T], 1),
    ([U, C, T, C], [T], 1),
    ([U, C], [T, T], 1),
    ([U, F], [{"role": "function"}], 1),
    ([U, A, U, C], [S, T], 3),
    ([U, C, T, A, C], [T], 4),
    ([U, C], [T, U], 1),  # said beside the results
    ([U, C], [T, C, T], 1),  # the client brings the next round
    ([U, C, T], [], 1),
    ([C], [T], 0),
    ([U, C], [U], 2),
    ([U, C, T], [U], 3),
    ([U, C, T, A], [U], 4),
    ([U, C, T, A], [], 4),
    ([U, C], [T, A, U], 2),
    ([U, C], [U, C, T], 2),  # the loop is the client's own
    ([], [T], 0),
]


@each_of("path, following, begin", LOOPS)
def test_a_tool_loop_is_open_while_its_results_come(path: list[Message], following: list[Message], begin: int) -> None:
    assert find_open_loop(path, following) == begin


ODD = [
    {"role": "assistant", "content": "Hi", REASONING: "x"},
    {"role": "assistant", "content": "Hi", REASONING: {"responses": [1]}},
    {"role": "assistant", "content": [{"type": ["thinking"]}, 3, None]},
    {"role": "assistant", "content": {"type": {}}},
    {"role": ["assistant"], "content": "<think>Hm.</think>Hi"},
]


@each_of("message", ODD)
def test_what_nobody_understands_is_left_as_it_is(message: Message) -> None:
    assert separate(message) == (message, None)
    assert drop_thought_parts(message) == message
    assert find_elements(message, "responses") == []
