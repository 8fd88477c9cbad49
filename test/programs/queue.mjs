// A queue whose methods the test calls from another process.
import { EnqueueItem, SimpleQueue } from "localqueue";
import { input, say, told } from "./lines.mjs";

const queue = new SimpleQueue(input.location, input.options);

const plain = (value) => {
  if (Array.isArray(value)) return value.map(plain);
  if (typeof value !== "object" || value === null || value.receipt === undefined) return value;
  const { id, receipt, attempt, data, jobId } = value;
  return { id, receipt, attempt, data, jobId };
};

async function answer({ call, method, args }) {
  try {
    const given = method === "putMany" ? [args[0].map(item), ...args.slice(1)] : args;
    say(`answer ${call}`, { result: plain(await queue[method](...given)) });
  } catch (error) {
    const { name, code, message } = error;
    say(`answer ${call}`, { error: { name, code, message } });
  }
}

function item({ data, ...options }) {
  return new EnqueueItem(data, options);
}

for await (const message of told()) void answer(message);
await queue.close();
