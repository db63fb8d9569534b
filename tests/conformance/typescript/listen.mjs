// The official TypeScript client listens through one edge: a line of JSON for each thing that it hears, for a test.
//
//     node listen.mjs URL URI

import { Client, StreamableHTTPClientTransport } from '@modelcontextprotocol/client';

const [url, uri] = process.argv.slice(2);
const say = what => console.log(JSON.stringify(what));
const client = new Client({ name: 'mcpfleet-tests', version: '1.0.0' }, { versionNegotiation: { mode: 'auto' } });
client.onerror = error => say({ stray: String(error) });
client.fallbackNotificationHandler = async ({ method, params }) => say({ method, uri: params?.uri ?? null });
await client.connect(new StreamableHTTPClientTransport(new URL(url)));
const subscription = await client.listen({ toolsListChanged: true, resourceSubscriptions: [uri] });
say({ honoured: subscription.honoredFilter });
say({ closed: await subscription.closed });
await client.close();
