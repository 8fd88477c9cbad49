import { expect, test } from "vitest";
import { Slots } from "../dist/slots.js";

test("each item has a number of its own for as long as it is there", () => {
  const slots = new Slots<{ n: number }>();
  const [a, b, c] = [{ n: 1 }, { n: 2 }, { n: 3 }];
  const numbers = [slots.add(a), slots.add(b)];
  slots.delete(numbers[0] as number);
  slots.delete(numbers[0] as number);
  expect(slots.size).toBe(1);
  expect(slots.get(numbers[0] as number)).toBeUndefined();
  const third = slots.add(c);
  expect(third).toBe(numbers[0]);
  expect(slots.add(a)).not.toBe(third);
  expect(slots.get(third)).toBe(c);
  expect(slots.size).toBe(3);
  expect(new Set(slots.list())).toEqual(new Set([a, b, c]));
});
