/** Tests that fail, each in its own way: each platform must say so. client_test.go runs them; the name says what is wanted. */

import assert from 'node:assert/strict';
import { test } from 'node:test';

const later = (f) => new Promise((resolve, reject) => setTimeout(() => f(resolve, reject), 20));
const oops = () => { throw new Error('oops'); };

test('passes', () => assert.equal(1, 1));
test('passes later', () => later((resolve) => resolve()));
test('fails: it throws', oops);
test('fails: it rejects', () => later((_, reject) => reject(new Error('oops'))));
test('fails: it throws nothing', () => { throw undefined; });
test('fails: an assertion', () => assert.equal(1, 2));
test('fails: an assertion after a while', async () => {
  await later((resolve) => resolve());
  assert.deepEqual({ a: [1] }, { a: [2] });
});
test('fails: an error in a timer', async () => {
  setTimeout(oops);
  await later((resolve) => resolve());
});
test('fails: a rejection that nobody looks at', async () => {
  Promise.reject(new Error('oops'));
  await later((resolve) => resolve());
});
test('passes after all that', () => assert.deepEqual([{ a: 1 }], [{ a: 1 }]));
test('fails: it never ends', () => new Promise(() => {}));
