// The official TypeScript client finds an authorization server by an edge's challenge, and calls with its token.
//
//     node authorize.mjs URL
//
// It prints one line of JSON: the revision, who the tool says that it is, what a tool answers that needs a scope which
// the client got with its first token, and the parameters with which it was sent to the authorization server.

import { Client, StreamableHTTPClientTransport, UnauthorizedError } from '@modelcontextprotocol/client';

const [url] = process.argv.slice(2);
const sent = [];
const kept = {};
let code;

/** The person at the browser, who agrees; and where the client keeps what it gets. */
const provider = {
    redirectUrl: 'http://127.0.0.1:9/callback',
    clientMetadata: {
        client_name: 'mcpfleet-tests',
        redirect_uris: ['http://127.0.0.1:9/callback'],
        grant_types: ['authorization_code', 'refresh_token'],
        response_types: ['code'],
        token_endpoint_auth_method: 'client_secret_post'
    },
    clientInformation: () => kept.client,
    saveClientInformation: client => void (kept.client = client),
    tokens: () => kept.tokens,
    saveTokens: tokens => void (kept.tokens = tokens),
    saveCodeVerifier: verifier => void (kept.verifier = verifier),
    codeVerifier: () => kept.verifier,
    async redirectToAuthorization(where) {
        sent.push(Object.fromEntries(where.searchParams));
        const response = await fetch(where, { redirect: 'manual' });
        code = new URL(response.headers.get('location')).searchParams.get('code');
    }
};

const open = () => new StreamableHTTPClientTransport(new URL(url), { authProvider: provider });
const fresh = () => new Client({ name: 'mcpfleet-tests', version: '1.0.0' }, { versionNegotiation: { mode: 'auto' } });

let refused = null;
let client = fresh();
const transport = open();
try {
    await client.connect(transport);
} catch (error) {
    if (!(error instanceof UnauthorizedError)) throw error;
    refused = error.name;
    await transport.finishAuth(code);
    client = fresh();
    await client.connect(open());
}
const who = await client.callTool({ name: 'whoami', arguments: {} });
const written = await client.callTool({ name: 'write', arguments: {} });
console.log(
    JSON.stringify({
        refused,
        version: client.getNegotiatedProtocolVersion(),
        who: who.structuredContent,
        written: written.content[0].text,
        sent: sent.map(({ resource, scope, code_challenge_method }) => ({ resource, scope, code_challenge_method }))
    })
);
await client.close();
