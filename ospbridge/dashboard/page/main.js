// The page: keeps what the daemon told, and shows it.

import { returns, times } from "./charts.js";
import { Curves, describeCanvas } from "./curves.js";
import { byId, element, keep, keepFacts, setAttribute, setText } from "./dom.js";
import { Topology, stateOf } from "./topology.js";
import { Stream } from "./stream.js";
import { bytes, count, duration, plural, rate, seconds, shortCount, timeOfDay, value } from "./words.js";

const KINDS = ["daemon", "simulator", "agent", "history", "upstream", "warning"];
const LINK = {
  connecting: ["wait", "connecting"],
  live: ["good", "live"],
  silent: ["bad", "no answer"],
  refused: ["bad", "refused: too many pages, or another token"],
};

const parts = Object.fromEntries(KINDS.map((kind) => [kind, new Map()]));
let chosen = null; // the key of the agent that is looked at
let due = false;
let drawn = {}; // what the charts show, so that they are drawn only for something new

const curves = new Curves();
const topology = new Topology((key) => choose(key === chosen ? null : key));
const stream = new Stream(told, linked);

// --- what comes ---------------------------------------------------------------------------------------------------

function told(kind, data) {
  if (kind === "fresh") {
    for (const known of Object.values(parts)) known.clear();
  } else if (kind === "changed") {
    for (const [of, key, part] of data) {
      if (part === null) parts[of]?.delete(key);
      else parts[of]?.set(key, part);
    }
    later();
  } else if (kind === "curves") {
    curves.describe(data);
    trouble("");
  } else if (kind === "points") {
    curves.add(data);
    later();
  } else if (kind === "lost") {
    trouble(data);
  } else if (kind === "now") {
    curves.now(data);
  }
}

function linked(word) {
  const [state, text] = LINK[word];
  setAttribute(byId("link"), "data-state", state);
  setText(byId("link-text"), text);
  document.body.classList.toggle("stale", word === "silent" || word === "refused");
}

function later() {
  if (due) return;
  due = true;
  setTimeout(() => {
    due = false;
    render();
  }, 60);
}

// --- which agent --------------------------------------------------------------------------------------------------

function choose(key) {
  chosen = key;
  const agent = parts.agent.get(key);
  const named = agent ? new URLSearchParams({ simulator: agent.simulator, agent: agent.name }).toString() : "";
  history.replaceState(null, "", named ? `#${named}` : location.pathname);
  look();
  if (agent && window.matchMedia("(max-width: 980px)").matches) byId("agent-panel").scrollIntoView();
}

// Looks at the agent that the address names, if it names one.
function look() {
  const said = remembered();
  curves.forget();
  trouble("");
  stream.open(said === null ? "" : `?${said.toString()}`);
  render();
}

// A page that is loaded again shows the agent that it showed before.
function remembered() {
  const said = new URLSearchParams(location.hash.slice(1));
  return said.has("agent") ? said : null;
}

function trouble(text) {
  byId("agent-note").dataset.trouble = text;
  setText(byId("agent-note"), text);
}

// --- what is shown ------------------------------------------------------------------------------------------------

function render() {
  const said = remembered();
  if (chosen === null && said !== null) {
    const found = [...parts.agent].find(
      ([, part]) => part.name === said.get("agent") && part.simulator === (said.get("simulator") ?? ""),
    );
    if (found) [chosen] = found;
  }
  const simulators = [...parts.simulator.values()];
  renderDaemon();
  renderFigures(simulators);
  topology.render(parts, chosen);
  renderAgent();
  renderTimes(simulators);
  renderRelay();
  renderWarnings();
}

function renderDaemon() {
  const [daemon] = parts.daemon.values();
  if (!daemon) return;
  const up = duration(Date.now() / 1000 - daemon.began);
  setText(byId("daemon"), `${daemon.version} · pid ${daemon.pid} · up ${up}`);
  const down = [...parts.simulator.values()].some((part) => !part.ready)
    || [...parts.upstream.values()].some((part) => part.status.trouble);
  document.title = `${down ? "▲ " : ""}ospbridge`;
}

function renderFigures(simulators) {
  const sum = (of) => simulators.reduce((total, part) => total + of(part), 0);
  setText(byId("figure-rate"), rate(sum((part) => part.rate)));
  const timed = simulators.map((part) => part.step_seconds).filter((each) => each !== null);
  const [number, unit] = seconds(timed.length ? Math.max(...timed) : null);
  const time = byId("figure-time");
  if (time.dataset.shown !== number + unit) {
    time.dataset.shown = number + unit;
    time.replaceChildren(number, element("span", { class: "unit", text: unit }));
  }
  setText(byId("figure-steps"), shortCount(sum((part) => part.steps)));
  setText(byId("figure-episodes"), shortCount([...parts.agent.values()].reduce((all, part) => all + part.episodes, 0)));
  setText(byId("figure-rebuilds"), shortCount(sum((part) => part.rebuilds)));
  const reasons = simulators.flatMap((part) => Object.entries(part.reasons)).map(([name, number]) => `${name}: ${number}`);
  setAttribute(byId("figure-rebuilds"), "title", reasons.join(", "));
  setText(byId("figure-retries"), shortCount(sum((part) => part.retries)));
}

