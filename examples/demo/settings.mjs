/** All processes name the same queue. The short lease makes the takeover quick enough to watch. */
export const QUEUE = { name: "webhooks", leaseMs: 2_000 };
