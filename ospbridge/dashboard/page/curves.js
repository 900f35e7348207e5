// Live curves of one agent: each sensor, action and info as a small chart of the last seconds.

import { byId, element, keep, setAttribute, setText } from "./dom.js";
import { value } from "./words.js";

const WINDOW = 20; // seconds
const MOST = 4000; // points
const STILL = 1; // seconds between two drawings of what does not move, such as after a change of the window's size
const HEIGHT = 42;
const CALM = window.matchMedia("(prefers-reduced-motion: reduce)");

// Where a group's numbers stand in a point.
const PLACE = { observation: 5, inputs: 6, infos: 7 };
const REWARD = 4;

export class Curves {
  constructor() {
    this.colours = null;
    this.forget();
    window.addEventListener("themechange", () => {
      this.colours = null;
      this.draw(true);
    });
    const tick = () => {
      if (!document.hidden) this.draw(false);
      setTimeout(tick, CALM.matches ? 500 : 80);
    };
    tick();
  }

  forget() {
    this.points = [];
    this.curves = [];
    this.clock = null;
    this.drawnAt = 0;
    for (const group of ["sensors", "actions", "infos"]) byId(group).replaceChildren();
  }

  // What the numbers are, anew: of another agent, or of the same one after it was away.
  describe(said) {
    this.forget();
    const [sensors, actions, infos] = said.more;
    const reward = { name: "reward", least: null, most: null, place: REWARD, at: null };
    const group = (name, place) => said[name].map(([text, least, most], at) => ({ name: text, least, most, place, at }));
    this.lay("sensors", group("observation", PLACE.observation), sensors);
    this.lay("actions", group("inputs", PLACE.inputs), actions);
    this.lay("infos", [reward, ...group("infos", PLACE.infos)], infos);
  }

  lay(id, curves, more) {
    keep(byId(id), curves, (curve) => `${curve.place}:${curve.at}`, (curve) => {
      const canvas = element("canvas", { role: "img", "aria-label": `${curve.name} over the last ${WINDOW} seconds` });
      const shown = element("span", { class: "value", text: "–" });
      const name = element("span", { class: "name", title: curve.name }, element("bdi", { text: curve.name }));
      Object.assign(curve, { canvas, shown });
      this.curves.push(curve);
      return element("li", { class: "trace" }, name, shown, canvas);
    }, () => {});
    setText(byId(`${id}-note`), more ? `the first ${curves.length}, and ${more} more` : "");
  }

  now(time) {
    this.clock = { server: time, here: performance.now() / 1000 };
  }

  add(points) {
    this.points.push(...points);
    const oldest = this.points[this.points.length - 1][0] - WINDOW - 2;
    let gone = Math.max(0, this.points.length - MOST);
    while (gone < this.points.length && this.points[gone][0] < oldest) gone += 1;
    this.points.splice(0, gone);
  }

  get latest() {
    return this.points[this.points.length - 1] ?? null;
  }

  draw(anew) {
    if (!this.curves.length || this.clock === null) return;
    this.colours ??= colours();
    const here = performance.now() / 1000;
    const end = this.clock.server + (here - this.clock.here) - 0.25;
    // What has stood still for longer than the window has left it: its last number stays, and there is nothing to move.
    const left = (this.latest?.[0] ?? -Infinity) < end - WINDOW;
    if (!anew && left && here - this.drawnAt < STILL) return;
    if (left) this.points.splice(0, this.points.length - 1);
    this.drawnAt = here;
    for (const curve of this.curves) this.drawOne(curve, end);
  }

  drawOne(curve, end) {
    const { canvas } = curve;
    const scale = window.devicePixelRatio || 1;
    const width = canvas.clientWidth;
    if (!width) return;
    if (canvas.width !== Math.round(width * scale) || canvas.height !== Math.round(HEIGHT * scale)) {
      canvas.width = Math.round(width * scale);
      canvas.height = Math.round(HEIGHT * scale);
    }
    const pen = canvas.getContext("2d");
    pen.setTransform(scale, 0, 0, scale, 0, 0);
    pen.clearRect(0, 0, width, HEIGHT);
    const numbers = this.points.map((point) => (curve.at === null ? point[curve.place] : point[curve.place][curve.at]));
    const last = numbers.findLast((number) => number !== null && number !== undefined);
    setText(curve.shown, value(last));
    const [least, most] = range(curve, numbers);
    const x = (time) => width - ((end - time) / WINDOW) * width;
    const y = (number) => HEIGHT - 4 - ((number - least) / (most - least)) * (HEIGHT - 8);
    if (least < 0 && most > 0) line(pen, this.colours.line, [[0, y(0)], [width, y(0)]]);
    this.episodes(pen, x);
    pen.strokeStyle = curve.place === PLACE.inputs ? this.colours.second : this.colours.accent;
    pen.lineJoin = "round";
    pen.beginPath();
    let before = null;
    let travelled = 0;
    this.points.forEach((point, at) => {
      const number = numbers[at];
      if (number === null || number === undefined) return;
      const height = y(number);
      if (before === null) pen.moveTo(x(point[0]), height);
      else pen.lineTo(x(point[0]), height);
      travelled += before === null ? 0 : Math.abs(height - before);
      before = height;
    });
    // What goes up and down faster than there are pixels is a shade rather than a block.
    const block = travelled > 25 * width;
    pen.globalAlpha = block ? 0.55 : 1;
    pen.lineWidth = block ? 0.8 : 1.4;
    pen.stroke();
    pen.globalAlpha = 1;
  }

  // A hairline where an episode began.
  episodes(pen, x) {
    for (let at = 1; at < this.points.length; at += 1) {
      if (this.points[at][2] === this.points[at - 1][2]) continue;
      const place = Math.round(x(this.points[at][0])) + 0.5;
      line(pen, this.colours.firm, [[place, 0], [place, HEIGHT]], [2, 3]);
    }
  }
}

function line(pen, colour, [[x, y], [u, v]], dash = []) {
  pen.save();
  pen.setLineDash(dash);
  pen.lineWidth = 1;
  pen.strokeStyle = colour;
  pen.beginPath();
  pen.moveTo(x, Math.round(y) + 0.5);
  pen.lineTo(u, Math.round(v) + 0.5);
  pen.stroke();
  pen.restore();
}

// What is announced, widened by what is really there; without an announcement, what is there.
function range(curve, numbers) {
  let least = curve.least ?? Infinity;
  let most = curve.most ?? -Infinity;
  const announced = Number.isFinite(least) && Number.isFinite(most) && most - least < 1e4;
  if (!announced) [least, most] = [Infinity, -Infinity];
  for (const number of numbers) {
    if (number === null || number === undefined) continue;
    if (number < least) least = number;
    if (number > most) most = number;
  }
  if (!Number.isFinite(least)) return [-1, 1];
  if (most - least < 1e-9) return [least - 0.5, most + 0.5];
  return [least, most];
}

function colours() {
  const style = getComputedStyle(document.documentElement);
  const read = (name) => style.getPropertyValue(name).trim();
  return { accent: read("--accent"), second: read("--second"), line: read("--line"), firm: read("--firm") };
}

export function describeCanvas(curves) {
  // Whoever cannot see a curve hears the number it stands at, when asking for it.
  for (const curve of curves.curves) {
    setAttribute(curve.canvas, "aria-label", `${curve.name}, now ${curve.shown.textContent}`);
  }
}
