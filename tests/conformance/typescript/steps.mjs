// The official TypeScript client at work through one edge: a line of JSON for each step, for a test to judge.
//
//     node steps.mjs URL FOLDER STEP...
//
// A line has `step`, the `result` or the `error` that the client showed, `exchanges` (each HTTP request of the step, by
// what was asked and how it was answered) and `strays` (what the client reported to its error handler meanwhile).
// FOLDER is empty; calls that hold leave their traces there.

import { existsSync, mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { setTimeout as pause } from 'node:timers/promises';

import { Client, ProtocolError, SdkHttpError, StreamableHTTPClientTransport } from '@modelcontextprotocol/client';

const PATIENCE = 10_000; // Milliseconds until a trace that does not come is an error.
const LINE_ENDS = 'a\u2028b\u2029c\u0085d\r\ne';

const [url, folder, ...asked] = process.argv.slice(2);
const exchanges = [];
const strays = [];

// Without a mode, the client opens with the handshake of the older revisions, and asks for nothing newer.
const client = new Client({ name: 'mcpfleet-tests', version: '1.0.0' }, { versionNegotiation: { mode: 'auto' } });
client.onerror = error => strays.push(described(error));

/** Fetch, and note what was asked and how it was answered; where no answer came, the status stays null. */
async function noted(input, init) {
    const method = init.body ? JSON.parse(init.body).method : null;
    const exchange = { http: init.method, method, status: null, type: null, retryAfter: null };
    exchanges.push(exchange);
    const response = await fetch(input, init);
    exchange.status = response.status;
    exchange.type = response.headers.get('content-type');
    exchange.retryAfter = response.headers.get('retry-after');
    return response;
}

/** Show an error as far as JSON can, with the client's public class that it is an instance of. */
function described(error) {
    const kind = [SdkHttpError, ProtocolError].find(known => error instanceof known)?.name ?? null;
    const { name, message, code = null, data = null } = error;
    return { kind, name, message, code, data };
}

/** Wait for what another process, or the edge, does. */
async function until(holds) {
    const last = performance.now() + PATIENCE;
    while (!holds()) {
        if (performance.now() > last) throw new Error(`never: ${holds}`);
        await pause(10);
    }
}

/** Make the folder in which one call that holds says what becomes of it. */
function place(name) {
    const path = join(folder, name);
    mkdirSync(path);
    return { path, has: file => existsSync(join(path, file)) };
}

/** Leave a call that runs, and time how long its handler, in another process, takes to hear of it. */
async function leave(tool, { onceItReports }) {
    const held = place(`${tool}-${onceItReports ? 'stream' : 'silent'}`);
    const leaving = new AbortController();
    let reports = 0;
    const onprogress = onceItReports ? () => (reports += 1) : undefined;
    const call = client.callTool(
        { name: tool, arguments: { folder: held.path } },
        { signal: leaving.signal, onprogress }
    );
    await Promise.race([call, until(() => held.has('started') && (reports > 0 || !onceItReports))]);
    const left = performance.now();
    leaving.abort();
    const error = await call.then(() => null, described);
    await until(() => held.has('cancelled'));
    const seconds = (performance.now() - left) / 1000;
    return { error, seconds, process: Number(readFileSync(join(held.path, 'started'), 'utf8')) };
}

/** Have a result wait for the worker's only slot until the answers to both calls are streams, and free the slot. */
async function throughStream(name, args) {
    const held = place('slot');
    const before = exchanges.length;
    const holding = client.callTool({ name: 'hold', arguments: { folder: held.path } });
    await Promise.race([holding, until(() => held.has('started'))]);
    const waiting = client.callTool({ name, arguments: args });
    await Promise.race([waiting, until(() => exchanges.slice(before).filter(({ status }) => status).length === 2)]);
    writeFileSync(join(held.path, 'release'), '');
    await holding;
    return await waiting;
}

const steps = {
    async connect() {
        const transport = new StreamableHTTPClientTransport(new URL(url), { fetch: noted });
        await client.connect(transport);
        const { name } = client.getServerVersion();
        return { version: client.getNegotiatedProtocolVersion(), server: name, session: transport.sessionId ?? null };
    },
    list: async () => (await client.listTools()).tools.map(tool => tool.name),
    call: () => client.callTool({ name: 'add', arguments: { left: 2, right: 3 } }),
    async progress() {
        const seen = [];
        const onprogress = report => seen.push(report);
        const result = await client.callTool({ name: 'count', arguments: { to: 5 } }, { onprogress });
        return { seen: [...seen], result }; // A copy, so that what comes after the result is not among them.
    },
    leaveSilent: () => leave('hold', { onceItReports: false }),
    leaveStream: () => leave('hold', { onceItReports: true }),
    leaveThread: () => leave('hold_thread', { onceItReports: false }),
    toolError: () => client.callTool({ name: 'refuse', arguments: { why: 'the shop is closed' } }),
    badArguments: () => client.callTool({ name: 'add', arguments: { left: 'two', right: 3 } }),
    unknownTool: () => client.callTool({ name: 'subtract', arguments: {} }),
    lineEnds: () => client.callTool({ name: 'echo', arguments: { text: LINE_ENDS } }),
    lineEndsInStream: () => throughStream('echo', { text: LINE_ENDS })
};

for (const step of asked) {
    const [exchanged, strayed] = [exchanges.length, strays.length];
    const shown = await steps[step]().then(
        result => ({ result }),
        error => ({ error: described(error) })
    );
    const meanwhile = { exchanges: exchanges.slice(exchanged), strays: strays.slice(strayed) };
    console.log(JSON.stringify({ step, ...shown, ...meanwhile }));
}
await client.close();
