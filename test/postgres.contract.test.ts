import { storageContract } from "./storage.contract.ts";
import { postgresBackend } from "./support/postgres-backend.ts";

storageContract(postgresBackend);
