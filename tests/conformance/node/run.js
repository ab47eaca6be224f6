// Runs the scenarios with the Node.js client against a running server, one after the other, and
// ends with a line of counts. Usage: node run.js [--lacks-indexes] PORT [WORD], where WORD is part of
// a name.
'use strict';

const { connect } = require('./client');

const LACKS_INDEXES = '--lacks-indexes';
const lacksIndexes = process.argv.includes(LACKS_INDEXES);

const SCENARIOS = {
  ...require('./objects'),
  ...require('./siblings'),
  ...require('./conditions'),
  ...require('./metadata'),
  ...require('./properties'),
  ...require('./listings'),
  ...(lacksIndexes ? require('./no_indexes') : require('./indexes')),
  ...(lacksIndexes ? {} : require('./documented')),
  ...require('./load'),
};

const SECONDS_PER_SCENARIO = 60;

function withLimit(promise, seconds) {
  let timer;
  const limit = new Promise((_, reject) => {
    timer = setTimeout(() => reject(new Error(`no end within ${seconds} s`)), seconds * 1000);
  });
  return Promise.race([promise, limit]).finally(() => clearTimeout(timer));
}

async function main() {
  const [port, word] = process.argv.slice(2).filter((argument) => argument !== LACKS_INDEXES);
  const riak = await connect(port);
  let passed = 0;
  let failed = 0;
  for (const [name, scenario] of Object.entries(SCENARIOS)) {
    if (word !== undefined && !name.includes(word)) {
      continue;
    }
    try {
      await withLimit(scenario(riak, port), SECONDS_PER_SCENARIO);
      passed += 1;
    } catch (error) {
      failed += 1;
      console.log(`FAILED  ${name}: ${error.stack || error}`);
    }
  }
  await riak.stop();
  console.log(`${passed} passed, ${failed} failed`);
  process.exit(failed === 0 ? 0 : 1);
}

main().catch((error) => {
  console.log(`FAILED  ${error.stack || error}`);
  process.exit(1);
});
