export function nameOf(payload: string | Uint8Array): string;
