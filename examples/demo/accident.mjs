/**
 * For the one worker that is to be killed in the middle of its jobs: after some jobs its handlers no longer return.
 * Each has done its work by then, but not yet said so. When all of them are stuck, the parent is told.
 */
export function prepareAccident(afterJobs, concurrency) {
  let handled = 0;
  const stuck = [];
  return async ({ id, attempt }) => {
    handled++;
    if (handled <= afterJobs) return;
    stuck.push({ id, attempt });
    if (stuck.length === concurrency) process.send({ inside: stuck });
    await new Promise(() => {});
  };
}
