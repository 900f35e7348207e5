// Who is connected: simulators, their agents, who drives these, and who learns from them.

import { byId, drawn, element, keep, setAttribute, setText } from "./dom.js";
import { count, plural, rate } from "./words.js";

const MANY = 30; // agents, from which on they stand closer and without wires
const SPARK = { width: 62, height: 24 };
const STATES = { playing: "good", done: "wait", "waiting for reset": "wait" };

export const stateOf = (agent) => STATES[agent.state] ?? "idle";

function node(tag, attributes = {}) {
  return element(
    tag,
    { class: "node", ...attributes },
    element("span", { class: "dot", "aria-hidden": "true" }),
    element("span", { class: "name" }),
    element("span", { class: "told" }),
  );
}

function show(node, state, name, told) {
  setAttribute(node, "data-state", state);
  setText(node.querySelector(".name"), name);
  setAttribute(node.querySelector(".name"), "title", name);
  setText(node.querySelector(".told"), told);
  setAttribute(node.querySelector(".told"), "title", told);
}

const inItem = (made) => element("li", {}, made);

// A simulator that the daemon started itself.
function launched({ pid, restarts }) {
  const state = pid === null ? "does not run" : `pid ${pid}`;
  return restarts ? `${state}, ${plural(restarts, "restart")}` : state;
}

function empty(list, text) {
  keep(list, [text], (said) => said, (said) => element("li", { class: "node none", text: said }), () => {});
}

export class Topology {
  // `choose(key)` is called when somebody wants to look at an agent.
  constructor(choose) {
    this.choose = choose;
    this.wires = [];
    new ResizeObserver(() => this.wire()).observe(byId("map"));
  }

  render(parts, chosen) {
    this.chosen = chosen;
    const simulators = [...parts.simulator.entries()];
    const agents = [...parts.agent.entries()];
    const upstreams = [...parts.upstream.entries()];
    this.simulators(simulators);
    this.agents(agents, parts.history, chosen, simulators.length > 1);
    const drivers = this.drivers(agents);
    this.upstreams(upstreams);
    this.wires = agents.length > MANY ? [] : wires(simulators, agents, drivers, upstreams);
    this.wire();
    const down = simulators.filter(([, part]) => !part.ready).length
      + upstreams.filter(([, part]) => part.status.trouble).length;
    setText(byId("map-note"), down ? `${down} not connected` : "");
    setText(byId("agent-count"), agents.length > 3 ? `${agents.length}` : "");
  }

  simulators(entries) {
    keep(byId("simulators"), entries, ([key]) => `s:${key}`, () => inItem(node("div")), (item, [, part]) => {
      const told = part.ready
        ? `${part.profile ? `${part.profile} · ` : ""}${rate(part.rate)} steps/s`
        : part.connection;
      const made = item.firstElementChild;
      show(made, part.ready ? "good" : "bad", part.title, part.launched ? `${told} · ${launched(part.launched)}` : told);
      setAttribute(made, "title", part.launched ? `${part.launched.program}, its output: ${part.launched.log}` : "");
    });
    if (!entries.length) empty(byId("simulators"), "None yet");
  }

  agents(entries, histories, chosen, several) {
    const list = byId("agents");
    list.classList.toggle("many", entries.length > MANY);
    keep(
      list,
      entries,
      ([key]) => `a:${key}`,
      ([key]) => {
        const button = node("button", { type: "button" });
        button.append(drawn("svg", { viewBox: `0 0 ${SPARK.width} ${SPARK.height}`, "aria-hidden": "true" }));
        button.addEventListener("click", () => this.choose(key));
        return inItem(button);
      },
      (item, [key, part]) => {
        const button = item.firstElementChild;
        const told = part.state === "free" ? "free" : `${part.state} · step ${count(part.steps)}`;
        show(button, stateOf(part), several ? `${part.name} · ${part.simulator}` : part.name, told);
        setAttribute(button, "aria-pressed", String(key === chosen));
        spark(button.querySelector("svg"), histories.get(key)?.returns ?? []);
      },
    );
    if (!entries.length) empty(list, "No agents: the simulator is not joined");
  }

