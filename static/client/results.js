/** What is known of the user's requests. An older version never replaces a newer one (S29, FS-084). */

/** @typedef {{requestToken: string, activityId: string, commodityId: string, quantity: number, status: string,
 *   reason?: string, orderNo?: string, payBefore?: number, version: number, pollAfterMs?: number, etaMs?: number}} Result */

const MAX_KEPT = 200;

/** Whether a request is not decided yet. @param {Result|undefined} r */
export function undecided(r) {
  return r?.status === 'processing';
}

/** Whether a result takes the user's one participation in the sale: it is under way, or an order came of it. */
export function takesPart(r) {
  return undecided(r) || Boolean(r?.orderNo);
}

/** The Result that an Order tells. @param {object} order @returns {Result} */
export function resultOf(order) {
  const { requestToken, activityId, commodityId, quantity, status, orderNo, payBefore, version } = order;
  const reason = { cancelled: 'user', closed: 'expired' }[status];
  return { requestToken, activityId, commodityId, quantity, status, orderNo, payBefore, version, ...(reason && { reason }) };
}

export class Results {
  #byToken = new Map();
  #onChange;

  /** @param {(r: Result) => void} onChange called with each result that is news */
  constructor(onChange) {
    this.#onChange = onChange;
  }

  /**
   * Takes a result from wherever it came.
   * @param {Result} r
   * @returns {Result} what is known now, which may be newer than r
   */
  apply(r) {
    const known = this.#byToken.get(r.requestToken);
    if (known && known.version >= r.version) {
      if (known.version === r.version) {
        known.pollAfterMs = r.pollAfterMs;
        known.etaMs = r.etaMs;
      }
      return known;
    }
    const { type, resultUrl, ...kept } = r; // of the frame and of the answer, not of the result
    this.#byToken.delete(r.requestToken); // so that the order of the map is the order of arrival
    this.#byToken.set(r.requestToken, kept);
    if (this.#byToken.size > MAX_KEPT) this.#byToken.delete(this.#byToken.keys().next().value);
    this.#onChange(kept);
    return kept;
  }

  /** @param {string} token */
  get(token) {
    return this.#byToken.get(token);
  }

  /**
   * How the user stands in a sale. An order outranks a request under way, which outranks a refusal of another attempt.
   * @param {string} activityId
   * @returns {Result|undefined}
   */
  of(activityId) {
    const rank = (r) => (r.orderNo ? 2 : undecided(r) ? 1 : 0);
    let best;
    for (const r of this.#byToken.values()) {
      if (r.activityId === activityId && (!best || rank(r) >= rank(best))) best = r;
    }
    return best;
  }
}
