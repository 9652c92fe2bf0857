// Writes the file that it is given: a Parquet file with a column of every type that may be asked for.
const { DuckDBInstance } = require('@duckdb/node-api');
(async () => {
  const c = await (await DuckDBInstance.create(':memory:')).connect();
  await c.run(`COPY (SELECT 'k' || i AS key, CASE WHEN i % 4 = 0 THEN NULL ELSE i END::BIGINT AS size, i::UINTEGER AS u32, (i::DECIMAL(9,2)) AS dec9, (i::DECIMAL(18,0)) AS dec18, (i + 0.5)::DOUBLE AS half, i::DOUBLE AS dbl, i::FLOAT AS flt, i::HUGEINT AS huge,
    i::VARCHAR AS txt, CASE WHEN i % 3 = 0 THEN NULL ELSE 'sha256:' || lpad(i::VARCHAR, 64, '0') END AS checksum, 100 + i AS record_id, {'uri': 's3://b/' || i, 'n': i} AS payload, [i, i] AS list, 'x'::BLOB AS raw, uuid() AS uid, DATE '2026-01-01' AS day,
    CASE WHEN i % 2 = 0 THEN 'even' ELSE 'odd' END AS kind
    FROM range(1, 13) t(i)) TO '${process.argv[2]}' (FORMAT parquet, COMPRESSION zstd, ROW_GROUP_SIZE 5)`);
})();
