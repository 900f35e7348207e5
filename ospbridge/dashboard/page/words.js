// Numbers, times and sizes for eyes.

const NONE = "–";
const whole = new Intl.NumberFormat("en", { maximumFractionDigits: 0 });
const short = new Intl.NumberFormat("en", { notation: "compact", maximumFractionDigits: 1 });
const clock = new Intl.DateTimeFormat(undefined, { hour: "2-digit", minute: "2-digit", second: "2-digit", hour12: false });

export const count = (number) => (number === null || number === undefined ? NONE : whole.format(number));

export const shortCount = (number) => (number < 100_000 ? whole.format(number) : short.format(number));

// As many digits as fit into a narrow column, with a minus that is as wide as a digit.
export function value(number) {
  if (number === null || number === undefined) return NONE;
  const size = Math.abs(number);
  let text;
  if (size >= 1e6 || (size > 0 && size < 1e-5)) text = number.toExponential(2);
  else if (size > 0 && size < 1e-2) text = number.toFixed(5);
  else if (size >= 1000) text = number.toFixed(0);
  else if (size >= 100) text = number.toFixed(1);
  else if (size >= 10) text = number.toFixed(2);
  else text = number.toFixed(3);
  return text.replace("-", "−");
}

// [number, unit]
export function seconds(time) {
  if (time === null || time === undefined) return [NONE, ""];
  if (time < 1e-3) return [digits(time * 1e6), "µs"];
  if (time < 1) return [digits(time * 1e3), "ms"];
  return [digits(time), "s"];
}

const digits = (number) => (number >= 100 ? number.toFixed(0) : String(Number(number.toPrecision(2))));

export const inWords = (time) => seconds(time).join(" ");

export function rate(number) {
  if (number >= 100) return whole.format(number);
  return number >= 10 ? number.toFixed(0) : number.toFixed(1);
}

export function bytes(number) {
  const units = ["B", "kB", "MB", "GB", "TB"];
  let at = 0;
  while (number >= 1000 && at < units.length - 1) {
    number /= 1000;
    at += 1;
  }
  return `${at ? number.toFixed(1) : number} ${units[at]}`;
}

export function duration(time) {
  const minutes = Math.floor(time / 60);
  if (time < 60) return `${Math.max(0, Math.floor(time))} s`;
  if (minutes < 60) return `${minutes} min`;
  const hours = Math.floor(minutes / 60);
  return hours < 48 ? `${hours} h ${minutes % 60} min` : `${Math.floor(hours / 24)} days`;
}

export function timeOfDay(text) {
  const time = new Date(text);
  return Number.isNaN(time.getTime()) ? "" : clock.format(time);
}

export const plural = (number, one, many = `${one}s`) => `${count(number)} ${number === 1 ? one : many}`;
