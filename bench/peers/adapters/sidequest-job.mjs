// In a file of its own, since sidequest loads the class from where it was defined.
import { Job } from "sidequest";

let handle = () => {};

/** What the jobs of this process do. */
export function tell(handler) {
  handle = handler;
}

export class BenchJob extends Job {
  run(data) {
    return handle(data);
  }
}
