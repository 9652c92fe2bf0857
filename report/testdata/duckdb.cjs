// Runs the SQL statements of the JSON array on stdin in one DuckDB and prints the
// rows of each as one JSON array. Needs @duckdb/node-api on NODE_PATH.
const { DuckDBInstance } = require('@duckdb/node-api');
const { readFileSync } = require('node:fs');

(async () => {
  const connection = await (await DuckDBInstance.create(':memory:')).connect();
  const answers = [];
  for (const sql of JSON.parse(readFileSync(0, 'utf8'))) {
    try {
      answers.push((await connection.runAndReadAll(sql)).getRowObjectsJson());
    } catch (e) {
      console.error(`${sql}\n${e.message}`);
      process.exit(1);
    }
  }
  process.stdout.write(JSON.stringify(answers));
})();
