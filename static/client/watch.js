/** What a browser tells about sleep, return and the network. */

/**
 * Calls wake when the page is looked at again, comes back from the history or is online again, and lost when the device
 * says that it is offline.
 * @param {{document: Document, window: Window}|null} page
 * @param {() => void} wake
 * @param {() => void} lost
 * @returns {() => void} ends it
 */
export function watch(page, wake, lost) {
  if (!page) return () => {};
  const { document, window } = page;
  const listeners = [
    [document, 'visibilitychange', () => document.hidden || wake()],
    [window, 'pageshow', (event) => event.persisted && wake()],
    [window, 'online', wake],
    [window, 'offline', lost],
  ];
  for (const [target, type, listener] of listeners) target.addEventListener(type, listener);
  return () => {
    for (const [target, type, listener] of listeners) target.removeEventListener(type, listener);
  };
}
