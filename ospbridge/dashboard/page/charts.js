// Returns of episodes, and how long steps take, as drawings that are laid out by their container's width.

import { drawn, element } from "./dom.js";
import { count, inWords, plural, value } from "./words.js";

const HEIGHT = 150;
const BOUNDS = [20e-6, 50e-6, 100e-6, 200e-6, 500e-6, 1e-3, 2e-3, 5e-3, 10e-3, 20e-3, 50e-3, 0.1, 0.2, 0.5, 1, 2, 5, 10];
const MARKED = new Set([100e-6, 1e-3, 10e-3, 0.1, 1, 10]);

function frame(container, label) {
  const width = Math.max(container.clientWidth, 160);
  const svg = drawn("svg", { viewBox: `0 0 ${width} ${HEIGHT}`, role: "img", "aria-label": label });
  container.replaceChildren(svg);
  return [svg, width];
}

const text = (x, y, said, more = {}) => drawn("text", { x, y, text: said, ...more });

const ago = (before) => (before ? `${count(before)} before the latest` : "the latest");

// The return of each episode, the newest to the right.
export function returns(container, history) {
  // Episodes without steps have no return, so that these have no numbers but those counted from the end.
  const episodes = (history?.returns ?? [])
    .map((each, at, all) => ({ each, steps: history.lengths[at], before: all.length - 1 - at }))
    .filter(({ each }) => each !== null);
  const known = episodes.map(({ each }) => each);
  if (!known.length) {
    container.replaceChildren(element("p", { class: "empty", text: "No episode has ended yet." }));
    return;
  }
  const latest = known[known.length - 1];
  const mean = known.reduce((sum, each) => sum + each, 0) / known.length;
  const [svg, width] = frame(
    container,
    `Returns of the latest ${count(known.length)} episodes: ${value(latest)} in the last one, ${value(mean)} on average`,
  );
  let least = Math.min(...known);
  let most = Math.max(...known);
  if (most - least < 1e-9) [least, most] = [least - 1, most + 1];
  const [left, right, top, bottom] = [56, width - 12, 12, HEIGHT - 24];
  const x = (at) => (known.length === 1 ? (left + right) / 2 : left + (at / (known.length - 1)) * (right - left));
  const y = (number) => bottom - ((number - least) / (most - least)) * (bottom - top);
  for (const number of [least, most]) {
    svg.append(
      drawn("line", { class: "axis", x1: left, x2: right, y1: y(number), y2: y(number) }),
      text(left - 8, y(number) + 4, value(number), { "text-anchor": "end" }),
    );
  }
  if (known.length > 2) {
    svg.append(drawn("line", { class: "mean", x1: left, x2: right, y1: y(mean), y2: y(mean) }));
    const clear = Math.min(y(mean) - top, bottom - y(mean)) > 14;
    if (clear) svg.append(text(left - 8, y(mean) + 4, value(mean), { class: "mean-text", "text-anchor": "end" }));
  }
  const points = known.map((each, at) => `${x(at).toFixed(1)},${y(each).toFixed(1)}`);
  svg.append(drawn("polyline", { class: "course", points: points.join(" ") }));
  const dots = drawn("g", { class: "ends" });
  episodes.forEach(({ each, steps, before }, at) => {
    const told = `${ago(before)}: ${value(each)}, ${plural(steps, "step")}`;
    dots.append(drawn("circle", { cx: x(at), cy: y(each), r: known.length > 40 ? 2 : 3 }, drawn("title", { text: told })));
  });
  svg.append(dots, text(left, HEIGHT - 6, ago(episodes[0].before)));
  if (known.length > 1) {
    svg.append(text(right, HEIGHT - 6, ago(episodes[known.length - 1].before), { "text-anchor": "end" }));
  }
}

// Steps of all simulators by how long they took. Returns what to say above it.
export function times(container, counts) {
  const all = counts.reduce((sum, each) => sum + each, 0);
  if (!all) {
    container.replaceChildren(element("p", { class: "empty", text: "No step has run yet." }));
    return "";
  }
  const within = (share) => {
    let sum = 0;
    const at = counts.findIndex((each) => (sum += each) >= share * all);
    return at < BOUNDS.length ? inWords(BOUNDS[at]) : "longer";
  };
  const said = `half within ${within(0.5)}, 99 % within ${within(0.99)}`;
  const [svg, width] = frame(container, `How long ${count(all)} steps took: ${said}`);
  const [left, right, top, bottom] = [2, width - 2, 8, HEIGHT - 24];
  const most = Math.max(...counts);
  const step = (right - left) / counts.length;
  const bars = drawn("g", { class: "bars" });
  counts.forEach((each, at) => {
    const height = each ? Math.max((each / most) * (bottom - top), 2) : 1;
    const range = at < BOUNDS.length ? `at most ${inWords(BOUNDS[at])}` : `longer than ${inWords(BOUNDS[at - 1])}`;
    bars.append(
      drawn(
        "rect",
        { class: each ? "some" : "none", x: left + at * step + 1, y: bottom - height, width: Math.max(step - 2, 1), height, rx: 1.5 },
        drawn("title", { text: `${range}: ${count(each)} steps` }),
      ),
    );
  });
  svg.append(bars);
  BOUNDS.forEach((bound, at) => {
    if (!MARKED.has(bound)) return;
    const x = left + (at + 1) * step;
    svg.append(drawn("line", { class: "axis", x1: x, x2: x, y1: bottom, y2: bottom + 4 }));
    svg.append(text(x, HEIGHT - 6, inWords(bound), { "text-anchor": "middle" }));
  });
  return said;
}
