import { expect, test } from "vitest";
import { onAbort } from "../dist/abort.js";

test("a wait that ends twice does not end another that began meanwhile", () => {
  const controller = new AbortController();
  const told: string[] = [];
  const forget = onAbort(controller.signal, () => told.push("first"));
  forget();
  onAbort(controller.signal, () => told.push("second"));
  forget();
  controller.abort();
  expect(told).toEqual(["second"]);
});

test("a listener that listens twice is called twice, and any number of them make one listener of the signal", () => {
  const { signal } = new AbortController();
  let listening = 0;
  const counted = Object.assign(signal, { addEventListener: () => listening++ });
  for (let i = 0; i < 20; i++) onAbort(counted, () => {});
  expect(listening).toBe(1);

  const controller = new AbortController();
  let calls = 0;
  const listener = (): void => void calls++;
  onAbort(controller.signal, listener);
  onAbort(controller.signal, listener);
  controller.abort();
  expect(calls).toBe(2);
});
