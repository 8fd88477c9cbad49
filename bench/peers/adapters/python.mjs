export const python = {
  name: "python",
  title: "localqueue for Python",
  runtime: "python",
  modes: [{}, { name: "fsync", fsync: true }],
  manyProcesses: true,
  maxSlots: 1,
  settings: "its Worker, one job at a time; RELAXED, with fsync DURABLE",
};
