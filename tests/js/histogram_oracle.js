// Holds spate's histogram against hdr-histogram-js on the same samples.
// usage: node histogram_oracle.js PATH_OF_quantile_dump [SEED]
// Both are allowed their own bucket error; together they may differ by no more than 1.6 % + 0.1 %.
'use strict';
const { execFileSync } = require('child_process');
const hdr = require('hdr-histogram-js');

const program = process.argv[2];
const seed = Number(process.argv[3] || Math.floor(Math.random() * 2 ** 31));
console.log(`seed ${seed}`);

// mulberry32: small, seedable, good enough to draw samples
let state = seed >>> 0;
function unit() {
  state = (state + 0x6d2b79f5) >>> 0;
  let t = Math.imul(state ^ (state >>> 15), 1 | state);
  t = (t + Math.imul(t ^ (t >>> 7), 61 | t)) ^ t;
  return ((t ^ (t >>> 14)) >>> 0) / 4294967296;
}

const distributions = {
  uniform: () => 1000 + Math.floor(unit() * 1e6),
  exponential: () => 1000 + Math.floor(-Math.log(1 - unit()) * 2e6),
  heavy_tail: () => Math.min(3.6e12, Math.floor(50_000 * Math.pow(1 - unit(), -1.2))),
  bimodal: () => Math.floor((unit() < 0.95 ? 2e5 : 5e8) * (0.9 + 0.2 * unit())),
};
const quantiles = [0.01, 0.1, 0.25, 0.5, 0.75, 0.9, 0.99, 0.999, 0.9999, 1];
const samples_each = 200_000;

let compared = 0;
let failed = 0;
for (const [name, draw] of Object.entries(distributions)) {
  const reference = hdr.build({
    bitBucketSize: 64, autoResize: true, lowestDiscernibleValue: 1,
    highestTrackableValue: 4e12, numberOfSignificantValueDigits: 4,
  });
  const lines = [];
  for (let i = 0; i < samples_each; i++) {
    const value = draw();
    reference.recordValue(value);
    lines.push(value);
  }
  const ours = JSON.parse(
    execFileSync(program, quantiles.map(String), { input: lines.join('\n'), maxBuffer: 1 << 26 }));
  if (ours.count !== samples_each) {
    console.error(`${name}: counted ${ours.count} of ${samples_each}`);
    failed++;
  }
  for (const q of quantiles) {
    const expected = reference.getValueAtPercentile(q * 100);
    const difference = Math.abs(ours.quantiles[String(q)] - expected) / expected;
    compared++;
    if (!(difference <= 0.017)) {
      console.error(`${name} p${q * 100}: ours ${ours.quantiles[String(q)]}, hdr ${expected}, ` +
                    `${(difference * 100).toFixed(2)} % apart`);
      failed++;
    }
  }
}
console.log(`${compared} quantiles compared, ${failed} failed`);
if (compared !== quantiles.length * Object.keys(distributions).length || failed > 0) process.exit(1);
