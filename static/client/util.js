/** Small parts that the client's modules share. */

const INSIST_RETRIES = 3;

/** Listeners by event type. A listener that throws is reported and does not stop the others. */
export class Emitter {
  #listeners = new Map();

  /**
   * @param {string} type
   * @param {(value: any) => void} listener
   * @returns {() => void} removes the listener
   */
  on(type, listener) {
    const set = this.#listeners.get(type) ?? new Set();
    this.#listeners.set(type, set.add(listener));
    return () => set.delete(listener);
  }

  emit(type, value) {
    for (const listener of [...(this.#listeners.get(type) ?? [])]) {
      try {
        listener(value);
      } catch (err) {
        (globalThis.reportError ?? console.error)(err);
      }
    }
  }
}

/**
 * How long to wait before the next attempt: anything between nothing and a window that doubles, so that clients that
 * failed together do not come back together (FS-081).
 * @param {() => number} random numbers from 0 to 1
 * @param {number} attempt 0 for the first
 * @param {number} baseMs the first window
 * @param {number} capMs the widest window
 */
export function fullJitter(random, attempt, baseMs, capMs) {
  return random() * Math.min(capMs, baseMs * 2 ** Math.min(attempt, 30));
}

/** Makes a delay 20 % shorter or longer. */
export function around(random, ms) {
  return ms * (0.8 + 0.4 * random());
}

/**
 * Makes a call that is answered the same when it is repeated, again as long as its error may pass, a few times.
 * @template T
 * @param {() => Promise<T>} call
 * @param {{timers: {set: Function}, random: () => number}} o
 * @returns {Promise<T>}
 */
export async function insist(call, { timers, random }) {
  for (let attempt = 0; ; attempt++) {
    try {
      return await call();
    } catch (err) {
      if (!err.temporary || attempt >= INSIST_RETRIES) throw err;
      const delay = (err.retryAfterMs ?? 0) + fullJitter(random, attempt, 500, 4_000);
      await new Promise((resolve) => timers.set(resolve, delay));
    }
  }
}

/**
 * Repeats a task: each run says in how many milliseconds the next is due, or null for "not until asked". Runs never
 * overlap.
 */
export class Loop {
  #task;
  #timers;
  #now;
  #timer = null;
  #due = 0;
  #running = false;
  #again = false;
  #stopped = true;

  /**
   * @param {() => Promise<number|null>} task must not throw
   * @param {{timers: {set: Function, clear: Function}, now: () => number}} o
   */
  constructor(task, { timers, now }) {
    this.#task = task;
    this.#timers = timers;
    this.#now = now;
  }

  /** Runs the task in delayMs, or sooner if it is due sooner. */
  in(delayMs) {
    this.#stopped = false;
    this.#schedule(delayMs);
  }

  /** Runs the task now; if it is running already, once more afterwards. */
  now() {
    this.#stopped = false;
    this.#run();
  }

  stop() {
    this.#stopped = true;
    this.#again = false;
    this.#clear();
  }

  async #run() {
    if (this.#running) {
      this.#again = true;
      return;
    }
    this.#clear();
    this.#running = true;
    const delay = await this.#task();
    this.#running = false;
    if (this.#stopped) return;
    if (this.#again) {
      this.#again = false;
      this.#run();
    } else if (delay !== null) {
      this.#schedule(delay);
    }
  }

  #schedule(delayMs) {
    const due = this.#now() + delayMs;
    if (this.#timer !== null && this.#due <= due) return;
    this.#clear();
    this.#due = due;
    this.#timer = this.#timers.set(() => {
      this.#timer = null;
      this.#run();
    }, delayMs);
  }

  #clear() {
    if (this.#timer !== null) this.#timers.clear(this.#timer);
    this.#timer = null;
  }
}

/**
 * The user id of a JWT, which the load balancer of the sockets hashes; "" when it cannot be read. The server alone
 * checks the token.
 * @param {string} jwt
 */
export function subjectOf(jwt) {
  try {
    const part = jwt.split('.')[1].replace(/-/g, '+').replace(/_/g, '/');
    const { sub } = JSON.parse(atob(part));
    return /^[1-9][0-9]{0,18}$/.test(sub) ? sub : '';
  } catch {
    return '';
  }
}
