import { betterQueue } from "./better-queue.mjs";
import { bullmq } from "./bullmq.mjs";
import { bunqueue } from "./bunqueue.mjs";
import { graphileWorker } from "./graphile-worker.mjs";
import { limit } from "./limit.mjs";
import { liteque } from "./liteque.mjs";
import { localqueue } from "./localqueue.mjs";
import { pgBoss, pgBossEmbedded } from "./pg-boss.mjs";
import { plainjob } from "./plainjob.mjs";
import { python } from "./python.mjs";
import { sidequest } from "./sidequest.mjs";

/** The first is what the others are compared with. */
export const adapters = [
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
];
