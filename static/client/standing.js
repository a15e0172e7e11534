/** How the user stands in the sale, as the gateway tells it when asked. */

import { undecided } from './results.js';
import { around } from './util.js';

const POLL_MS = 2_000; // of a result under way, when the server names no time
const ORDER_POLL_MS = 5_000; // of an order that waits for its payment
const IDLE_POLL_MS = 10_000; // of a user without a request, and of one in the waitlist

/**
 * Reads the request under way, else whatever the server knows of the user in this sale. With hold, the server answers about a
 * request under way when it is decided, or after that time (long polling).
 * @param {{hold?: {ms: number, signal: AbortSignal}, api: import('./http.js').Api, activityId: string, results: import('./results.js').Results,
 *   purchase: import('./purchase.js').Purchase, waitlist: import('./waitlist.js').Waitlist}} o
 */
export async function readStanding({ hold, api, activityId, results, purchase, waitlist }) {
  const known = results.of(activityId);
  const token = undecided(known) ? known.requestToken : await purchase.open();
  if (token) {
    try {
      const query = hold ? `?wait=${hold.ms / 1000}s` : '';
      results.apply(await api.call('GET', `/v1/results/${token}${query}`, { hold }));
      return;
    } catch (err) {
      if (err.code !== 'not_found') throw err;
    }
  }
  const me = await waitlist.read();
  const now = results.of(activityId);
  if (me.result) results.apply(me.result);
  // The server took this request and has lost it: the same one again is the same purchase (R18), and no failure. The
  // token of a promotion buys nothing.
  else if (undecided(now) && now.requestToken !== waitlist.promoted) await purchase.resubmit(now);
}

/**
 * In how many milliseconds to read it again.
 * @param {import('./results.js').Result|undefined} r
 * @param {() => number} random
 */
export function standingPace(r, random) {
  if (undecided(r)) return r.pollAfterMs ?? around(random, POLL_MS);
  return around(random, r?.status === 'pending_payment' ? ORDER_POLL_MS : IDLE_POLL_MS);
}
