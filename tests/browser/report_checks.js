// The report of one run.
'use strict';

const fs = require('node:fs');
const { equal, near, holds } = require('./expect');
const { open, close, drawnLine, table } = require('./pages');

const CHARTS = [
  'throughput-time', 'throughput-volume', 'latency-get', 'latency-put', 'disk-space', 'disk-bytes', 'cpu', 'memory',
];
const FORMAT = (value) => (value === null ? '\u2013' : String(value));

// A line's points have to be the rows' values, in order, to the precision of a tenth of a pixel.
async function lineIs(page, chart, name, rows) {
  const { points, xStep, yStep, log } = await drawnLine(page, chart, name);
  equal(points.length, rows.length, `points of ${name} in ${chart}`);
  rows.forEach(([x, y], index) => {
    near(points[index].x, x, 1.5 * xStep, `place of point ${index} of ${name} in ${chart}`);
    near(points[index].y, y, log ? 0.02 * y : 1.5 * yStep, `height of point ${index} of ${name} in ${chart}`);
  });
}

async function chartsAreDrawn(browser, { bitcask }) {
  const page = await open(browser, bitcask.report);
  equal(await page.locator('figure.chart').evaluateAll((all) => all.map((one) => one.id)), CHARTS, 'charts');
  for (const chart of CHARTS) {
    const box = await page.locator(`#${chart} svg.wide .line path:not(.area)`).first().boundingBox();
    holds(box && box.width > 200 && box.height > 0, `${chart} shows no line`);
  }
  await close(page);
}

async function drawnValuesAreTheFiles(browser, { bitcask }) {
  const page = await open(browser, bitcask.report);
  const { summary, get, put, server, volume } = bitcask.rows;
  const rates = summary.map((row) => row[3] / row[1]);
  await lineIs(page, 'throughput-time', 'successful', summary.map((row, index) => [row[0], rates[index]]));
  await lineIs(page, 'throughput-volume', 'successful', volume.slice(1).map((row, index) => [row[2], rates[index]]));
  const columns = { mean: 4, '95th': 6, '99th': 7, '99.9th': 8, max: 9 };
  for (const [operation, rows] of [['get', get], ['put', put]]) {
    for (const [name, column] of Object.entries(columns)) {
      const known = rows.filter((row) => row[2] > 0).map((row) => [row[0], row[column]]);
      await lineIs(page, `latency-${operation}`, name, known);
    }
  }
  await lineIs(page, 'disk-space', 'on disk', server.map((row) => [row[0], row[3]]));
  await lineIs(page, 'disk-space', 'put by clients', server.map((row) => [row[0], row[6]]));
  await lineIs(page, 'memory', 'memory', server.map((row) => [row[0], row[2]]));
  const growth = (column) => server.slice(1).map((row, index) => [row[0], (row[column] - server[index][column]) / (row[0] - server[index][0])]);
  await lineIs(page, 'cpu', 'CPU', growth(1));
  await lineIs(page, 'disk-bytes', 'written', growth(5));
  await lineIs(page, 'disk-bytes', 'read', growth(4));
  await close(page);
}

async function anIdleIntervalIsAGap(browser, { bitcask }) {
  const page = await open(browser, bitcask.report);
  const starts = async (chart) => (await drawnLine(page, chart, 'mean')).points.filter((point) => point.isStart).length;
  equal(await starts('latency-put'), 2, 'stretches of a line with a gap');
  equal(await starts('latency-get'), 1, 'stretches of a line without');
  await close(page);
}

async function tablesAreTheFiles(browser, { bitcask }) {
  const page = await open(browser, bitcask.report);
  const files = [['latency-get', 'get'], ['latency-put', 'put'], ['memory', 'server']];
  for (const [chart, name] of files) {
    const [, ...rows] = await table(page, chart);
    equal(rows, bitcask.rows[name].map((row) => row.map(FORMAT)), `table of ${chart}`);
  }
  const [heads, ...rows] = await table(page, 'throughput-time');
  equal(heads, ['elapsed', 'window', 'total', 'successful', 'failed', 'successful/s'], 'heads');
  equal(rows, bitcask.rows.summary.map((row) => [...row, row[3] / row[1]].map(FORMAT)), 'table of throughput');
  await close(page);
}

async function figuresAreTheFiles(browser, { bitcask }) {
  const page = await open(browser, bitcask.report);
  const { summary } = bitcask.rows;
  const successful = summary.reduce((sum, row) => sum + row[3], 0);
  const throughput = page.locator('[data-figure="throughput"]');
  near(Number(await throughput.getAttribute('data-value')), successful / 180, 1e-6, 'throughput');
  equal(await throughput.textContent(), Math.round(successful / 180).toLocaleString('en'), 'throughput as text');
  const described = JSON.parse(fs.readFileSync(bitcask.description));
  for (const operation of ['get', 'put']) {
    const cells = page.locator('#results table tr', { has: page.locator(`th:text-is("${operation}")`) }).locator('td[data-value]');
    const got = await cells.evaluateAll((all) => all.map((cell) => Number(cell.dataset.value)));
    const { count, misses, errors, mean_us, p50_us, p95_us, p99_us, p999_us, max_us } = described.totals[operation];
    equal(got, [count, misses, errors, mean_us, p50_us, p95_us, p99_us, p999_us, max_us], `figures of ${operation}`);
  }
  await close(page);
}

