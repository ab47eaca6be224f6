// Several runs on one page, and a matrix of real runs.
'use strict';

const fs = require('node:fs');
const path = require('node:path');
const { spawn, spawnSync } = require('node:child_process');
const { equal, near, holds } = require('./expect');
const { open, close, drawnLine } = require('./pages');

const throughput = ({ rows }) => rows.summary.reduce((sum, row) => sum + row[3], 0) / rows.summary.at(-1)[0];

function ratioRow(page, name) {
  return page.locator('table.ratios tr', { has: page.locator(`th:text-is("${name}")`) }).first();
}

const texts = (locator) => locator.locator('.ratio').evaluateAll((all) => all.map((one) => one.textContent.replaceAll('\u00a0', ' ')));
const digits = (value) => Number(value.toFixed(value >= 0.1 ? 2 : 3));

async function runsAreLaidOverOneAnother(browser, { comparison, bitcask, memory }) {
  const page = await open(browser, comparison);
  for (const [name, run] of [['Test 4, bitcask', bitcask], ['Test 4, memory', memory]]) {
    const { points, yStep } = await drawnLine(page, 'throughput-time', name);
    equal(points.length, run.rows.summary.length, `points of ${name}`);
    run.rows.summary.forEach((row, index) => near(points[index].y, row[3] / row[1], 1.5 * yStep, `${name}, row ${index}`));
    const latency = await drawnLine(page, 'latency-get-99th', name);
    run.rows.get.forEach((row, index) => near(latency.points[index].y, row[7], 0.02 * row[7], `99th of ${name}, row ${index}`));
  }
  await close(page);
}

async function ratiosAreTakenAgainstTheChosenBase(browser, { comparison, bitcask, memory }) {
  const page = await open(browser, comparison);
  const ratio = throughput(memory) / throughput(bitcask);
  equal(await texts(ratioRow(page, 'Throughput')), ['base', `\u25b2 \u00d7${digits(ratio)}`], 'throughput');
  await page.locator('#base').selectOption('1');
  equal(await texts(ratioRow(page, 'Throughput')), [`\u25bc \u00d7${digits(1 / ratio)}`, 'base'], 'throughput, the other way round');
  const values = await ratioRow(page, 'Throughput').locator('td').evaluateAll((all) => all.map((one) => Number(one.dataset.value)));
  near(values[0], throughput(bitcask), 1e-6, 'throughput of the first');
  near(values[1], throughput(memory), 1e-6, 'throughput of the second');
  await close(page);
}

function matrixFile(folder) {
  fs.rmSync(folder, { recursive: true, force: true });
  fs.mkdirSync(folder, { recursive: true });
  fs.writeFileSync(path.join(folder, 'load.config'), [
    '{mode, max}.', '{duration, 1}.', '{report_interval, 1}.', '{concurrent, 4}.',
    '{driver, basho_bench_driver_riakc_pb}.', '{key_generator, {int_to_str, {uniform_int, 1000}}}.',
    '{value_generator, {fixed_bin, 1000}}.', '{operations, [{get, 1}, {put, 1}]}.', '',
  ].join('\n'));
  const file = path.join(folder, 'matrix.toml');
  fs.writeFileSync(file, [
    'title = "A small matrix"', 'backends = ["bitcask", "memory"]', 'duration = "3s"',
    '[server]', 'ring_size = 8',
    '[[tests]]', 'name = "plain"', 'title = "Plain"', 'files = ["load.config"]',
    '[[tests]]', 'name = "filled"', 'title = "Filled first"', 'files = ["load.config"]', 'duration = "2s"',
    'preload = ["fill.config"]', '',
  ].join('\n'));
  fs.writeFileSync(path.join(folder, 'fill.config'), [
    '{mode, max}.', '{duration, 1}.', '{concurrent, 4}.', '{driver, basho_bench_driver_riakc_pb}.',
    '{key_generator, {int_to_str, {partitioned_sequential_int, 1000}}}.',
    '{value_generator, {fixed_bin, 1000}}.', '{operations, [{put, 1}]}.', '',
  ].join('\n'));
  return file;
}

