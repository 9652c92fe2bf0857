// Writes OUT/context.lance: a table of contexts with the columns that name payloads.
import * as lancedb from "@lancedb/lancedb";
import * as arrow from "apache-arrow";
const out = process.argv[2];
const F = (name, type, nullable = true) => new arrow.Field(name, type, nullable);
const utf = () => new arrow.Utf8();
const schema = new arrow.Schema([F("id", utf(), false), F("content_type", utf(), false), F("text_payload", utf()), F("payload_uri", utf()),
  F("payload_size", new arrow.Int64()), F("payload_checksum", utf()), F("retired", new arrow.Bool()), F("generation", new arrow.Int32())]);
const sum = (i) => "sha256:" + i.toString(16).padStart(64, "0");
const row = (i) => i % 3 === 0
  ? { id: `c${i}`, content_type: "text/plain", text_payload: `text ${i}`, payload_uri: null, payload_size: null, payload_checksum: null, retired: null, generation: 1 }
  : { id: `c${i}`, content_type: "image/png", text_payload: null, payload_uri: `s3://blobs/p${i}`, payload_size: BigInt(1000 + i), payload_checksum: i % 5 === 0 ? null : sum(i), retired: i > 7, generation: i % 2 };
const rows = (from, to) => lancedb.makeArrowTable(Array.from({ length: to - from }, (_, k) => row(from + k)), { schema });
const db = await lancedb.connect(out);
const t = await db.createTable("context", rows(0, 6));
await t.add(rows(6, 9));
await t.delete("id = 'c4'");
await t.add(rows(9, 12));