async function stallsAreMarked(browser, { bitcask }) {
  const page = await open(browser, bitcask.report);
  const places = await page.evaluate(() => {
    const svg = document.querySelector('#throughput-time svg.wide');
    const { charts } = JSON.parse(document.getElementById('data').textContent);
    const { max } = charts[0].x;
    const value = (across) => ((across - svg.dataset.left) / svg.dataset.width) * max;
    return [...svg.querySelectorAll('.stall rect')].map((rect) => [
      value(rect.x.baseVal.value), value(rect.x.baseVal.value + rect.width.baseVal.value),
    ]);
  });
  equal(places.length, 2, 'stalls');
  near(places[0][0], 52.4, 0.1, 'where the first begins');
  near(places[0][1], 55.5, 0.1, 'where the first ends');
  near(places[1][0], 131, 0.1, 'where the second begins');
  const text = await page.locator('#throughput-time svg.wide .stall title').first().textContent();
  equal(text.replaceAll('\u00a0', ' '), 'no answer for 3.1 s at 52.4 s', 'what the mark says');
  await close(page);
}

async function theCursorShowsValues(browser, { bitcask }) {
  const page = await open(browser, bitcask.report);
  const plot = page.locator('#throughput-time .plot');
  const said = async () => (await plot.getAttribute('aria-valuetext')).replaceAll('\u00a0', ' ');
  const expected = (row) => {
    const rate = (count) => { const value = count / row[1]; return value < 100 ? String(Number(value.toFixed(value >= 10 || value === 0 ? 1 : 2))) : Math.round(value).toLocaleString('en'); };
    return `successful ${rate(row[3])} ops/s; failed ${rate(row[4])} ops/s`;
  };
  const { summary } = bitcask.rows;
  await plot.focus();
  await page.keyboard.press('End');
  equal(await said(), `at 3 min: ${expected(summary.at(-1))}`, 'at the end');
  await page.keyboard.press('Home');
  await page.keyboard.press('ArrowRight');
  equal(await said(), `at 4 s: ${expected(summary[1])}`, 'at the second row');
  const others = await page.locator('#latency-get .at').textContent();
  equal(others.replaceAll('\u00a0', ' '), '4 s', 'the moment in another chart');
  equal(await plot.locator('svg.wide .cursor circle').count(), 2, 'points at the cursor');
  await page.keyboard.press('Escape');
  equal(await page.locator('#throughput-time .at').textContent(), '', 'after Escape');
  const box = await plot.locator('svg.wide').boundingBox();
  await page.mouse.move(box.x + box.width / 2, box.y + box.height / 2);
  holds((await page.locator('#throughput-time .at').textContent()) !== '', 'a pointer sets no cursor');
  await close(page);
}

async function everyChartIsReachedByKeyboard(browser, { bitcask }) {
  const page = await open(browser, bitcask.report);
  const reached = new Set();
  for (let press = 0; press < 120; press += 1) {
    await page.keyboard.press('Tab');
    const id = await page.evaluate(() => document.activeElement.matches('.plot[role=slider][aria-label]') && document.activeElement.closest('figure').id);
    if (id) reached.add(id);
  }
  equal([...reached], CHARTS, 'charts reached by Tab');
  const described = await page.locator('#latency-get .plot').getAttribute('aria-description');
  holds(/^Latency of get\. mean: from .* to .* 2 stalls are marked\.$/.test(described), `what is heard: ${described}`);
  await close(page);
}

async function linesCanBeHidden(browser, { bitcask }) {
  const page = await open(browser, bitcask.report);
  const button = page.locator('#latency-get .key button[data-line="max"]');
  const line = page.locator('#latency-get svg.wide .line[data-line="max"]');
  await button.click();
  equal(await button.getAttribute('aria-pressed'), 'false', 'the button');
  equal(await line.isVisible(), false, 'the line');
  await button.click();
  equal(await line.isVisible(), true, 'the line again');
  await close(page);
}

async function lightAndDarkFollowTheSystemAndTheButton(browser, { bitcask }) {
  const ground = (page) => page.evaluate(() => getComputedStyle(document.body).backgroundColor);
  const light = await open(browser, bitcask.report, { colorScheme: 'light' });
  const dark = await open(browser, bitcask.report, { colorScheme: 'dark' });
  const [lightGround, darkGround] = [await ground(light), await ground(dark)];
  holds(lightGround !== darkGround, 'light and dark have the same ground');
  await light.locator('#theme').click();
  equal(await ground(light), darkGround, 'light, switched to dark');
  await light.reload();
  equal(await ground(light), darkGround, 'remembered');
  await close(light);
  await close(dark);
}

