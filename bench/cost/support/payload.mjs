/** About 100 bytes of JSON, as a small job has. */
export const payload = { task: "send-email", to: "hello@example.com", text: "x".repeat(50) };

export const payloadBytes = Buffer.from(JSON.stringify(payload));

/** A serializer for payloads that are bytes already. */
export const passThrough = { encode: (bytes) => bytes, decode: (bytes) => bytes };
