// What the pages do beyond links and forms; each works without it.
"use strict";

// --- copying: a <pre data-copy> gets a button ---------------------------------------------------------------------------
for (const pre of document.querySelectorAll("pre[data-copy]")) {
  if (!navigator.clipboard) break;
  const button = document.createElement("button");
  button.type = "button";
  button.className = "c-copy quiet";
  button.textContent = "Copy";
  button.addEventListener("click", async () => {
    try {
      await navigator.clipboard.writeText(pre.textContent);
      button.textContent = "Copied";
    } catch {
      button.textContent = "Not allowed";
    }
    setTimeout(() => (button.textContent = "Copy"), 1500);
  });
  pre.before(button);
}

// --- an anchor inside a folded part, or one that a link leads to, unfolds it ----------------------------------------------
function unfold() {
  let at = location.hash.length > 1 && document.getElementById(decodeURIComponent(location.hash.slice(1)));
  for (; at; at = at.parentElement) if (at.tagName === "DETAILS") at.open = true;
}
addEventListener("hashchange", unfold);
unfold();

// --- a stream, played as it came ------------------------------------------------------------------------------------------
class Player {
  constructor(root) {
    const one = (name) => root.querySelector(`[data-${name}]`);
    this.begin = Number(root.dataset.begin);
    this.end = Math.max(Number(root.dataset.end), this.begin + 1);
    this.pieces = [...root.querySelectorAll("[data-t]")];
    this.times = this.pieces.map((each) => Number(each.dataset.t));
    this.said = one("said");
    this.head = one("playhead");
    this.button = one("play");
    this.seek = one("seek");
    this.clock = one("clock");
    this.speed = one("speed");
    this.calm = matchMedia("(prefers-reduced-motion: reduce)");
    this.at = this.end;
    this.shown = this.pieces.length;
    this.running = null;
    this.button.addEventListener("click", () => (this.running === null ? this.play() : this.pause()));
    one("restart").addEventListener("click", () => (this.show(this.begin), this.play()));
    this.seek.addEventListener("input", () => {
      this.pause();
      this.show(this.begin + ((this.end - this.begin) * this.seek.value) / 1000);
    });
    one("controls").hidden = false;
    this.head.setAttribute("visibility", "visible");
    this.show(this.end);
  }

  play() {
    if (this.at >= this.end) this.show(this.begin);
    this.pause();
    this.button.textContent = "Pause";
    let last = performance.now();
    const step = (now) => {
      const at = Math.min(this.end, this.at + (now - last) * 1000 * Number(this.speed.value));
      last = now;
      this.show(at);
      if (at >= this.end) this.pause();
      else this.running = requestAnimationFrame(step);
    };
    this.running = requestAnimationFrame(step);
  }

  pause() {
    if (this.running !== null) cancelAnimationFrame(this.running);
    this.running = null;
    this.button.textContent = "Play";
  }

  show(at) {
    this.at = at;
    const before = this.shown;
    let shown = at >= this.end ? this.pieces.length : before;
    while (shown > 0 && this.times[shown - 1] > at) shown--;
    while (shown < this.pieces.length && this.times[shown] <= at) shown++;
    for (let n = Math.min(before, shown); n < Math.max(before, shown); n++) this.pieces[n].hidden = n >= shown;
    this.shown = shown;
    if (this.running !== null && shown !== before) this.said.scrollTop = this.said.scrollHeight;
    // With reduced motion nothing glides: the line moves where something has come.
    if (this.calm.matches && this.running !== null && shown === before && at < this.end) return;
    const share = (at - this.begin) / (this.end - this.begin);
    const left = Number(this.head.dataset.left);
    const x = left + (Number(this.head.dataset.right) - left) * share;
    this.head.setAttribute("x1", x);
    this.head.setAttribute("x2", x);
    this.seek.value = Math.round(share * 1000);
    const seconds = (at / 1e6).toFixed(2);
    this.seek.setAttribute("aria-valuetext", `${seconds} seconds`);
    this.clock.textContent = `${seconds} s of ${(this.end / 1e6).toFixed(2)} s`;
  }
}
for (const root of document.querySelectorAll("[data-player]")) new Player(root);
