"use strict";
// Everything can be read without this script: it adds quick tooltips, legends that hide parts, and the theme.

// --- light and dark ---------------------------------------------------------------------------------------
{
  const button = document.getElementById("theme"), root = document.documentElement;
  const dark = matchMedia("(prefers-color-scheme: dark)");
  const current = () => root.dataset.theme || (dark.matches ? "dark" : "light");
  const name = () => { button.textContent = current() === "dark" ? "Light" : "Dark"; };
  button.setAttribute("aria-label", "Switch between light and dark");
  button.hidden = false;
  button.onclick = () => { root.dataset.theme = current() === "dark" ? "light" : "dark"; name(); };
  dark.addEventListener("change", name);
  name();
}

// --- charts -----------------------------------------------------------------------------------------------
// Tooltips are the <title>s of points. They are shown at once, to a pointer, a finger and the arrow keys.
function chart(figure) {
  const plot = figure.querySelector(".plot"), svg = plot.querySelector("svg"), tip = plot.querySelector(".tip");
  const keys = [...figure.querySelectorAll(".key")], off = new Set();
  const marks = [...svg.querySelectorAll("title")].map((title) => {
    const mark = { element: title.parentNode, text: title.textContent };
    title.remove();
    return mark;
  });
  let at = -1;

  const visible = (mark) => !mark.element.closest("[data-off]");

  function show(index) {
    if (at >= 0) marks[at].element.classList.remove("at");
    at = index;
    tip.textContent = at < 0 ? "" : marks[at].text;
    if (at < 0) return;
    marks[at].element.classList.add("at");
    const frame = plot.getBoundingClientRect(), [x, y] = place(marks[at]);
    const left = x - frame.left, top = y - frame.top, above = top > tip.offsetHeight + 14;
    tip.style.left = `${Math.max(0, Math.min(left - tip.offsetWidth / 2, frame.width - tip.offsetWidth))}px`;
    tip.style.top = `${above ? top - tip.offsetHeight - 12 : top + 14}px`;
  }

  function place(mark) {
    const box = mark.element.getBoundingClientRect();
    return [box.left + box.width / 2, box.top + box.height / 2];
  }

  function point(event) {
    let best = -1, nearest = 24 ** 2;
    marks.forEach((mark, index) => {
      const [x, y] = place(mark), distance = (x - event.clientX) ** 2 + (y - event.clientY) ** 2;
      if (distance < nearest && visible(mark)) [best, nearest] = [index, distance];
    });
    if (best !== at) show(best);
  }

  function walk(event) {
    const step = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1, Home: -1e9, End: 1e9 }[event.key];
    if (event.key === "Escape") return show(-1);
    const shown = marks.map((mark, index) => index).filter((index) => visible(marks[index]));
    if (!step || !shown.length) return;
    const next = (at < 0 ? (step < 0 ? shown.length : -1) : shown.indexOf(at)) + step;
    show(shown[Math.max(0, Math.min(shown.length - 1, next))]);
    event.preventDefault();
  }

  function redraw() {
    for (const part of svg.querySelectorAll("[data-group]")) {
      part.toggleAttribute("data-off", part.dataset.group.split(" ").some((group) => off.has(group)));
    }
    for (const key of keys) key.setAttribute("aria-pressed", !off.has(key.dataset.group));
    show(-1);
  }

  function toggle(group) {
    if (!off.delete(group)) off.add(group);
    redraw();
  }

  // a double click is two clicks first, which leave the key as it was
  function alone(key) {
    const rivals = keys.filter((other) => other.className === key.className).map((other) => other.dataset.group);
    const others = rivals.filter((group) => group !== key.dataset.group);
    const already = others.every((group) => off.has(group)) && !off.has(key.dataset.group);
    rivals.forEach((group) => off.delete(group));
    if (!already) others.forEach((group) => off.add(group));
    redraw();
  }

  plot.addEventListener("pointermove", point);
  plot.addEventListener("pointerdown", point);
  plot.addEventListener("pointerleave", () => show(-1));
  plot.addEventListener("keydown", walk);
  plot.addEventListener("blur", () => show(-1));
  for (const key of keys) {
    key.title = "Click: show or hide. Double click: this one alone.";
    key.onclick = () => toggle(key.dataset.group);
    key.ondblclick = () => alone(key);
  }
}
document.querySelectorAll("figure.chart").forEach(chart);

// --- long tables and paper --------------------------------------------------------------------------------
for (const button of document.querySelectorAll(".unfold")) {
  const more = button.previousElementSibling.querySelector(".more"), words = button.textContent;
  button.onclick = () => {
    more.hidden = !more.hidden;
    button.setAttribute("aria-expanded", !more.hidden);
    button.textContent = more.hidden ? words : "Show fewer rows";
  };
  button.hidden = false;
  button.click();
}
// a table that is wider than the screen can be moved by the arrow keys once it has the focus
function reach() {
  for (const table of document.querySelectorAll(".table")) {
    if (table.scrollWidth > table.clientWidth) table.tabIndex = 0; else table.removeAttribute("tabindex");
  }
}
addEventListener("resize", reach);
document.addEventListener("toggle", reach, true);
reach();
addEventListener("beforeprint", () => document.querySelectorAll("details").forEach((d) => { d.open = true; }));
