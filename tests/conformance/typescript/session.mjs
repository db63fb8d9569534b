// The official TypeScript client as it opens by itself, with the handshake of 2025: a line of JSON for each thing.
//
//     node session.mjs URL URI
//
// It is asked within a call, sets the log level, subscribes to URI and has it changed, and ends its session.

import { Client, StreamableHTTPClientTransport } from '@modelcontextprotocol/client';

const [url, uri] = process.argv.slice(2);
const say = what => console.log(JSON.stringify(what));
const client = new Client({ name: 'mcpfleet-tests', version: '1.0.0' }, { capabilities: { elicitation: {}, sampling: {}, roots: {} } });
client.onerror = error => say({ stray: String(error) });

let told;
const updated = new Promise(resolve => { told = resolve; });
client.setNotificationHandler('notifications/resources/updated', async ({ params }) => told(params.uri));
const logged = [];
client.setNotificationHandler('notifications/message', async ({ params }) => { logged.push(params.level); });
client.setRequestHandler('elicitation/create', async ({ params }) => {
    say({ asked: params.message });
    return { action: 'accept', content: { copies: 2, binding: 'hard' } };
});
client.setRequestHandler('sampling/createMessage', async () => (
    { role: 'assistant', model: 'none', content: { type: 'text', text: 'words' } }
));
client.setRequestHandler('roots/list', async () => ({ roots: [{ uri: 'file:///home' }] }));

const transport = new StreamableHTTPClientTransport(new URL(url));
const text = async (name, args = {}) => (await client.callTool({ name, arguments: args })).content[0].text;
await client.connect(transport);
say({ session: transport.sessionId?.length, capabilities: client.getServerCapabilities() });
say({ ordered: await text('order', { title: 'Emma' }) });
say({ interviewed: await text('interview') });
await client.setLoggingLevel('debug');
await text('chat');
say({ logged });
await client.subscribeResource({ uri });
await text('place_hold', { book: 1 });
say({ updated: await updated });
await client.unsubscribeResource({ uri });
await transport.terminateSession();
say({ ended: transport.sessionId === undefined });
await client.close();
