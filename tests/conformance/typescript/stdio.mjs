// The official TypeScript client starts `mcpfleet stdio`: a line of JSON for each thing that it does or hears.
//
//     node stdio.mjs MODE PYTHON URL URI       (MODE is auto or legacy)

import { Client } from '@modelcontextprotocol/client';
import { StdioClientTransport } from '@modelcontextprotocol/client/stdio';

const [mode, command, url, uri] = process.argv.slice(2);
const say = what => console.log(JSON.stringify(what));
const client = new Client({ name: 'mcpfleet-tests', version: '1.0.0' }, { versionNegotiation: { mode } });
client.onerror = error => say({ stray: String(error) });
client.fallbackNotificationHandler = async ({ method, params }) => say({ method, uri: params?.uri ?? null });
await client.connect(new StdioClientTransport({ command, args: ['-m', 'mcpfleet.cli', 'stdio', url], stderr: 'inherit' }));
if (mode === 'auto') {
  const subscription = await client.listen({ toolsListChanged: true, resourceSubscriptions: [uri] });
  subscription.closed.then(closed => say({ closed }));
} else {
  await client.subscribeResource({ uri });
}
say({ ready: (await client.listTools()).tools.length > 0 });
for await (const line of process.stdin) {
  if (String(line).includes('end')) break;
}
await client.close();
say({ over: true });
process.exit(0);