// Starts a matrix, and interrupts it as soon as its output has what `until` waits for.
function interrupted(kvorum, args, until) {
  return new Promise((resolve, reject) => {
    const child = spawn(kvorum, args, { stdio: ['ignore', 'pipe', 'pipe'] });
    let said = '';
    child.stdout.on('data', (text) => {
      said += text;
      if (said.includes(until)) child.kill('SIGINT');
    });
    child.stderr.on('data', (text) => { said += text; });
    child.on('error', reject);
    child.on('close', (code) => resolve({ code, said }));
  });
}

function successfulPerSecond(folder) {
  const rows = fs.readFileSync(path.join(folder, 'summary.csv'), 'utf8').trim().split('\n').slice(1);
  const successful = rows.reduce((sum, row) => sum + Number(row.split(',')[3]), 0);
  return successful / JSON.parse(fs.readFileSync(path.join(folder, 'run.json'))).duration_seconds;
}

async function aMatrixIsInterruptedAndResumed(browser, { kvorum, scratch }) {
  const folder = path.join(scratch, 'matrix');
  const out = path.join(folder, 'results');
  const args = ['bench', 'matrix', matrixFile(folder), '--out', out];
  const first = await interrupted(kvorum, args, 'cell 2 of 4');
  equal(first.code, 130, `exit code of the interrupted matrix, which said ${first.said}`);
  const kept = Object.keys(JSON.parse(fs.readFileSync(path.join(out, 'matrix.json'))).done);
  equal(kept, ['plain--bitcask'], 'cells kept');
  equal(fs.readdirSync(out).filter((name) => name.startsWith('server-')), [], 'data of servers that is left');
  const refused = spawnSync(kvorum, args, { encoding: 'utf8' });
  holds(refused.status !== 0 && refused.stderr.includes('--resume'), 'results in the way are not refused');
  const before = fs.readFileSync(path.join(out, 'cells/plain--bitcask/summary.csv'), 'utf8');
  const published = path.join(folder, 'published');
  const second = spawnSync(kvorum, [...args, '--resume', '--publish', published], { encoding: 'utf8' });
  equal(second.status, 0, `exit code of the resumed matrix, which said ${second.stdout}${second.stderr}`);
  holds(second.stdout.includes('4 cells, 3 to run'), `what it says: ${second.stdout}`);
  equal(fs.readFileSync(path.join(out, 'cells/plain--bitcask/summary.csv'), 'utf8'), before, 'the cell that was done');

  const page = await open(browser, path.join(out, 'index.html'));
  const section = page.locator('#ratios .tables section').first();
  equal(await section.locator('h3').textContent(), 'Throughput', 'the first table');
  const values = await section.locator('tbody tr').evaluateAll((rows) => rows.map((row) => [...row.querySelectorAll('td')].map((cell) => Number(cell.dataset.value))));
  ['plain', 'filled'].forEach((test, row) => ['bitcask', 'memory'].forEach((backend, column) => {
    const expected = successfulPerSecond(path.join(out, `cells/${test}--${backend}`));
    near(values[row][column], expected, 1e-6 * expected, `${test} on ${backend}`);
  }));
  const targets = await page.locator('main a').evaluateAll((all) => [...new Set(all.map((one) => one.getAttribute('href')))]);
  for (const target of targets) holds(fs.existsSync(path.join(out, target)), `${target} leads nowhere`);
  await page.locator('main a:text-is("Plain")').first().click();
  equal(await page.locator('h1').textContent(), 'Plain', 'the page of a test');
  equal(await page.locator('#throughput-time svg.wide .line').count(), 2, 'lines of backends');
  await page.locator('#setup a').first().click();
  equal(await page.locator('h1').textContent(), 'Plain on bitcask', 'the report of a cell');
  const { hits } = JSON.parse(fs.readFileSync(path.join(out, 'cells/plain--bitcask/run.json')));
  const shown = await page.locator('#hits tbody td').evaluateAll((all) => all.map((one) => Number(one.dataset.value)));
  equal(shown, [1000, hits.writes, hits.gets, hits.possible_share, hits.found / hits.gets], 'what gets can find');
  near(hits.found / hits.gets, hits.possible_share, 0.05, 'gets that found something');
  equal(await page.goto(`file://${path.join(out, 'cells/filled--bitcask/report.html')}`).then(() => page.locator('#hits').count()), 0, 'what gets can find in a store that was filled');
  await publishedPagesAreWhole(page, published, path.join(out, 'cells'));
  await close(page);
}

