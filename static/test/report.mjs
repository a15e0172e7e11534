/** A reporter for Node: one line of JSON for each test, of the same form as what the page for browsers gives. */
export default async function* report(events) {
  for await (const { type, data } of events) {
    if (type === 'test:pass') yield line(data.name, '');
    if (type === 'test:fail') yield line(data.name, String(data.details.error.cause?.stack ?? data.details.error.message) || 'an empty error');
  }
}

function line(name, error) {
  return `${JSON.stringify({ name, error })}\n`;
}