  drivers(agents) {
    const drivers = new Map();
    for (const [key, part] of agents) {
      if (!part.driver || part.driver.startsWith("relay ")) continue;
      if (!drivers.has(part.driver)) drivers.set(part.driver, { agents: [], states: new Set() });
      drivers.get(part.driver).agents.push(key);
      drivers.get(part.driver).states.add(stateOf(part));
    }
    const list = byId("drivers");
    keep(list, [...drivers], ([name]) => `d:${name}`, () => inItem(node("div")), (item, [name, driver]) => {
      const state = ["good", "wait", "idle"].find((each) => driver.states.has(each));
      show(item.firstElementChild, state, name, `drives ${plural(driver.agents.length, "agent")}`);
    });
    if (!drivers.size) empty(list, "No environment is attached");
    return drivers;
  }

  upstreams(entries) {
    const list = byId("upstreams");
    keep(list, entries, ([key]) => `u:${key}`, () => inItem(node("div")), (item, [, { status }]) => {
      const told = status.trouble || `${status.mode === "drive" ? "drives" : "observes"} · connected`;
      show(item.firstElementChild, status.trouble ? "bad" : "good", status.address, told);
    });
    if (!entries.length) empty(list, "No upstream");
  }

  // Draws the wires anew, between the nodes where they stand now.
  wire() {
    const map = byId("map");
    const frame = map.getBoundingClientRect();
    const places = new Map();
    for (const item of map.querySelectorAll("li[data-key]")) places.set(item.dataset.key, item.getBoundingClientRect());
    const lines = this.wires.filter(({ from, to }) => places.has(from) && places.has(to));
    keep(byId("wires"), lines, ({ from, to }) => `${from} ${to}`, () => drawn("path"), (path, line) => {
      const from = places.get(line.from);
      const to = places.get(line.to);
      const [x, y] = [from.right - frame.left, from.top + from.height / 2 - frame.top];
      const [u, v] = [to.left - frame.left, to.top + to.height / 2 - frame.top];
      const bend = (u - x) / 2;
      setAttribute(path, "d", `M${x} ${y}C${x + bend} ${y} ${u - bend} ${v} ${u} ${v}`);
      setAttribute(path, "data-state", line.state);
      if (line.to === `a:${this.chosen}` || line.from === `a:${this.chosen}`) setAttribute(path, "data-chosen", "");
      else path.removeAttribute("data-chosen");
    });
  }
}

function wires(simulators, agents, drivers, upstreams) {
  const found = [];
  const ready = new Map(simulators.map(([key, part]) => [key, part.ready]));
  for (const [key, part] of agents) {
    found.push({ from: `s:${part.simulator}`, to: `a:${key}`, state: ready.get(part.simulator) ? "good" : "bad" });
  }
  for (const [name, driver] of drivers) {
    for (const key of driver.agents) found.push({ from: `a:${key}`, to: `d:${name}`, state: "good" });
  }
  for (const [upstream, { status }] of upstreams) {
    for (const [key, part] of agents) {
      if (!part.driver.startsWith(`relay ${status.mode} ${status.address} `)) continue;
      found.push({ from: `a:${key}`, to: `u:${upstream}`, state: status.trouble ? "bad" : "good" });
    }
  }
  return found;
}

// The latest returns as a line without a scale: whether they rise is all it says.
function spark(svg, returns) {
  const known = returns.filter((each) => each !== null);
  const least = Math.min(...known);
  const range = Math.max(...known) - least || 1;
  const points = known.map((each, at) => {
    const x = 2 + (at / Math.max(known.length - 1, 1)) * (SPARK.width - 4);
    return `${x.toFixed(1)},${(SPARK.height - 3 - ((each - least) / range) * (SPARK.height - 6)).toFixed(1)}`;
  });
  const line = svg.firstElementChild ?? svg.appendChild(drawn("polyline"));
  setAttribute(line, "points", known.length > 1 ? points.join(" ") : "");
}
