// The daemon's events. A stream that breaks is opened again, and says everything anew.

const SILENCE = 2500; // milliseconds after which whoever should speak every second is gone
const AGAIN = 2000;

export class Stream {
  // `told(kind, data)` is called for each event, `state(word)` with live, connecting, silent or refused.
  constructor(told, state) {
    this.told = told;
    this.state = state;
    this.source = null;
    this.query = "";
    this.heard = performance.now();
    this.timer = 0;
    this.refused = false;
    setInterval(() => this.check(), 500);
  }

  open(query) {
    this.query = query;
    this.close();
    const source = new EventSource(`/events${query}`);
    this.source = source;
    source.onopen = () => {
      if (source !== this.source) return;
      this.refused = false;
      this.heard = performance.now();
      this.told("fresh", null);
    };
    source.onerror = async () => {
      if (source !== this.source) return;
      // What a browser takes for final may be otherwise the next time.
      const final = source.readyState === EventSource.CLOSED;
      if (final) this.timer = setTimeout(() => this.open(this.query), AGAIN);
      const refused = final && (await answers());
      if (source !== this.source) return;
      this.refused = refused;
      this.state(this.standing());
    };
    for (const kind of ["changed", "curves", "points", "lost", "now"]) {
      source.addEventListener(kind, (event) => {
        if (source !== this.source) return;
        this.heard = performance.now();
        if (kind === "now") this.state("live");
        this.told(kind, JSON.parse(event.data));
      });
    }
    source.addEventListener("end", () => {
      if (source !== this.source) return;
      this.close();
      this.state("connecting");
      this.timer = setTimeout(() => this.open(this.query), AGAIN);
    });
  }

  close() {
    clearTimeout(this.timer);
    if (this.source !== null) this.source.close();
    this.source = null;
  }

  check() {
    if (this.standing() !== "connecting") this.state(this.standing());
  }

  // How a stream stands that says nothing.
  standing() {
    if (this.refused) return "refused";
    return performance.now() - this.heard > SILENCE ? "silent" : "connecting";
  }
}

// Whether there is a daemon, and not a proxy alone.
async function answers() {
  try {
    return (await fetch("/", { method: "HEAD" })).status < 500;
  } catch {
    return false;
  }
}
