/** The wait for an answer that a gateway holds back until there is something new (long polling). */

const HOLD_MS = 20_000;

export class Hold {
  #held = null;
  #may = true; // the last one was not cut off by something on the way

  /** Begins a wait; undefined when the last one did not get through. @returns {{ms: number, signal: AbortSignal}|undefined} */
  begin() {
    this.#held = this.#may ? new AbortController() : null;
    return this.#held ? { ms: HOLD_MS, signal: this.#held.signal } : undefined;
  }

  /** Says how the wait ended: after one that was cut off, the next is not held. @param {Error & {temporary?: boolean}} [err] */
  end(err) {
    this.#may = !(this.#held && err?.temporary);
  }

  /** Ends the wait, which may hang on a network that is gone: its call fails with the code stopped. */
  stop() {
    this.#held?.abort();
  }
}
