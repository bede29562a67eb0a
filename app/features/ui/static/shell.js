// Parts that refresh themselves rest while nobody sees them, and while somebody is at work in them.
document.addEventListener("htmx:beforeRequest", (event) => {
  const part = event.target.closest("[data-live]");
  if (part && (document.hidden || part.contains(document.activeElement) || part.querySelector("details[open]"))) {
    event.preventDefault();
  }
});
document.addEventListener("htmx:afterRequest", (event) => {
  if (event.target.closest("[data-live]")) document.querySelector("[data-stale]").hidden = Boolean(event.detail.successful);
});
// Fields that are there to be copied get a button.
for (const field of document.querySelectorAll("input[data-copy]")) {
  const button = document.createElement("button");
  button.type = "button";
  button.textContent = "Copy";
  button.addEventListener("click", async () => {
    field.select();
    try {
      await navigator.clipboard.writeText(field.value);
      button.textContent = "Copied";
    } catch {
      button.textContent = "Press Ctrl+C";
    }
  });
  field.after(button);
}
