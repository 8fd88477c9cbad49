/** What has to be ended when this process ends, however that comes. */
const endings = new Set();

process.once("exit", () => {
  for (const end of endings) end();
});

/** Calls `end` at the exit of this process, unless what this returns is called before. */
export function endAtExit(end) {
  endings.add(end);
  return () => endings.delete(end);
}
