// Runs all checks: node run.js KVORUM CHROMIUM SCRATCH [PART OF A NAME]
'use strict';

const fs = require('node:fs');
const path = require('node:path');
const { spawnSync } = require('node:child_process');
const { chromium } = require('playwright-core');
const { makeRun, BITCASK, MEMORY, OTHER_LOAD, DAY } = require('./fixture');

// The browser's own services must not use a network.
const FLAGS = [
  '--no-sandbox', '--disable-gpu', '--disable-quic', '--no-first-run', '--disable-background-networking',
  '--disable-component-update', '--disable-sync',
];

// A program by its name or its path, as a path.
function program(name) {
  if (name.includes('/')) return path.resolve(name);
  const folder = process.env.PATH.split(path.delimiter).find((found) => fs.existsSync(path.join(found, name)));
  if (!folder) throw new Error(`${name} is not in the PATH`);
  return path.join(folder, name);
}

function kvorumBench(kvorum, args) {
  const run = spawnSync(kvorum, ['bench', ...args], { encoding: 'utf8' });
  if (run.status !== 0) throw new Error(`kvorum bench ${args.join(' ')}: ${run.stdout}${run.stderr}`);
}

function prepare(kvorum, scratch) {
  const run = (name, options) => {
    const folder = path.join(scratch, name);
    const rows = makeRun(folder, options);
    kvorumBench(kvorum, ['report', folder]);
    return { folder, rows, report: path.join(folder, 'report.html'), description: path.join(folder, 'run.json') };
  };
  const site = {
    kvorum,
    scratch,
    bitcask: run('bitcask', BITCASK),
    memory: run('memory', MEMORY),
    day: run('day', DAY),
    otherLoad: run('other-load', OTHER_LOAD),
    plain: run('plain', { ...BITCASK, isPlain: true }),
    comparison: path.join(scratch, 'comparison.html'),
    loads: path.join(scratch, 'loads.html'),
  };
  kvorumBench(kvorum, ['compare', site.bitcask.folder, site.memory.folder, '--out', site.comparison]);
  kvorumBench(kvorum, ['compare', site.bitcask.folder, site.memory.folder, site.otherLoad.folder, '--out', site.loads]);
  return site;
}

async function main() {
  const [kvorum, chromiumName, scratch, part = ''] = process.argv.slice(2);
  const checks = { ...require('./report_checks'), ...require('./comparison_checks') };
  const site = prepare(path.resolve(kvorum), path.resolve(scratch));
  const browser = await chromium.launch({ executablePath: program(chromiumName), args: FLAGS });
  let [passed, failed] = [0, 0];
  for (const [name, check] of Object.entries(checks).filter(([name]) => name.includes(part))) {
    try {
      await check(browser, site);
      console.log(`ok      ${name}`);
      passed += 1;
    } catch (error) {
      console.log(`FAILED  ${name}: ${error.message}`);
      failed += 1;
    }
  }
  await browser.close();
  console.log(`${passed} passed, ${failed} failed`);
  process.exitCode = failed === 0 ? 0 : 1;
}

main().catch((error) => {
  console.log(`FAILED  ${error.stack}`);
  process.exitCode = 1;
});