async function publishedPagesAreWhole(page, folder, cells) {
  equal(fs.readdirSync(folder).sort(), [
    'README.md', 'backend-bitcask.html', 'backend-memory.html', 'figures.csv', 'index.html', 'test-filled.html',
    'test-plain.html',
  ], 'what is published');
  const rows = fs.readFileSync(path.join(folder, 'figures.csv'), 'utf8').trim().split('\n').map((line) => line.split(','));
  const row = rows.find((found) => found[0] === 'plain' && found[1] === 'memory' && found[3] === '"Throughput"');
  const expected = successfulPerSecond(path.join(cells, 'plain--memory'));
  near(Number(row[5]), expected, 1e-6 * expected, 'throughput in the table of figures');
  near(Number(row[6]), expected / successfulPerSecond(path.join(cells, 'plain--bitcask')), 1e-6, 'its ratio');
  holds(fs.readFileSync(path.join(folder, 'README.md'), 'utf8').includes('| Plain |'), 'the README has no table');
  for (const name of fs.readdirSync(folder).filter((found) => found.endsWith('.html'))) {
    await page.goto(`file://${path.join(folder, name)}`);
    const targets = await page.locator('a:not([href^="#"])').evaluateAll((all) => all.map((one) => one.getAttribute('href')));
    for (const target of targets) holds(fs.existsSync(path.join(folder, target)), `${name}: ${target} leads nowhere`);
  }
}

async function quickShowsEveryBackend(browser, { kvorum }) {
  const run = spawnSync(kvorum, ['bench', 'quick', '--seconds', '36'], { encoding: 'utf8' });
  equal(run.status, 0, `exit code, after ${run.stdout}${run.stderr}`);
  const lines = run.stdout.trim().split('\n');
  const backends = ['bitcask', 'leveldb', 'leveled', 'hanoidb', 'innostore', 'memory'];
  holds(lines.length <= backends.length + 6, `${lines.length} lines`);
  for (const backend of backends) {
    const line = lines.find((text) => text.startsWith(backend));
    holds(line && !line.includes('?'), `no figures of ${backend} in ${run.stdout}`);
  }
}

// A run with twice the workers was once "better" by a ratio that did not come of the server.
async function ratiosAreTakenBetweenEqualLoads(browser, { loads, bitcask, memory }) {
  const page = await open(browser, loads);
  const ratio = `\u25b2 \u00d7${digits(throughput(memory) / throughput(bitcask))}`;
  equal(await texts(ratioRow(page, 'Throughput')), ['base', ratio, ''], 'throughput');
  await page.locator('#base').selectOption('2');
  equal(await texts(ratioRow(page, 'Throughput')), ['base', ratio, ''], 'against the run of another load');
  const named = await page.locator('.loads').textContent();
  holds(named.includes('Test 4, twice the workers (concurrent)'), `it is named: ${named}`);
  await close(page);
}

module.exports = {
  'ratios are taken between equal loads': ratiosAreTakenBetweenEqualLoads,
  'runs are laid over one another': runsAreLaidOverOneAnother,
  'ratios are taken against the chosen base': ratiosAreTakenAgainstTheChosenBase,
  'a matrix is interrupted, resumed and compared': aMatrixIsInterruptedAndResumed,
  'quick shows every backend': quickShowsEveryBackend,
};
