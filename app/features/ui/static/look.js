// The first look: both answers as they come, and then what memory added.
"use strict";

const look = document.querySelector("[data-look]");

function post(path, fields) {
  return fetch(path, { method: "POST", body: new URLSearchParams({ csrf: look.elements.csrf.value, ...fields }) });
}

// The text of a piece of the stream; throws the upstream's error in words.
function piece(data) {
  if (data === "[DONE]") return "";
  const told = JSON.parse(data);
  if (told.error) throw new Error(told.error.message || "The upstream failed.");
  return told.choices?.[0]?.delta?.content || "";
}

async function problem(answer) {
  try {
    return (await answer.json()).error.message;
  } catch {
    return `The server refused this (${answer.status}). Load the page again.`;
  }
}

async function stream(answer, text) {
  const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  let ended = false;
  for (;;) {
    const { value, done } = await reader.read();
    const lines = (rest + (value || "")).split(/\r?\n/);
    rest = done ? "" : lines.pop();
    for (const line of lines) {
      if (!line.startsWith("data:")) continue;
      const data = line.slice(5).trim();
      ended ||= data === "[DONE]";
      text.append(piece(data));
    }
    if (done) break;
  }
  if (!ended) throw new Error("The answer broke off.");
}

async function answered(side, fields) {
  const text = side.querySelector("[data-text]");
  text.setAttribute("aria-busy", "true");
  try {
    const answer = await post(look.dataset.answer, { ...fields, memory: side.dataset.side });
    if (!answer.ok) throw new Error(await problem(answer));
    await stream(answer, text);
    const call = answer.headers.get("x-mneme-call-id");
    const reasons = side.querySelector("[data-reasons]");
    if (call && reasons) {
      const why = await post(look.dataset.why, { call });
      if (why.ok) reasons.innerHTML = await why.text();
    }
    return true;
  } catch (error) {
    const shown = side.querySelector("[data-problem]");
    shown.textContent = error instanceof TypeError ? "The server does not answer." : error.message;
    shown.hidden = false;
    return false;
  } finally {
    text.removeAttribute("aria-busy");
  }
}

if (look) {
  const { message, user, model } = look.elements;
  const state = look.querySelector("[data-state]");
  const send = look.querySelector("button:not([type])");
  const suggested = look.querySelector("[data-try]");
  suggested.hidden = false;
  suggested.addEventListener("click", (event) => {
    if (event.target.tagName !== "BUTTON") return;
    message.value = event.target.value;
    look.requestSubmit();
  });
  message.addEventListener("keydown", (event) => {
    if (event.key !== "Enter" || event.shiftKey || event.isComposing) return;
    event.preventDefault();
    look.requestSubmit();
  });
  look.addEventListener("submit", async (event) => {
    event.preventDefault();
    if (send.disabled) return;
    const fields = { message: message.value, user: user.value, model: model.value };
    const turn = document.querySelector("[data-turn]").content.firstElementChild.cloneNode(true);
    turn.querySelector("[data-message]").textContent = fields.message;
    document.querySelector("[data-turns]").prepend(turn);
    send.disabled = true;
    message.value = "";
    message.focus();
    state.textContent = "Both are answering…";
    const sides = [...turn.querySelectorAll("[data-side]")];
    const whole = (await Promise.all(sides.map((side) => answered(side, fields)))).every(Boolean);
    state.textContent = whole ? "Both answers are there." : "Not every answer came: see below why.";
    send.disabled = false;
  });
}
