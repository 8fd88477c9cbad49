/** What is asked, and told, when a whole file is looked after: checks, backups. */

/** `full` also compares each index with its table, and takes about twice as long. */
export type IntegrityMode = "full" | "quick";

/** The parts of a check, in their order: SQLite's own, rows that others refer to, the counts by state, the layout. */
export type IntegrityPart = "pages" | "references" | "counts" | "layout";

/** What a check is about to do. The parts take unequal time: `pages` takes most of it. */
export interface IntegrityProgress {
  readonly phase: IntegrityPart;
  /** Parts that are done, of `total`. */
  readonly done: number;
  readonly total: number;
}

export interface IntegrityCheck {
  readonly mode: IntegrityMode;
  /** How many messages at most. */
  readonly maxErrors: number;
  readonly onProgress?: ((progress: IntegrityProgress) => void) | undefined;
}

/** What a check has found. */
export interface IntegrityReport {
  readonly schemaVersion: 1;
  readonly mode: IntegrityMode;
  readonly maxErrors: number;
  readonly ok: boolean;
  /** `["ok"]`, or what is wrong: at most `maxErrors` texts. */
  readonly messages: readonly string[];
  readonly elapsedMs: number;
}

/** How far a backup is, in pages. Verifying tells when it begins and when it is done. */
export interface BackupProgress {
  readonly phase: "copying" | "verifying";
  readonly done: number;
  readonly total: number;
}

/** Where a backup shall go: a directory that does not exist yet, in one that does. */
export interface BackupRequest {
  /** As the caller spelled it; relative to the current directory. */
  readonly destination: string;
  readonly onProgress?: ((progress: BackupProgress) => void) | undefined;
}

/** A backup that was made and verified. */
export interface BackupReport {
  readonly schemaVersion: 1;
  /** As it was given. */
  readonly destination: string;
  /** The file in it. */
  readonly databasePath: string;
  readonly elapsedMs: number;
  readonly pagesCopied: number;
  readonly pageCount: number;
  readonly databaseSizeBytes: number;
  readonly verified: true;
  readonly verificationMode: IntegrityMode;
  readonly verificationMessages: readonly string[];
}