async function aPhoneCanReadIt(browser, { bitcask }) {
  const page = await open(browser, bitcask.report, { viewport: { width: 360, height: 740 }, hasTouch: true });
  const width = await page.evaluate(() => document.documentElement.scrollWidth);
  equal(width, 360, 'width of the page');
  equal(await page.locator('#throughput-time svg.wide').isVisible(), false, 'the wide drawing');
  equal(await page.locator('#throughput-time svg.narrow').isVisible(), true, 'the narrow drawing');
  const height = await page.locator('#throughput-time svg.narrow .axis text').first().evaluate((text) => text.getBoundingClientRect().height);
  holds(height >= 11, `texts of a chart are ${height} pixels high`);
  const scroll = page.locator('#results .scroll').first();
  const { isWider, background } = await scroll.evaluate((element) => ({
    isWider: element.scrollWidth > element.clientWidth,
    background: getComputedStyle(element).backgroundAttachment,
  }));
  holds(isWider, 'the table of operations is wider than the screen');
  holds(background.includes('local') && background.includes('scroll'), 'a shadow shows that it goes on');
  await close(page);
}

async function chartsNeedNoScript(browser, { bitcask }) {
  const page = await open(browser, bitcask.report, { javaScriptEnabled: false });
  equal(await page.locator('figure.chart svg.wide .line path:not(.area)').first().isVisible(), true, 'a line');
  equal(await page.locator('#results td').first().isVisible(), true, 'figures');
  await close(page);
}

async function chartsAreExported(browser, { bitcask }) {
  const page = await open(browser, bitcask.report);
  const save = async (format) => {
    const waiting = page.waitForEvent('download');
    await page.locator(`#latency-get .export[data-format=${format}]`).click();
    const download = await waiting;
    return { name: download.suggestedFilename(), content: fs.readFileSync(await download.path()) };
  };
  const svg = await save('svg');
  equal(svg.name, 'Test-4-bitcask-latency-get.svg', 'name of the SVG');
  const text = svg.content.toString();
  holds(text.includes('Latency of get') && text.includes('99.9th'), 'the SVG names neither chart nor lines');
  holds(!text.includes('var(') && !text.includes('currentcolor'), 'the SVG depends on the page');
  const drawn = await page.evaluate((source) => {
    const parsed = new DOMParser().parseFromString(source, 'image/svg+xml');
    return parsed.querySelector('parsererror') ? 0 : parsed.querySelectorAll('.line path').length;
  }, text);
  equal(drawn, 5, 'lines in the SVG');
  const png = await save('png');
  equal(png.name, 'Test-4-bitcask-latency-get.png', 'name of the PNG');
  equal([...png.content.subarray(1, 4)], [...Buffer.from('PNG')], 'signature of the PNG');
  equal([png.content.readUInt32BE(16), png.content.readUInt32BE(20)], [1344, 768], 'size of the PNG');
  await close(page);
}

async function aDayKeepsItsExtremes(browser, { day }) {
  const page = await open(browser, day.report);
  const { points } = await drawnLine(page, 'latency-get', 'max');
  holds(points.length < 4 * 640, `${points.length} points are drawn`);
  const longest = Math.max(...day.rows.get.map((row) => row[9]));
  near(Math.max(...points.map((point) => point.y)), longest, 0.02 * longest, 'the longest latency of the day');
  const least = Math.min(...day.rows.summary.map((row) => row[3] / row[1]));
  const throughput = await drawnLine(page, 'throughput-time', 'successful');
  near(Math.min(...throughput.points.map((point) => point.y)), least, 1.5 * throughput.yStep, 'the least throughput of the day');
  equal((await table(page, 'throughput-time')).length, 8641, 'rows of the table');
  await close(page);
}

async function aDirectoryOfBashoBenchMakesAReport(browser, { plain }) {
  const page = await open(browser, plain.report);
  equal(await page.locator('figure.chart').evaluateAll((all) => all.map((one) => one.id)), ['throughput-time', 'latency-get', 'latency-put'], 'charts');
  equal(await page.locator('.missing').count(), 3, 'things that are said to be missing');
  await lineIs(page, 'throughput-time', 'successful', plain.rows.summary.map((row) => [row[0], row[3] / row[1]]));
  await close(page);
}

module.exports = {
  'every chart of the comparison is drawn': chartsAreDrawn,
  'drawn values are those of the files': drawnValuesAreTheFiles,
  'an idle interval is a gap': anIdleIntervalIsAGap,
  'tables are the files, digit by digit': tablesAreTheFiles,
  'figures are those of the files': figuresAreTheFiles,
  'stalls are marked where they were': stallsAreMarked,
  'the cursor shows values by keyboard and pointer': theCursorShowsValues,
  'every chart is reached by keyboard': everyChartIsReachedByKeyboard,
  'lines can be hidden': linesCanBeHidden,
  'light and dark follow the system and the button': lightAndDarkFollowTheSystemAndTheButton,
  'a phone can read it': aPhoneCanReadIt,
  'charts need no script': chartsNeedNoScript,
  'charts are exported as SVG and PNG': chartsAreExported,
  'a day keeps its extremes': aDayKeepsItsExtremes,
  'a directory of basho_bench makes a report': aDirectoryOfBashoBenchMakesAReport,
};
