import { betterQueue } from "./better-queue.mjs";
import { bullmq } from "./bullmq.mjs";
import { bunqueue } from "./bunqueue.mjs";
import { graphileWorker } from "./graphile-worker.mjs";
import { limit } from "./limit.mjs";
import { liteque } from "./liteque.mjs";
import { localqueue, localqueueOnPostgres } from "./localqueue.mjs";
import { pgBoss, pgBossEmbedded } from "./pg-boss.mjs";
import { plainjob } from "./plainjob.mjs";
import { python } from "./python.mjs";
import { sidequest } from "./sidequest.mjs";

/** Those that meet in one run; the first is what the others are compared with. */
export const fields = {
  machine: [
    localqueue,
    limit,
    python,
    plainjob,
    liteque,
    sidequest,
    betterQueue,
    bunqueue,
    pgBossEmbedded,
    bullmq,
    pgBoss,
    graphileWorker,
  ],
  postgres: [localqueueOnPostgres, pgBoss, graphileWorker],
};

export const adapters = [...new Set(Object.values(fields).flat())];
