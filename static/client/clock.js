/**
 * The server's clock, as seen from here. The device's own clock may be minutes off (FS-085) or be changed while the
 * page is open; every answer that carries serverTime is a sample, and the one with the shortest round trip is believed.
 */

const KEEP = 8; // samples
const MAX_AGE_MS = 10 * 60_000;
const SLACK_MS = 250; // by which two gateways may differ without meaning that the device's clock was changed

export class ServerClock {
  #now;
  #samples = [];

  /** @param {() => number} now the device's clock, epoch milliseconds */
  constructor(now) {
    this.#now = now;
  }

  /**
   * Takes one round trip into account.
   * @param {number} sentAt device time before the request
   * @param {number} receivedAt device time after the answer
   * @param {number} serverTime what the server stamped in between
   */
  sample(sentAt, receivedAt, serverTime) {
    if (!Number.isFinite(serverTime) || receivedAt < sentAt) return;
    // The stamp was made between the two, so the true offset lies between these.
    const s = { low: serverTime - receivedAt, high: serverTime - sentAt, at: receivedAt };
    const best = this.#best();
    if (best && (s.low > best.high + SLACK_MS || s.high < best.low - SLACK_MS)) {
      this.#samples = []; // both cannot be true: the device's clock was changed meanwhile
    }
    this.#samples.push(s);
    if (this.#samples.length > KEEP) this.#samples.shift();
  }

  /** Whether any sample has been taken. */
  get known() {
    return this.#samples.length > 0;
  }

  /** Server time minus device time, in milliseconds; 0 while unknown, negative when the device is ahead. */
  get offset() {
    const best = this.#best();
    return best ? Math.round((best.low + best.high) / 2) : 0;
  }

  /** The server's time now, epoch milliseconds. */
  now() {
    return this.#now() + this.offset;
  }

  #best() {
    const now = this.#now();
    const last = this.#samples.at(-1);
    let best = last;
    for (const s of this.#samples) {
      const fresh = Math.abs(now - s.at) <= MAX_AGE_MS;
      if (fresh && s.high - s.low < best.high - best.low) best = s;
    }
    return best;
  }
}
