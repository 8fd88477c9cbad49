import { subscribe, unsubscribe } from "node:diagnostics_channel";
import type { ChannelMessages } from "localqueue";
import { onTestFinished } from "vitest";

type Name = keyof ChannelMessages;

/** Subscribes to a channel until the test is over, or the function that is returned is called. */
export function listen<N extends Name>(name: N, listener: (message: ChannelMessages[N]) => void): () => void {
  const call = (message: unknown): void => listener(message as ChannelMessages[N]);
  subscribe(name, call);
  const stop = (): void => void unsubscribe(name, call);
  onTestFinished(stop);
  return stop;
}

export type Published = { [N in Name]: [name: N, message: ChannelMessages[N]] }[Name][];

/** What is published on these channels, in order; messages as they are when the test looks at them. */
export function listenToAll(...names: readonly Name[]): Published {
  const published: Published = [];
  for (const name of names) listen(name, (message) => published.push([name, message] as Published[number]));
  return published;
}
