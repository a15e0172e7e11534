/**
 * The stand-in for node:assert/strict in browsers decides as the real one does. In Node both are tried, in a browser the
 * name means the stand-in. These tests throw by themselves: they cannot trust what they test.
 */

import assert from 'node:assert/strict';
import { test } from 'node:test';
import standIn from './browser/node-assert.mjs';

const SAME = () => {};
const DATE = new Date(0);

/** Makers of values, in groups: values of one group are the same to assert, and of two groups never are. */
const GROUPS = [
  [() => undefined], [() => null], [() => true], [() => false], [() => 0], [() => -0], [() => 1], [() => 2], [() => NaN], [() => 1n],
  [() => ''], [() => '1'], [() => 'undefined'], [() => Symbol.iterator], [() => SAME], [() => DATE],
  [() => ({})], [() => []], [() => [undefined]], [() => [null]], [() => Array(1)], [() => Array(2)], [() => [[]]], [() => [{}]],
  [() => [1, 2], () => Array.of(1, 2)], [() => [2, 1]], [() => [1, 2, 3]], [() => ['1', '2']], [() => Object.assign([1, 2], { more: 1 })],
  [() => ({ 0: 1, 1: 2, length: 2 })], [() => ({ 0: 1, 1: 2 })],
  [() => ({ a: 1 }), () => JSON.parse('{"a":1}'), () => Object.defineProperty({ a: 1 }, 'hidden', { value: 1 })],
  [() => ({ a: 1, b: 2 }), () => ({ b: 2, a: 1 })], [() => ({ a: 2, b: 1 })], [() => ({ a: '1' })], [() => ({ a: undefined })],
  [() => ({ b: undefined })], [() => ({ a: NaN })], [() => ({ a: 0 })], [() => ({ a: -0 })], [() => ({ a: { b: [1, { c: 2 }] } })],
  [() => ({ a: { b: [1, { c: 3 }] } })], [() => ({ a: { b: [1, {}] } })], [() => ({ [Symbol.iterator]: 1 })], [() => ({ a: SAME })],
];

/** What the stand-in does not compare. It must not call them the same. */
const UNKNOWN = [
  () => new Date(0), () => new Map(), () => new Set([1]), () => /a/, () => new Error('a'), () => new Uint8Array(1), () => Object.create(null),
  () => new (class A {})(), () => Object('a'), () => new (class extends Array {})(),
];

/** Whether a call throws nothing. */
const passes = (call) => {
  try {
    call();
    return true;
  } catch {
    return false;
  }
};

/** Both assert modules; in a browser they are one. */
const BOTH = { 'node:assert/strict': assert, 'its stand-in': standIn };

function expect(got, want, what) {
  if (got !== want) throw new Error(`${what}: ${got ? 'passes' : 'fails'}`);
}

/** Calls visit with each pair of values, each made anew, and whether they are of one group. */
function pairs(visit) {
  GROUPS.forEach((some, i) => GROUPS.forEach((others, j) => {
    for (const a of some) for (const b of others) visit(a(), b(), i === j, `${a} and ${b}`);
  }));
}

test('equal and deepEqual of all pairs of values', () => {
  for (const [name, a] of Object.entries(BOTH)) {
    pairs((x, y, same, what) => {
      expect(passes(() => a.deepEqual(x, y)), same, `${name}: deepEqual of ${what}`);
      expect(passes(() => a.deepEqual([{ x }], [{ x: y }], 'a message')), same, `${name}: deepEqual of ${what}, deep inside`);
      expect(passes(() => a.equal(x, y)), same && (x === y || x !== x), `${name}: equal of ${what}`);
    });
  }
});

test('ok of all values', () => {
  for (const [name, a] of Object.entries(BOTH)) {
    pairs((x, _, __, what) => expect(passes(() => a.ok(x, 'a message')), Boolean(x), `${name}: ok of ${what}`));
    expect(passes(() => a.ok()), false, `${name}: ok of nothing`);
  }
});

test('rejects', async () => {
  const late = (err) => new Promise((_, reject) => setTimeout(() => reject(err)));
  const failure = () => Object.assign(new TypeError('text'), { code: 'x', more: { a: [1] } });
  for (const [name, a] of Object.entries(BOTH)) {
    for (const [want, make, expected] of [
      [true, () => Promise.reject(failure()), { code: 'x' }],
      [true, () => late(failure()), { code: 'x', message: 'text', name: 'TypeError', more: { a: [1] } }],
      [true, () => Promise.reject({ code: undefined }), { code: undefined }],
      [false, () => Promise.reject(failure()), { code: 'y' }],
      [false, () => late(failure()), { code: 'x', more: { a: [2] } }],
      [false, () => Promise.reject(failure()), { code: 'x', other: undefined }],
      [false, () => Promise.reject(failure()), {}],
      [false, () => Promise.reject('x'), { length: 1 }],
      [false, () => Promise.reject(null), { code: 'x' }],
      [false, () => Promise.resolve(failure()), { code: 'x' }],
      [false, () => Promise.resolve(), { code: undefined }],
      [false, () => 'no promise', { length: 10 }],
    ]) {
      const promise = make();
      const got = await a.rejects(promise, expected).then(() => true, () => false);
      await Promise.resolve(promise).catch(() => {}); // it may not have been looked at
      expect(got, want, `${name}: rejects with ${JSON.stringify(expected)}`);
    }
  }
});

test('what the stand-in does not know fails', async () => {
  for (const make of UNKNOWN) {
    expect(passes(() => standIn.deepEqual(make(), make())), false, `deepEqual of two ${make}`);
    expect(passes(() => standIn.deepEqual({ a: make() }, { a: {} })), false, `deepEqual of ${make} and an object`);
    expect(passes(() => standIn.deepEqual([], make())), false, `deepEqual of an array and ${make}`);
  }
  for (const expected of [undefined, /x/, Error, () => true, new Error('x')]) {
    const promise = Promise.reject(new Error('x'));
    const got = await standIn.rejects(promise, expected).then(() => true, () => false);
    await promise.catch(() => {});
    expect(got, false, `rejects with ${expected}`);
  }
});
