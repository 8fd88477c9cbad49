/** Each peer in each of its modes. */
export const sidesOf = (adapters) =>
  adapters.flatMap((adapter) =>
    adapter.modes.map((mode) => ({
      adapter,
      mode,
      fsync: mode.fsync === true,
      key: mode.name === undefined ? adapter.name : `${adapter.name} ${mode.name}`,
    })),
  );
