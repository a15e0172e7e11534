/**
 * What our tests use of node:assert/strict, for a browser: page.html gives it that name. What it does not know fails, so that
 * no test passes for nothing; assert.test.mjs holds it against the real one.
 */

class AssertionError extends Error {
  name = 'AssertionError';
}

function ok(value, message) {
  if (!value) throw new AssertionError(message ?? `${show(value)} is not true`);
}

function equal(actual, expected, message) {
  if (!Object.is(actual, expected)) throw new AssertionError(differs(actual, expected, message));
}

function deepEqual(actual, expected, message) {
  if (!same(actual, expected)) throw new AssertionError(differs(actual, expected, message));
}

/** The promise must be rejected with an error that has the properties of expected. */
async function rejects(promise, expected) {
  if (!(promise instanceof Promise) || !plain(expected) || Object.keys(expected).length === 0) {
    throw new TypeError('rejects(promise, {property: value}) is all that is known here');
  }
  const err = await promise.then(() => { throw new AssertionError('the promise was not rejected'); }, (reason) => reason);
  if (err === null || typeof err !== 'object') throw new AssertionError(`rejected with ${show(err)}, which is no object`);
  for (const [key, value] of Object.entries(expected)) {
    if (!(key in err) || !same(err[key], value)) throw new AssertionError(differs(err[key], value, `${key} of ${err}`));
  }
}

export default { ok, equal, deepEqual, rejects };

/** Whether two values are the same in kind and in all that they hold, to any depth. */
function same(a, b) {
  if (Object.is(a, b)) return true;
  if (a === null || b === null || typeof a !== 'object' || typeof b !== 'object') return false;
  for (const value of [a, b]) if (!plain(value)) throw new TypeError(`deepEqual does not know ${show(value)} here`);
  if (Array.isArray(a) !== Array.isArray(b) || a.length !== b.length) return false;
  const keys = keysOf(a);
  return keys.length === keysOf(b).length && keys.every((key) => enumerable(b, key) && same(a[key], b[key]));
}

/** Whether it is an array or an object literal: no date, map, error, or object of a class. */
function plain(value) {
  const kind = Object.prototype.toString.call(value);
  const parent = value === null || typeof value !== 'object' ? null : Object.getPrototypeOf(value);
  return kind === '[object Array]' ? parent === Array.prototype : kind === '[object Object]' && parent === Object.prototype;
}

function keysOf(value) {
  return Reflect.ownKeys(value).filter((key) => enumerable(value, key));
}

function enumerable(value, key) {
  return Object.prototype.propertyIsEnumerable.call(value, key);
}

function differs(actual, expected, message) {
  return `${message === undefined ? '' : `${message}: `}got ${show(actual)}, want ${show(expected)}`;
}

function show(value) {
  try {
    return JSON.stringify(value) ?? String(value);
  } catch {
    return String(value);
  }
}