function renderAgent() {
  const agent = parts.agent.get(chosen);
  byId("main").classList.toggle("none-chosen", !agent);
  byId("agent-empty").hidden = Boolean(agent);
  byId("agent-body").hidden = !agent;
  setText(byId("agent-title"), agent ? agent.name : "Agent");
  if (!agent) {
    const gone = chosen !== null && parts.simulator.size > 0;
    setText(byId("agent-empty"), gone ? "This agent is not there at present." : "Choose an agent above to see what it senses and does, live.");
    return;
  }
  const past = parts.history.get(chosen);
  const known = past?.returns ?? [];
  keepFacts(byId("agent-facts"), [
    ["State", agent.state],
    ["Driven by", agent.driver || "nobody"],
    ["Step", count(agent.steps)],
    ["Episodes", count(agent.episodes)],
    ["Last return", value(known[known.length - 1])],
  ]);
  setAttribute(byId("agent-facts"), "data-state", stateOf(agent));
  if (!byId("agent-note").dataset.trouble) {
    const idle = agent.state !== "playing";
    setText(byId("agent-note"), idle ? "moments come while it plays" : "the last 20 seconds");
  }
  anew("returns", past, () => returns(byId("returns"), past));
  describeCanvas(curves);
}

function renderTimes(simulators) {
  const counts = simulators.reduce((sum, part) => part.counts.map((each, at) => each + (sum[at] ?? 0)), []);
  anew("times", counts.join(), () => setText(byId("times-note"), times(byId("times"), counts)));
}

function anew(name, what, draw) {
  const width = byId(name).clientWidth;
  if (drawn[name]?.what === what && drawn[name].width === width) return;
  drawn[name] = { what, width };
  draw();
}

function renderRelay() {
  const list = byId("relay");
  if (!parts.upstream.size) {
    keep(list, [0], () => "none", () => element("p", { class: "empty", text: "No upstream. With --rllink HOST:PORT, an RLlink server learns from the agents." }), () => {});
    return;
  }
  keep(list, [...parts.upstream], ([key]) => key, upstreamNode, (node, [, { simulators, status }]) => {
    const state = node.querySelector(".state");
    setText(node.querySelector(".name"), status.address);
    setAttribute(state, "data-state", status.trouble ? "bad" : "good");
    setText(state.lastElementChild, status.trouble ? "not connected" : "connected");
    node.querySelector(".why").hidden = !status.trouble;
    setText(node.querySelector(".why"), status.trouble);
    keepFacts(node.querySelector("dl"), upstreamFacts(simulators, status));
  });
}

function upstreamNode() {
  return element(
    "article",
    { class: "upstream" },
    element(
      "header",
      {},
      element("span", { class: "name" }),
      element("span", { class: "state" }, element("span", { class: "dot", "aria-hidden": "true" }), element("span")),
    ),
    element("p", { class: "why" }),
    element("dl"),
  );
}

function upstreamFacts(simulators, status) {
  const facts = [["Mode", status.dialect ? `${status.mode}, ${status.dialect}` : status.mode]];
  if (parts.simulator.size > 1) facts.push(["Simulators", simulators.join(", ")]);
  if (status.mode === "drive") {
    facts.push(
      ["Weights", status.weights_seq_no === null ? "none yet" : `number ${count(status.weights_seq_no)}`],
      ["Batches learned from", count(status.batches)],
      ["Steps learned from", count(status.steps)],
    );
  } else {
    facts.push(["Steps delivered", count(status.delivered)]);
  }
  facts.push(["Steps discarded", count(status.discarded)]);
  const { spool } = status;
  if (spool) {
    const waiting = spool.entries + spool.unwritten;
    facts.push(["In the spool", waiting ? `${plural(waiting, "episode")}, ${bytes(spool.bytes)}` : "nothing"]);
    if (spool.dropped) facts.push(["Dropped from it", count(spool.dropped)]);
    if (spool.trouble) facts.push(["Trouble with it", spool.trouble]);
  }
  return facts;
}

// Warnings that say the same one after the other stand there once.
function renderWarnings() {
  const shown = [];
  for (const warning of [...parts.warning.values()].sort((one, other) => one.number - other.number)) {
    const said = JSON.stringify([warning.level, warning.event, warning.fields]);
    const last = shown[shown.length - 1];
    if (last?.said === said) Object.assign(last, { warning, times: last.times + 1 });
    else shown.push({ said, warning, times: 1, key: String(warning.number) });
  }
  shown.reverse();
  byId("warnings-empty").hidden = shown.length > 0;
  // Who has no mouse scrolls a list that has the focus.
  byId("warnings").tabIndex = shown.length ? 0 : -1;
  setText(byId("warnings-note"), shown.length ? `the latest ${count(parts.warning.size)}` : "");
  keep(byId("warnings"), shown, ({ key }) => key, ({ warning }) => warningNode(warning), (node, { warning, times: number }) => {
    setText(node.querySelector("time"), timeOfDay(warning.time));
    setText(node.querySelector(".times"), number > 1 ? `× ${count(number)}` : "");
  });
}

function warningNode(warning) {
  const fields = element("span", { class: "fields" });
  for (const [name, said] of warning.fields) {
    if (name !== "logger_name" && said) fields.append(`${name} `, element("b", { text: said }));
  }
  return element(
    "li",
    {},
    element("time", { datetime: warning.time }),
    element("span", { class: `level ${warning.level}`, text: warning.level }),
    element("span", { class: "event", text: warning.event }, element("span", { class: "times" })),
    fields,
  );
}

// --- beginning ----------------------------------------------------------------------------------------------------

look();
window.addEventListener("resize", later);
window.addEventListener("hashchange", () => {
  chosen = null;
  look();
});
// The address keeps the agent: to skip there is not to go elsewhere.
byId("skip").addEventListener("click", (event) => {
  event.preventDefault();
  byId("agent-panel").focus();
});
setInterval(render, 5000);
