"use strict";
// Everything can be read without this: it adds what a pointer or the arrow keys find, legends and the theme.

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
function chart(figure) {
  const plot = figure.querySelector(".plot"), svg = plot.querySelector("svg"), tip = plot.querySelector(".tip");
  const data = figure.querySelector(".spots"), keys = [...figure.querySelectorAll(".key")];
  const spots = data ? JSON.parse(data.textContent).map(([x, y, text, groups]) => ({ x, y, text, groups })) : [];
  const ring = svg.appendChild(document.createElementNS("http://www.w3.org/2000/svg", "circle"));
  const off = new Set();
  let at = -1;
  ring.setAttribute("class", "ring");
  ring.setAttribute("r", 6);
  ring.toggleAttribute("data-off", true);

  const seen = (spot) => !spot.groups.some((group) => off.has(group));

  function hide() {
    at = -1;
    tip.textContent = "";
    ring.toggleAttribute("data-off", true);
  }

  function show(index) {
    const spot = spots[index], size = svg.getBoundingClientRect(), unit = size.width / svg.viewBox.baseVal.width;
    at = index;
    ring.setAttribute("cx", spot.x);
    ring.setAttribute("cy", spot.y);
    ring.toggleAttribute("data-off", false);
    tip.textContent = spot.text;
    const x = spot.x * unit, y = spot.y * unit, above = y > tip.offsetHeight + 14;
    tip.style.left = `${Math.max(0, Math.min(x - tip.offsetWidth / 2, size.width - tip.offsetWidth))}px`;
    tip.style.top = `${above ? y - tip.offsetHeight - 12 : y + 14}px`;
  }

  function point(event) {
    const size = svg.getBoundingClientRect(), unit = size.width / svg.viewBox.baseVal.width;
    const x = (event.clientX - size.left) / unit, y = (event.clientY - size.top) / unit;
    let best = -1, nearest = 24 ** 2;
    spots.forEach((spot, index) => {
      const distance = (spot.x - x) ** 2 + (spot.y - y) ** 2;
      if (distance < nearest && seen(spot)) [best, nearest] = [index, distance];
    });
    if (best < 0) hide(); else if (best !== at) show(best);
  }

  function walk(event) {
    const steps = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 };
    const shown = spots.map((spot, index) => index).filter((index) => seen(spots[index]));
    if (event.key === "Escape") return hide();
    if (!shown.length) return;
    if (event.key === "Home") show(shown[0]);
    else if (event.key === "End") show(shown[shown.length - 1]);
    else if (event.key in steps) {
      const place = shown.indexOf(at), step = steps[event.key];
      const next = place < 0 ? (step > 0 ? 0 : shown.length - 1) : place + step;
      show(shown[Math.max(0, Math.min(shown.length - 1, next))]);
    } else return;
    event.preventDefault();
  }

  function redraw() {
    for (const mark of svg.querySelectorAll("[data-group]")) {
      mark.toggleAttribute("data-off", mark.dataset.group.split(" ").some((group) => off.has(group)));
    }
    for (const key of keys) key.setAttribute("aria-pressed", !off.has(key.dataset.group));
    hide();
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

  if (spots.length) {
    plot.addEventListener("pointermove", point);
    plot.addEventListener("pointerdown", point);
    plot.addEventListener("pointerleave", hide);
    plot.addEventListener("keydown", walk);
    plot.addEventListener("blur", hide);
  }
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
