/** What a sale's description says at a moment. */

/** @typedef {{activityId: string, title: string, state: string, startsAt: number, endsAt: number, serverTime: number,
 *   payWithinMs: number, pushUrl?: string, items: {commodityId: string, title: string, price: string, total: number,
 *   remaining: number, maxPerUser: number}[]}} Activity */

/**
 * The state of a sale at a moment: the clock opens and ends a sale without a message.
 * @param {Activity} activity
 * @param {number} serverNow
 */
export function stateAt(activity, serverNow) {
  if (activity.state !== 'scheduled' && activity.state !== 'open') return activity.state;
  if (serverNow >= activity.endsAt) return 'ended';
  return serverNow >= activity.startsAt ? 'open' : 'scheduled';
}

/**
 * The sale with the stock that is told elsewhere.
 * @param {Activity} activity
 * @param {{commodityId: string, remaining: number}[]} items
 * @returns {Activity}
 */
export function withStock(activity, items) {
  const left = new Map(items.map((it) => [it.commodityId, it.remaining]));
  return { ...activity, items: activity.items.map((it) => ({ ...it, remaining: left.get(it.commodityId) ?? it.remaining })) };
}

/** Whether two descriptions say the same, but for when they were made. @param {Activity|null} a @param {Activity} b */
export function sameActivity(a, b) {
  return a !== null && JSON.stringify({ ...a, serverTime: 0 }) === JSON.stringify({ ...b, serverTime: 0 });
}
