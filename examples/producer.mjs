import { SimpleQueue } from "localqueue";

const queue = new SimpleQueue("./data");

const { id, inserted } = await queue.put(
  { task: "send-email", to: "hello@example.com" },
  { jobId: "welcome-email-42" },
);
console.log(inserted ? `Put job ${id}` : `Job ${id} is known already`);

await queue.close();
