// The daemon's events. A stream that breaks is opened again, and says everything anew.

const SILENCE = 2500; // milliseconds after which whoever should speak every second is gone
const AGAIN = 2000;

export class Stream {
  // `told(kind, data)` is called for each event, `state(word)` with live, connecting, silent or full.
  constructor(told, state) {
    this.told = told;
    this.state = state;
    this.source = null;
    this.query = "";
    this.heard = performance.now();
    this.timer = 0;
    setInterval(() => this.check(), 500);
  }

  open(query) {
    this.query = query;
    this.close();
    const source = new EventSource(`/events${query}`);
    this.source = source;
    source.onopen = () => {
      this.told("fresh", null);
    };
    source.onerror = () => {
      if (source !== this.source) return;
      this.state("connecting");
      // A refusal is final for a browser, but what refused may have changed its mind.
      if (source.readyState === EventSource.CLOSED) this.timer = setTimeout(() => this.open(this.query), AGAIN);
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
    if (performance.now() - this.heard > SILENCE) this.state("silent");
  }
}
