/** Numbers as people read them. */
export const number = (value) => Math.round(value).toLocaleString("en-US");

export const perSecond = (rate) => `${number(rate)}/s`;

export const ratio = (value) => value.toFixed(2);

export function time(ms) {
  if (ms < 0) return `-${time(-ms)}`;
  if (ms >= 1000) return `${(ms / 1000).toFixed(2)} s`;
  if (ms >= 1) return `${ms.toFixed(ms >= 100 ? 0 : 2)} ms`;
  return `${(ms * 1000).toFixed(ms >= 0.1 ? 0 : 1)} µs`;
}

export const megabytes = (bytes) => `${number(bytes / 1024 / 1024)} MB`;
