import type { FailedMessage } from "../index.ts";
import { QUEUE } from "./command.ts";
import { causeOf } from "./dead-letter.ts";
import type { Place } from "./place.ts";
import { inspect, queueName, queueTitle } from "./queue-access.ts";
import { moment } from "./wording.ts";

export const IN_QUEUE: Place<FailedMessage<Uint8Array>> = {
  prefix: "",
  kind: "queue",
  unit: "job",
  options: { queue: QUEUE },
  typed: ["./data", "./data --queue emails"],
  forgotten: "A jobId is known only as long as its job is kept.",
  inspect,
  name: (args) => `queue "${queueName(args)}"`,
  title: queueTitle,
  columns: [
    ["failed at", ({ updatedAt }) => moment(updatedAt)],
    ["tries", ({ attempts }) => `${attempts}`],
    ["reason", causeOf],
  ],
  about: ({ jobId }) => ({ jobId }),
  payload: ["payload", "data"],
};
